"""Fakes for what is slow or remote, small enough to verify by reading.

A `Scene` is a home with a coordinator whose work is done by hand: `finish(task)` ends a run as a
learner would.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cluster.coordinator.arrivals import Arrivals
from cluster.coordinator.core import Coordinator
from cluster.domain.base import Base, BlobRef, RequestContext
from cluster.domain.compositions import (
    Fitted,
    FittedHead,
    JudgedTask,
    MeasuredAgain,
    Merged,
    Report,
    Target,
)
from cluster.domain.explanations import parts_of
from cluster.domain.methods import TARGET, answering
from cluster.domain.outcomes import Finished, Gone, Outcome, Raised
from cluster.domain.reports import VectorStatus
from cluster.domain.status import ClusterStatus, TaskStatus
from cluster.domain.status_sync import StatusSync
from cluster.domain.tasks import Options, Pair, Shard, Submission, VectorRef
from cluster.domain.work import (
    ClassReport,
    Composed,
    ComposeWork,
    Evaluated,
    EvaluateWork,
    FitWork,
    Lease,
    Measured,
    MeasureWork,
    Progress,
    Refreshed,
    RefreshWork,
    Result,
    TaskAccuracy,
    Trained,
    TrainWork,
    Work,
)
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.state import Needs, Node
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home, Settings, write
from cluster.storage.listed import listed_tasks
from cluster.storage.samples import store_rows, store_shard
from tacl.compose.terms import MERGES

BASE = Base(spec="fake:encoder", digest="ba5e", modality="text", head_kind="text")

ADMIN = RequestContext()  # may request and see everything

Tau = Callable[[str, str], float]  # (vector's task, probe's task) -> tau_jp


def asks(request_id: str, user: str | None = None) -> RequestContext:
    """A request that may be repeated under its id."""
    return RequestContext(user=user, request_id=request_id)


def versions(coordinator: Coordinator, task: str | None = None) -> list[VectorStatus]:
    """Every version of every vector, or of one task's, page by page."""
    found: list[VectorStatus] = []
    while page := coordinator.vectors(ADMIN, task, found[-1].name if found else ""):
        found += page
    return found


def calm(task: str, on: str) -> float:
    """Vectors that hardly change each other's inputs."""
    return 1.0 if task == on else 0.01


def new_home(path: Path, base: Base = BASE, registry: str | None = None) -> Home:
    """A home as the first `tacl up` leaves it; `registry` is a URL, None for its own SQLite."""
    home = Home(path)
    home.close_to_others()
    generic = store_shard(Blobs(path / "blobs"), ["a", "b"], [False, True])
    blobs = str(path / "blobs")
    write(home.settings_file, Settings(base=base, generic=generic, blobs=blobs, registry=registry))
    return home


def shard_blob(home: Home, name: str, rows: int = 4) -> BlobRef:
    texts = [f"{name} {row}" for row in range(rows)]
    return store_shard(home.blobs(), texts, [row == 0 for row in range(rows)])


def submission(home: Home, name: str, **changes: Any) -> Submission:
    """A valid submission; options by their names, all other changes by the submission's. By default
    its head stays as trained."""
    options: dict[str, Any] = {"heads": "trained"}
    options |= {key: changes.pop(key) for key in list(changes) if key in Options.model_fields}
    data = store_rows(home.blobs(), [f"{name} one", f"{name} two"], [0, 1])
    found = Submission(
        request_id=f"submit {name}",
        name=name,
        owner="tester",
        modality="text",
        classes=("yes", "no"),
        train=data,
        validation=data,
        test=data,
        shard=shard_blob(home, name),
        options=Options(**options),
    )
    return found.model_copy(update=changes)


@dataclass
class FakeProcess:
    work: Work
    needs: Needs
    outcome: Outcome | None = None
    cancelled: bool = False
    let_go: bool = False  # as far as this coordinator knows, it may do other work


