"""The coordinator: the one process that decides, and the only one that writes the registry.

Decisions are made in `plan`, and `execution` carries them out; this is what people and learners
ask. The order is always: blobs lie in the store, then one transaction of the registry, then the
event to the plan. The constructor is the recovery: it reads the registry and issues the work still
owed.

Every method is idempotent by the id it is given, so a caller repeats it after a lost answer.
Arguments and answers are messages or JSON-able dicts. Errors are those of `tacl.errors`; through
Ray they arrive as the `cause` of a RayTaskError.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from cluster import plan, report, works
from cluster.acceptance import missing_files, require_sound
from cluster.execution import Execution
from cluster.home import Home
from cluster.launcher import Launcher
from cluster.messages import BlobRef, Composition, Progress, Shard, Submission, Submitted, identity
from cluster.names import checked_name
from cluster.pinning import Pins
from cluster.registry import Registry, Request, Task
from cluster.samples import grown, known
from cluster.state import SamplesArrived, State
from tacl.compose.terms import Term, parse_recipe
from tacl.errors import ClusterNotRunning, NoComposition, RunFailed


class Coordinator:
    """Carries out what `plan` decides; see the module's docstring.

    Whoever makes one calls `tick` again and again: it looks after what runs.
    """

    def __init__(self, home: str | Path, launcher: Launcher) -> None:
        place = Home(Path(home))
        settings = place.settings()
        if settings is None:
            raise ClusterNotRunning(f"{home} is no home of TACL yet; run `tacl up` first")
        self._base = settings.base
        self._blobs = place.blobs()
        self._lock = threading.RLock()  # methods and `tick` come from different threads
        self._registry = Registry(place.registry_url)
        self._registry.founded(settings.base, settings.generic)
        self._shards = {shard.task: shard for shard in self._registry.shards()}
        champions = [entry.reference for entry in self._registry.champions()]
        self._damaged = missing_files(champions, self._blobs)
        self._pins = Pins(self._registry, self._blobs, self._task_state)
        self._execution = Execution(place, self._base, self._registry, launcher, self._lock)

    # -- tasks and their samples

    def submit(self, submission: Submission) -> Submitted:
        """Accept a task: everything is checked before anything is stored.

        Raises BadName, NameTaken, ModalityMismatch, NotPlaceable, BadConfig, TooFewClasses,
        EmptySplit, CorruptBlob (a blob it names is not in the store).
        """
        asked = identity("submit", submission.model_dump(mode="json"))
        with self._lock:
            answer = self._registry.answer(submission.request_id, asked)
            if answer is not None:
                return Submitted.model_validate_json(answer)
            nodes = self._state.nodes
            require_sound(submission, self._base, self._shards, self._blobs, nodes)
            work = works.training(self._base, submission)
            accepted = Submitted(task=submission.name, run_id=work.run_id, state="queued")
            request = Request(submission.request_id, asked, accepted.model_dump_json())
            ordinal = self._registry.accept(submission, work, request)
            shard = Shard(task=submission.name, ordinal=ordinal, blob=submission.shard)
            self._arrived(shard, submission)
            self._execution.request(work.run_id)
        return accepted

    def add_samples(self, task: str, blob: BlobRef, request_id: str) -> dict[str, object]:
        """Grow a task's store by the rows of `blob`, a shard blob made by `ingest`.

        Rows already there are left out; the old probe stays, and the blob's own probe rows join it.
        Answers {task, version, rows, added}. Raises UnknownTask, CorruptBlob.
        """
        asked = identity("add_samples", {"task": task, "blob": blob.digest})
        with self._lock:
            answer = self._registry.answer(request_id, asked)
            if answer is not None:
                return json.loads(answer)
            submission = self._registry.task(task).submission
            old = self._shards[task]
            both = grown(self._blobs, old.blob, blob)
            new = old.model_copy(update={"blob": both, "version": old.version + (both != old.blob)})
            facts = {"task": task, "version": new.version, "rows": both.rows}
            facts["added"] = both.rows - old.blob.rows
            self._registry.grow(new, Request(request_id, asked, json.dumps(facts)))
            if new != old:
                self._arrived(new, submission)
        return facts

    def known(
        self, run_id: str, step: int, progress: Progress | None = None, attempt: int | None = None
    ) -> tuple[Shard, ...]:
        """The shards a run's optimizer step `step` (0, 1, ...) sees: generic first, then the other
        tasks by arrival, never its own.

        Rank 0 asks before each step. What a step was told is recorded: asked again after a resume
        it is told the same, and newcomers join only from the first step never asked for before.
        Raises RunFailed when `attempt` is no longer the current one (stop then, publish nothing).
        """
        with self._lock:
            told = self._execution.told(run_id, attempt)
            current = known(self._shards.values(), told.own)
            newcomers = told.arrivals.newcomers(step, current)
            self._registry.told(run_id, step, newcomers, progress)
            told.arrivals.record(step, newcomers)
            return told.arrivals.at(step)

    def retry(self, task: str) -> dict[str, object]:
        """Queue what failed of this task again, with a fresh budget. {task, retried: [run ids]}.
        A refresh that newer samples or vectors made pointless is left. Raises UnknownTask."""
        with self._lock:
            self._registry.task(task)
            failed = self._registry.runs(states=("failed",))
            chosen = [
                run.run_id
                for run in failed
                if task in report.tasks_of(run.work)
                and plan.is_current(self._state, self._state.runs[run.run_id])
            ]
            for run_id in chosen:
                self._execution.request(run_id)
        return {"task": task, "retried": chosen}

    # -- vectors

    def refresh(self, task: str, request_id: str) -> str:
        """Refresh a task's champion against all other shards now; its run id. One that was done
        already with the same samples, or one that is owed, is the answer too.

        Raises UnknownTask, UnknownVector (nothing published yet).
        """
        asked = identity("refresh", {"task": task})
        with self._lock:
            answer = self._registry.answer(request_id, asked)
            if answer is not None:
                return answer
            self._pins.pin(Term(1.0, task))
            owed = self._registry.runs(states=("queued", "running"), task=task, kinds=("refresh",))
            refresh = plan.refresh_of(self._state, task)
            run_id = owed[0].run_id if owed else refresh.run_id
            request = Request(request_id, asked, run_id)
            self._registry.add_run(
                owed[0].work if owed else works.refreshing(self._registry, self._base, refresh),
                task,
                request,
            )
            self._execution.request(run_id)
        return run_id

    def vectors(self, task: str | None = None) -> list[dict[str, object]]:
        """Every version of every vector (of one task): a VectorRef's fields, champion, norm,
        metrics, config, curves, created, arrivals: [{step, task, version}]. Raises UnknownTask."""
        with self._lock:
            if task is not None:
                self._registry.task(task)
            return report.vectors(self._registry, task)

    def interference(self) -> dict[str, object]:
        """The tau_jp matrix of the champions: {vectors: [{task, version, norm}], on: [names],
        raw, relative, standard_error: rows per vector (null where not known), missing: int,
        findings: [{kind, first, second, value, message}]}. Relative is to what the own vector of
        the task does there (`tacl.interference`)."""
        with self._lock:
            return report.interference(self._registry, self._shards)

    # -- models

    def compose(self, user: str, terms: list[str], request_id: str) -> Composition:
        """Pin the vectors a recipe names and move the user's model to it.

        Raises BadName, BadRecipe, UnknownTask, UnknownVector (says the task's state), MixedRegimes,
        CorruptBlob.
        """
        checked_name(user, "user")
        recipe = parse_recipe(terms)
        asked = identity("compose", {"user": user, "terms": list(terms)})
        with self._lock:
            answer = self._registry.answer(request_id, asked)
            if answer is not None:
                return Composition.model_validate_json(answer)
            model = self._pins.composed(user, recipe)
            self._registry.compose(model, Request(request_id, asked, model.model_dump_json()))
        return model

    def composition(self, user: str) -> Composition:
        """The user's current model. Raises NoComposition."""
        with self._lock:
            found = self._registry.compositions(user)
        if not found:
            raise NoComposition(f"{user} has no model yet; make one: tacl compose {user} +TASK ...")
        return found[0]

    def users(self) -> list[dict[str, object]]:
        """Every user's model: {user, digest, terms: [str], outdated: [task names]}."""
        with self._lock:
            return report.users(self._registry)

    def evaluate(self, user: str) -> str:
        """Evaluate the user's model on the test splits of its tasks; the run id. Kept: the same
        model on the same data is evaluated once. Raises NoComposition."""
        with self._lock:
            work = works.evaluation(self._registry, self._base, self.composition(user))
            self._registry.add_run(work, None)
            self._execution.request(work.run_id)
        return work.run_id

    # -- runs and status

    def run(self, run_id: str) -> dict[str, object]:
        """{run_id, kind, task, about, state, step, steps, loss, penalty, attempt, reason, created,
        started, ended}; state is queued | running | done | failed. RunFailed when there is none."""
        with self._lock:
            return report.run(self._registry.run(run_id), self._state)

    def result(self, run_id: str) -> dict[str, object] | None:
        """A finished run's result, None while it is owed. Raises RunFailed with the cause."""
        with self._lock:
            run = self._registry.run(run_id)
            if run.state == "failed":
                raise RunFailed(f"{report.about(run.work)} failed: {run.cause}")
            return self._registry.result(run_id)

    def task(self, name: str) -> dict[str, object]:
        """One task: as in `status`, with submission, shards, and the runs that bear on it. Raises
        UnknownTask."""
        with self._lock:
            task = self._registry.task(name)
            return report.whole_task(self._registry, self._state, task, self._damaged)

    def status(self) -> dict[str, object]:
        """{base, tasks: [{name, owner, state: queued | training | ready | failed, run_id, step,
        steps, loss, penalty, attempt, version, accuracy_before, accuracy_after, metrics, refresh
        (state of one that is owed or failed), rows, samples, classes, options, reason, created,
        started, ended ...}], work: [what is owed or failed and is no training, as `run`], room (as
        `cluster`), trouble: str or None}."""
        with self._lock:
            found = report.status(self._registry, self._state, self._damaged)
        return {"base": self._base.model_dump(), **found, "trouble": self._execution.trouble}

    def logs(self, task: str) -> list[dict[str, object]]:
        """What happened to a task, oldest first: {at, kind, task, run_id, text}. UnknownTask."""
        with self._lock:
            self._registry.task(task)
            return self._registry.events(task)

    def cluster(self) -> dict[str, object]:
        """{nodes: [{cpus, gpus}], cpus, free_cpus, gpus, free_gpus}."""
        with self._lock:
            return report.room(self._state)

    # -- looking after what runs

    def tick(self) -> None:
        """Take in what ended and what the cluster has now, and carry out what is due.

        What cannot be done now, as when the disk is full, is said in `status` and tried again.
        """
        self._execution.tick()

    def close(self) -> None:
        """Stop what runs, as the end of this process would; it stays owed."""
        with self._lock:
            self._execution.close()
            self._registry.close()

    # -- inside

    def _arrived(self, shard: Shard, submission: Submission) -> None:
        self._shards[shard.task] = shard
        digest = shard.blob.digest
        event = SamplesArrived(shard.task, shard.ordinal, submission.options, digest)
        self._execution.happened(event)

    def _task_state(self, task: Task) -> str:
        return report.task_state(self._registry, self._state, task)

    @property
    def _state(self) -> State:
        return self._execution.state
