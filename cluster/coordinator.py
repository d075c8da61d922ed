"""The coordinator: the one process that decides, and the only one that writes the registry.

Decisions are made in `plan`; this is the shell that carries them out. The order is always: blobs
lie in the store, then one transaction of the registry, then the event to the plan, then its
instructions. The constructor is the recovery: it reads the registry and issues the work still owed.

Every method is idempotent by the id it is given, so a caller repeats it after a lost answer.
Arguments and answers are messages or JSON-able dicts. Errors are those of `tacl.errors`; through
Ray they arrive as the `cause` of a RayTaskError.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from pathlib import Path
from typing import Any

from cluster import plan, report, works
from cluster.checkpoints import Checkpoints
from cluster.home import Home
from cluster.launcher import Finished, Launcher, Outcome, Raised
from cluster.messages import (
    CHAMPION,
    BlobRef,
    Composition,
    Evaluated,
    MeasureWork,
    Progress,
    Refreshed,
    Result,
    Shard,
    Submission,
    Submitted,
    Trained,
    TrainWork,
    Work,
    identity,
)
from cluster.messages import Measured as MeasuredResult
from cluster.names import checked_name
from cluster.pinning import Pins
from cluster.recovery import cells_of, options_of, restored
from cluster.registry import Registry, Request, Task
from cluster.room import describe, needs_of, placeable, resources
from cluster.samples import Arrivals, grown, known
from cluster.state import (
    Cell,
    Died,
    Ended,
    Event,
    Fail,
    Failed,
    Instruction,
    Measure,
    Measured,
    NodesChanged,
    Published,
    Refresh,
    Requested,
    Requeue,
    SamplesArrived,
    Start,
    Vector,
)
from tacl.compose.terms import Term, parse_recipe
from tacl.errors import (
    ClusterNotRunning,
    CorruptBlob,
    EmptySplit,
    ModalityMismatch,
    NameTaken,
    NoComposition,
    NotPlaceable,
    RunFailed,
    TooFewClasses,
)

RESULTS = {
    "train": Trained,
    "refresh": Refreshed,
    "measure": MeasuredResult,
    "evaluate": Evaluated,
}
LOG = logging.getLogger(__name__)


def require_startable(home: Home) -> None:
    """Before a coordinator is started: what would keep every one from starting is raised here.

    BadConfig for a registry of another version, BaseMismatch for one of another base.
    """
    settings = home.settings()
    if settings is None:
        raise ClusterNotRunning(f"{home.path} is no home of TACL yet; run `tacl up` first")
    registry = Registry(home.registry_url)
    try:
        registry.founded(settings.base, settings.generic)
    finally:
        registry.close()


class Told:
    """What a run that runs was told, and its own task."""

    def __init__(self, work: Work, arrivals: Arrivals) -> None:
        self.attempt = work.attempt
        self.own = work.submission.name if isinstance(work, TrainWork) else ""
        self.arrivals = arrivals


class Coordinator:
    """Carries out what `plan` decides; see the module's docstring.

    Whoever makes one calls `tick` again and again: it looks after what runs.
    """

    def __init__(self, home: str | Path, launcher: Launcher) -> None:
        self._home = Home(Path(home))
        settings = self._home.settings()
        if settings is None:
            raise ClusterNotRunning(f"{home} is no home of TACL yet; run `tacl up` first")
        self._base = settings.base
        self._blobs = self._home.blobs()
        self._launcher = launcher
        self._lock = threading.RLock()  # methods and `tick` come from different threads
        self._handles: dict[str, Any] = {}  # what runs
        self._outcomes: dict[str, Outcome] = {}  # ended, and not in the registry yet
        self._told: dict[str, Told] = {}
        self._due: deque[Instruction] = deque()
        self._trouble: str | None = None
        self._unchecked = True  # whether something happened since the plan was validated
        self._registry = Registry(self._home.registry_url)
        self._registry.founded(settings.base, settings.generic)
        self._shards = {shard.task: shard for shard in self._registry.shards()}
        self._damaged = self._missing_blobs()
        self._pins = Pins(self._registry, self._blobs, self._task_state)
        self._state = restored(self._registry, self._base.digest)
        self._forget_checkpoints()
        self._happened(NodesChanged(launcher.nodes()))

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
            self._require_sound(submission)
            work = works.training(self._base, submission)
            accepted = Submitted(task=submission.name, run_id=work.run_id, state="queued")
            request = Request(submission.request_id, asked, accepted.model_dump_json())
            ordinal = self._registry.accept(submission, work, request)
            shard = Shard(task=submission.name, ordinal=ordinal, blob=submission.shard)
            self._arrived(shard, submission)
            needs = needs_of("train", submission.options)
            self._happened(Requested(work.run_id, "train", submission.name, needs))
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
            told = self._told.get(run_id)
            if told is None or attempt not in (None, told.attempt):
                raise RunFailed(f"attempt {attempt} of run {run_id} is not the one that runs now")
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
                self._request(run_id)
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
            self._request(run_id)
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
            self._request(work.run_id)
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
        return {"base": self._base.model_dump(), **found, "trouble": self._trouble}

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
        try:
            self._poll()
            nodes = self._launcher.nodes()
            with self._lock:
                if nodes != self._state.nodes:
                    self._happened(NodesChanged(nodes))
                for run_id, outcome in list(self._outcomes.items()):
                    self._settle(run_id, outcome)
                self._carry_out()
                if self._unchecked:
                    plan.validate(self._state)
                self._unchecked, self._trouble = False, None
        except Exception as error:
            self._say(error)

    def close(self) -> None:
        """Stop what runs, as the end of this process would; it stays owed."""
        with self._lock:
            for handle in self._handles.values():
                self._launcher.cancel(handle)
            self._handles.clear()
            self._registry.close()

    def _poll(self) -> None:
        """Without the lock: a big vector takes a while to check."""
        with self._lock:
            running = {i: h for i, h in self._handles.items() if i not in self._outcomes}
        for run_id, handle in running.items():
            outcome = self._launcher.poll(handle)
            if isinstance(outcome, Finished):
                outcome = self._checked(self._registry.run(run_id).work, outcome)
            if outcome is not None:
                self._outcomes[run_id] = outcome

    def _checked(self, work: Work, outcome: Finished) -> Outcome:
        """A result is taken only when it is what was asked for and its blobs are whole."""
        result = outcome.result
        if not isinstance(result, RESULTS[work.kind]):
            return Raised(f"a {work.kind} was answered with {type(result).__name__}")
        if isinstance(work, MeasureWork) and set(cells_of(work)) - _values(result).keys():
            return Raised("not every pair was measured")
        if isinstance(result, Refreshed) and result.accepted and result.vector_blob is None:
            return Raised("a refresh was accepted and brought no vector")
        try:
            for digest in _blobs_of(result):
                self._blobs.verify(digest)
        except CorruptBlob as error:
            return Raised(str(error))
        return outcome

    def _settle(self, run_id: str, outcome: Outcome) -> None:
        """Registry first, then the plan; repeated from the start when the registry cannot write."""
        if isinstance(outcome, Finished):
            event = self._recorded(run_id, outcome.result)
        elif isinstance(outcome, Raised):
            LOG.error("run %s failed: %s\n%s", run_id, outcome.cause, outcome.trace)
            event = Failed(run_id, outcome.cause)
        else:
            event = Died(run_id, outcome.cause)
        del self._handles[run_id], self._outcomes[run_id]
        self._told.pop(run_id, None)
        self._happened(event)
        if isinstance(outcome, Finished):
            Checkpoints(self._home.checkpoints / run_id).clear()

    def _recorded(self, run_id: str, result: Result) -> Event:
        if isinstance(result, Trained) or (isinstance(result, Refreshed) and result.accepted):
            reference = self._registry.publish(run_id, result)
            task, seen = reference.task, self._registry.seen(reference)
            row = {(pair.on, pair.shard_digest): pair.tau_jp for pair in result.pairs}
            champion = self._registry.aliases(task)[CHAMPION] == reference.version
            vector = Vector(reference.version, reference.digest, seen)
            return Published(run_id, task, vector, row, champion)
        self._registry.finish(run_id, result)
        if isinstance(result, MeasuredResult):
            return Measured(run_id, _values(result))
        return Ended(run_id)

    # -- carrying out

    def _happened(self, *events: Event) -> None:
        self._unchecked = True
        for event in events:
            self._due.extend(plan.handle(self._state, event))
        try:
            self._carry_out()
        except Exception as error:  # what happened is kept; what follows from it is tried again
            self._say(error)

    def _carry_out(self) -> None:
        while self._due:
            self._do(self._due[0])
            self._due.popleft()

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Start(run_id, needs):
                work = self._registry.start(run_id)
                if isinstance(work, TrainWork):
                    reached = self._registry.run(run_id).reached
                    arrivals = Arrivals(reached, self._registry.arrivals(run_id))
                    self._told[run_id] = Told(work, arrivals)
                self._handles[run_id] = self._launcher.start(work, needs)
            case Measure():
                work = works.measuring(self._registry, self._base, instruction)
                self._registry.add_run(work, None)
            case Refresh():
                work = works.refreshing(self._registry, self._base, instruction)
                self._registry.add_run(work, instruction.task)
            case Requeue(run_id, cause):
                self._registry.requeue(run_id, cause)
            case Fail(run_id, cause):
                self._registry.fail(run_id, cause)

    def _say(self, error: Exception) -> None:
        self._trouble = f"{type(error).__name__}: {error}"
        LOG.exception("what is due is tried again")

    def _request(self, run_id: str) -> None:
        """Let the plan know of a run in the registry; a failed one is queued again."""
        run = self._registry.run(run_id)
        if run.state == "failed":
            self._registry.retry([run_id])
        if run.state != "done":
            needs = needs_of(run.kind, options_of(run.work))
            self._happened(Requested(run_id, run.kind, run.task, needs))

    def _arrived(self, shard: Shard, submission: Submission) -> None:
        self._shards[shard.task] = shard
        digest = shard.blob.digest
        self._happened(SamplesArrived(shard.task, shard.ordinal, submission.options, digest))

    # -- checks

    def _require_sound(self, submission: Submission) -> None:
        name, options = checked_name(submission.name), submission.options
        if name in self._shards:
            raise NameTaken(f"there is a task {name} already; submit under another name")
        if submission.modality != self._base.modality:
            raise ModalityMismatch(
                f"{name} is a task on {submission.modality}s, and the base {self._base.spec} of "
                f"this home reads {self._base.modality}s; use a home with another base"
            )
        if len(set(submission.classes)) < 2:
            raise TooFewClasses(f"{name} has the classes {submission.classes}; two are needed")
        parts = ("train", "validation", "test", "shard")
        blobs: dict[str, BlobRef] = {part: getattr(submission, part) for part in parts}
        for part, blob in blobs.items():
            if blob.rows < 1:
                raise EmptySplit(f"the {part} rows of {name} are empty; give more rows")
            if not self._blobs.exists(blob.digest):
                raise CorruptBlob(
                    f"the {part} rows of {name} are not in the store: there is no blob "
                    f"{blob.digest}. Submit again."
                )
        needs, nodes = needs_of("train", options), self._state.nodes
        if not placeable(nodes, needs):
            raise NotPlaceable(
                f"{name} asks for {resources(needs)}; {describe(nodes)}. Ask for less with "
                "--workers, --cpus-per-worker and --gpus-per-worker, or add nodes"
            )

    def _task_state(self, task: Task) -> str:
        return report.task_state(self._registry, self._state, task)

    def _missing_blobs(self) -> dict[str, str]:
        """What rows point to and is not there, by task."""
        refs = [entry.reference for entry in self._registry.champions()]
        return {
            ref.task: f"the file of vector {ref.task}@v{ref.version} is missing: blob {digest}"
            for ref in refs
            for digest in (ref.blob, ref.head_blob)
            if not self._blobs.exists(digest)
        }

    def _forget_checkpoints(self) -> None:
        """Of runs that ended while nobody was there to delete them."""
        folders = self._home.checkpoints.iterdir() if self._home.checkpoints.is_dir() else ()
        owed = self._state.runs.keys()
        for folder in folders:
            if folder.name not in owed:
                Checkpoints(folder).clear()


def _values(result: Result) -> dict[Cell, float]:
    pairs = getattr(result, "pairs", ())
    return {Cell(p.task, p.vector_digest, p.on, p.shard_digest): p.tau_jp for p in pairs}


def _blobs_of(result: Result) -> list[str]:
    """The digests that a result says are in the store."""
    named = [getattr(result, name, None) for name in ("vector_blob", "head_blob")]
    return [digest for digest in named if digest is not None]