@dataclass
class FakeLauncher:
    """Starts nothing; a test sets the outcome of each process. `cancelled`: it has ended."""

    room: tuple[Node, ...] = (Node(2),)
    left: tuple[Node, ...] = ()  # what is free on each of several nodes
    processes: list[FakeProcess] = field(default_factory=list)

    def nodes(self) -> tuple[Node, ...]:
        return self.room

    def free(self) -> tuple[Node, ...]:
        return self.left

    def start(self, work: Work, needs: Needs) -> FakeProcess:
        there = (one for one in self._there() if attempt_of(one) == (work.run_id, work.attempt))
        if (process := next(there, None)) is None:
            process = FakeProcess(work, needs)
            self.processes.append(process)
        return process

    def learners(self) -> list[Attempt]:
        return [attempt_of(process) for process in self._there()]

    def end(self, attempt: Attempt) -> None:
        for process in self._there():
            if attempt_of(process) == attempt:
                process.cancelled = True

    def ended(self, handles: Mapping[str, FakeProcess]) -> Collection[str]:
        return handles

    def poll(self, handle: FakeProcess) -> Outcome | None:
        return handle.outcome

    def let_go(self, handle: FakeProcess) -> None:
        handle.cancelled = handle.let_go = True

    def cancel(self, handle: FakeProcess) -> None:
        handle.cancelled = True

    def running(self) -> list[FakeProcess]:
        return [process for process in self._there() if process.outcome is None]

    def _there(self) -> list[FakeProcess]:
        return [process for process in self.processes if not process.cancelled]


def attempt_of(process: FakeProcess) -> Attempt:
    return Attempt(process.work.run_id, process.work.attempt)


class Scene:
    """A home, its coordinator and the work that it started."""

    def __init__(
        self, path: Path, *nodes: Node, tau: Tau = calm, registry: str | None = None
    ) -> None:
        self.home = new_home(path, registry=registry)
        self.tau = tau
        self.launcher = FakeLauncher(nodes or (Node(2),))
        self.coordinator = Coordinator(path, self.launcher)

    def restart(self, outlived: bool = False) -> None:
        """Replace the coordinator as after SIGKILL, without a message to anybody. The processes of
        learners die too, unless they `outlived` the coordinator's."""
        for process in self.launcher.processes:
            process.cancelled |= not outlived
        self.coordinator = Coordinator(self.home.path, self.launcher)

    def submit(self, name: str, **changes: Any) -> None:
        self.coordinator.submit(ADMIN, submission(self.home, name, **changes))

    def running(self) -> list[Work]:
        return [process.work for process in self.launcher.running()]

    def arrive(self, name: str, **changes: Any) -> None:
        """Submit a task and finish its training, but none of the work that follows."""
        self.submit(name, **changes)
        self.finish("train", name)

    def process(self, kind: str, task: str | None = None) -> FakeProcess:
        """The process that now runs work of this kind (and task)."""
        found = [
            process
            for process in self.launcher.running()
            if process.work.kind == kind and task in (None, task_of(process.work))
        ]
        assert len(found) == 1, [(p.work.kind, task_of(p.work)) for p in self.launcher.running()]
        return found[0]

    def end(self, outcome: Outcome, kind: str, task: str | None = None) -> None:
        self.process(kind, task).outcome = outcome
        self.coordinator.tick()

    def finish(self, kind: str, task: str | None = None) -> None:
        """End the work successfully."""
        self.finish_process(self.process(kind, task))

    def finish_process(self, process: FakeProcess) -> None:
        work = process.work
        told = self.known(work.run_id, 0) if work.kind == "train" else ()
        process.outcome = Finished(result_of(work, self.home.blobs(), self.tau, told))
        self.coordinator.tick()

    def settle(self) -> None:
        """Finish all work, and what follows from it."""
        self.coordinator.tick()  # a fit starts with one
        while running := self.launcher.running():
            self.finish_process(running[0])

    def die(self, kind: str, task: str | None = None, cause: str = "killed") -> None:
        self.end(Gone(cause), kind, task)

    def fail(self, kind: str, task: str | None = None, cause: str = "ValueError: no") -> None:
        self.end(Raised(cause), kind, task)

    def known(
        self, run_id: str, step: int, progress: Progress | None = None, attempt: int | None = None
    ) -> tuple[Shard, ...]:
        """The shards that a lease of this step alone lists, for a run that had none before."""
        asked = Lease(run_id=run_id, first=step, last=step, progress=progress, attempt=attempt)
        leave = self.coordinator.lease(asked)
        return Arrivals(log=leave.arrivals).at(step)

    def task(self, name: str) -> TaskStatus:
        """The task's line of the status."""
        return next(task for task in self.status().tasks if task.name == name)

    def ready(self) -> list[str]:
        """The tasks that have a vector."""
        return [task.name for task in self.status().tasks if task.version]

    def status(self) -> ClusterStatus:
        """The whole status, in however many parts it comes."""
        return StatusSync().all(partial(self.coordinator.status, ADMIN))

    def trained(self, *names: str, **options: Any) -> Scene:
        """Submit these tasks; each is published and measured before the next."""
        for name in names:
            self.submit(name, **options)
            self.settle()
        return self


