"""The coordinator: the one process that decides, and the only one that writes the registry.

A plain class, made remote by `head` (detached, named "coordinator" in namespace "tacl"). Its
constructor is the recovery: it reads the registry and issues the work still owed.

Every method is idempotent by the id it is given, so a caller repeats it after a lost answer.
Arguments and answers are messages or JSON-able dicts. Errors are those of `tacl.errors`; through
Ray they arrive as the `cause` of a RayTaskError.
"""

from __future__ import annotations

from cluster.messages import (
    BlobRef,
    Composition,
    Progress,
    Shard,
    Submission,
    Submitted,
)

NAME = "coordinator"
NAMESPACE = "tacl"


class Coordinator:
    """Carries out what `plan` decides; see the module's docstring."""

    def __init__(self, home: str, learner: str = "cluster.learner:Learner") -> None:
        """Recover from `home`. `learner` is the import path of the class that does the work."""

    # -- tasks and their samples

    def submit(self, submission: Submission) -> Submitted:
        """Accept a task: everything is checked before anything is stored.

        Raises BadName, NameTaken, ModalityMismatch, NotPlaceable, TooFewClasses, EmptySplit,
        CorruptBlob (a blob it names is not in the store).
        """
        raise NotImplementedError

    def add_samples(self, task: str, blob: BlobRef, request_id: str) -> dict[str, object]:
        """Grow a task's store by the rows of `blob`, a shard blob made by `ingest`.

        Rows already there are left out; the old probe stays, and the blob's own probe rows join it.
        Answers {task, version, rows, added}. Raises UnknownTask.
        """
        raise NotImplementedError

    def known(
        self, run_id: str, step: int, progress: Progress | None = None, attempt: int | None = None
    ) -> tuple[Shard, ...]:
        """The shards a run's optimizer step `step` (0, 1, ...) sees: generic first, then the other
        tasks by arrival, never its own.

        Rank 0 asks before each step. What a step was told is recorded: asked again after a resume
        it is told the same, and newcomers join only from the first step never asked for before.
        Raises RunFailed when `attempt` is no longer the current one (stop then, publish nothing).
        """
        raise NotImplementedError

    def task(self, name: str) -> dict[str, object]:
        """One task: submission, state, shards, versions, runs. Raises UnknownTask."""
        raise NotImplementedError

    def retry(self, task: str) -> dict[str, object]:
        """Queue what failed of this task again, with a fresh budget. {task, retried: [run ids]}."""
        raise NotImplementedError

    # -- vectors

    def vectors(self, task: str | None = None) -> list[dict[str, object]]:
        """Every version of every vector (of one task): a VectorRef's fields, champion, norm,
        metrics, config, curves, created, arrivals."""
        raise NotImplementedError

    def interference(self) -> dict[str, object]:
        """The tau_jp matrix of the champions: {vectors: [{task, version, norm}], on: [names],
        raw, relative, standard_error: rows per vector (null where not measured), missing: int}."""
        raise NotImplementedError

    def refresh(self, task: str, request_id: str) -> str:
        """Refresh a task's champion against all other shards now; its run id.

        Raises UnknownTask, UnknownVector (nothing published yet).
        """
        raise NotImplementedError

    # -- models

    def compose(self, user: str, terms: list[str], request_id: str) -> Composition:
        """Pin the vectors a recipe names and move the user's model to it.

        Raises BadName, BadRecipe, UnknownTask, UnknownVector (says the task's state), MixedRegimes.
        """
        raise NotImplementedError

    def composition(self, user: str) -> Composition:
        """The user's current model. Raises NoComposition."""
        raise NotImplementedError

    def users(self) -> list[dict[str, object]]:
        """Every user's model: {user, digest, terms: [str], outdated: [task names]}."""
        raise NotImplementedError

    def evaluate(self, user: str) -> str:
        """Evaluate the user's model on the test splits of its tasks; the run id. Kept: the same
        model on the same data is evaluated once. Raises NoComposition."""
        raise NotImplementedError

    # -- runs and status

    def run(self, run_id: str) -> dict[str, object]:
        """{run_id, kind, task, state, step, steps, loss, penalty, attempts, reason, ...}; state is
        queued | running | done | failed. Raises RunFailed when there is no such run."""
        raise NotImplementedError

    def result(self, run_id: str) -> dict[str, object] | None:
        """A finished run's result, None while it is owed. Raises RunFailed with the cause."""
        raise NotImplementedError

    def status(self) -> dict[str, object]:
        """{base, tasks: [{name, owner, state, step, steps, loss, version, accuracy_before,
        accuracy_after, reason, ...}], work: [runs that are no training], room, trouble}."""
        raise NotImplementedError

    def logs(self, task: str) -> list[dict[str, object]]:
        """What happened to a task, oldest first: {at, kind, task, run_id, text}."""
        raise NotImplementedError

    def cluster(self) -> dict[str, object]:
        """{nodes, cpus, free_cpus, gpus, free_gpus}."""
        raise NotImplementedError