def task_of(work: Work) -> str | None:
    if isinstance(work, TrainWork):
        return work.submission.name
    return work.vector.task if isinstance(work, RefreshWork) else None


# -- the results of a learner


def result_of(work: Work, blobs: Blobs, tau: Tau, told: Iterable[Shard] = ()) -> Result:
    """A result of the right form; its vector's bytes depend only on the work and what it saw."""
    if isinstance(work, TrainWork):
        return trained(work, blobs, tau, list(told))
    if isinstance(work, RefreshWork):
        return refreshed(work, blobs, tau)
    if isinstance(work, MeasureWork):
        return Measured(pairs=tuple(pair(vector, shard, tau) for vector, shard in work.pairs))
    if isinstance(work, FitWork):
        return fitted([task.vector for task in listed_tasks(blobs, work.listed)], blobs)
    return made(work, blobs) if isinstance(work, ComposeWork) else evaluated(work)


def fitted(vectors: Sequence[VectorRef], blobs: Blobs, under: str = "") -> Fitted:
    """Fitted heads; bytes depend on the task, on the tasks fitted with it and on `under`."""
    names = [vector.task for vector in vectors]
    heads = [
        FittedHead(
            task=vector.task,
            vector=vector.digest,
            head=blobs.put(f"head of {vector.task} beside {names}{under}".encode()),
            frozen=blobs.put(f"head of {vector.task} on the base beside {names}{under}".encode()),
            accuracy=0.9,
            frozen_accuracy=0.8,
        )
        for vector in vectors
    ]
    novelty = blobs.put(f"none of {names}{under}".encode())
    return Fitted(heads=tuple(heads), novelty=novelty, metrics={"known": 0.9, "frozen_known": 0.8})


def loud(task: str, on: str) -> float:
    """Vectors that change every other task's inputs half as much as their own."""
    return 1.0 if task == on else 0.5


def trained(work: TrainWork, blobs: Blobs, tau: Tau, seen: list[Shard]) -> Trained:
    name = work.submission.name
    head = blobs.put(f"head of {name}".encode())
    own = Shard(task=name, ordinal=0, blob=work.submission.shard, head=head)
    blob = blobs.put(json.dumps([name, [shard.blob.digest for shard in seen]]).encode())
    ref = VectorRef(task=name, version=0, digest=blob, blob=blob, head_blob="", run_id="")
    return Trained(
        vector_digest=blob,
        vector_blob=blob,
        head_blob=head,
        config={"steps": 3},
        metrics={"validation_zero_shot": 0.5, "validation_accuracy": 0.9},
        curves={"loss": [1.0, 0.5]},
        norm=2.0,
        pairs=tuple(pair(ref, shard, tau) for shard in [*seen, own] if not shard.statistics),
    )


def refreshed(work: RefreshWork, blobs: Blobs, tau: Tau, accepted: bool = True) -> Refreshed:
    blob = blobs.put(f"{work.vector.digest} refreshed by {work.run_id}".encode())
    ref = work.vector.model_copy(update={"version": 0, "digest": blob, "blob": blob})
    shards = (work.own, *work.others) if accepted else ()
    return Refreshed(
        accepted=accepted,
        reason="less interference" if accepted else "its own inputs suffered",
        vector_digest=blob if accepted else None,
        vector_blob=blob if accepted else None,
        config={},
        metrics={"own_change": 0.02},
        curves={},
        norm=2.0,
        pairs=tuple(pair(ref, shard, calm) for shard in shards),
    )


def pair(vector: VectorRef, shard: Shard, tau: Tau) -> Pair:
    return Pair(
        task=vector.task,
        version=vector.version,
        vector_digest=vector.digest,
        on=shard.task,
        shard_digest=shard.blob.digest,
        tau_jp=tau(vector.task, shard.task),
        standard_error=0.001,
        rows=1,
        head=shard.head,
        logits=tau(vector.task, shard.task) if shard.head else None,
        logits_error=0.001 if shard.head else None,
    )


def made(work: ComposeWork, blobs: Blobs) -> Composed:
    """A composition whose coefficients and bytes depend only on the work."""
    making, merged, target = work.making, None, None
    terms = tuple(t.model_copy(update={"by_block": {"a": 0.25, "b": 1.5}}) for t in work.terms)
    if making.method in MERGES:
        blob = blobs.put(f"merged {work.run_id}".encode())
        terms, merged = work.terms, Merged(digest=blob, blob=blob)
    given = making.fit or making.adapt
    if given and given.classes:
        blob = blobs.put(f"head {work.run_id}".encode())
        held_out = making.fit and making.fit.held_out
        target = Target(name=TARGET, classes=given.classes, head_blob=blob, held_out=held_out)
    row = JudgedTask(zero_shot=0.5, before=0.6, after=0.8, rows=2.0)
    names = [TARGET] if target else [task.name for task in work.tasks]
    report = Report(
        accuracies=dict.fromkeys(names, row),
        judged_on="rows held out" if target else "validation rows",
        tau_jp=tuple(
            MeasuredAgain(vector=t.vector.task, on=s.task, tau_jp=1, standard_error=0.1, rows=4)
            for s in work.probes
            for t in work.terms
        ),
        figures={"steps": 3.0},
        seconds=0.1,
    )
    taught = {task.name for task in work.tasks if task.train is not None}
    vectors = [term.vector for term in terms if term.vector.task in taught]
    heads = fitted(vectors, blobs, f" under {work.run_id}") if vectors else None
    return Composed(terms=terms, merged=merged, target=target, fitted=heads, report=report)


def evaluated(work: EvaluateWork) -> Evaluated:
    here = 0.86 if work.materialized else None
    row = TaskAccuracy(zero_shot=0.5, individual=0.9, composed=0.88, materialized=here, rows=2.0)
    classes = ClassReport(
        classes=("no", "yes"), accuracy=(1.0, 0.5), f1=(0.8, 0.667), confusion=((2, 0), (1, 1))
    )
    return Evaluated(
        per_task={task.name: row for task in work.tasks},
        by_class={task.name: classes for task in work.tasks},
        without=_left_out(work) if work.without else {},
        absolute=0.88,
        normalized=0.97,
        class_incremental=0.7,
        frozen_known=0.8,
        frozen_unknown=0.6,
        unjudged=tuple({*answering(work.composition)} - {task.name for task in work.tasks}),
        seconds=0.1,
    )


def _left_out(work: EvaluateWork) -> dict[str, dict[str, float]]:
    """Without its own vector a task fails; without another it is slightly better."""
    owns = zip(parts_of(work.composition), work.composition.terms, strict=True)
    return {
        part: {task.name: 0.5 if task.name == term.vector.task else 0.9 for task in work.tasks}
        for part, term in owns
    }
