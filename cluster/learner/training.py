"""One training run, from digests to a vector, as every rank does it. Does not import Ray.

Only rank 0 talks to the coordinator, evaluates and stores; its answers reach all ranks at the same
step. It requests the steps of some seconds at once, a lease, whose length came with the lease
before. Checkpoints are written between leases. A run that died resumes from its newest checkpoint
with the same numbers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch.distributed as dist

from cluster.coordinator.arrivals import Arrivals
from cluster.domain.base import PAGE, Base
from cluster.domain.outcomes import GivesWay
from cluster.domain.status import Phase
from cluster.domain.tasks import GENERIC, Arrival, Options, Shard, Submission
from cluster.domain.work import Lease, Leave, Progress, Trained, TrainWork
from cluster.learner.artifacts import Materials, asked_device
from cluster.learner.interference import stored_vector
from cluster.learner.progress import Begins, ProgressSink, in_phases
from cluster.learner.tracked_run import TrackedRun
from cluster.learner.tracking import Tracked, tracked
from cluster.storage.checkpoints import Checkpoint, Checkpoints, checkpoints
from cluster.storage.home import Home
from tacl.backbone import Backbone
from tacl.curvature import measure
from tacl.data.batches import Labelled
from tacl.errors import BadConfig
from tacl.evaluation.metrics import accuracy
from tacl.evaluation.nearness import are_near
from tacl.heads.head import Head
from tacl.models.linearized import LinearizedEncoder
from tacl.training.config import TrainConfig, default_config
from tacl.training.loop import Engine, PlainEngine, StepRecord, Store, train
from tacl.training.penalties import other_tasks
from tacl.vectors import Params, TaskVector

CHECKPOINT_SECONDS = 45.0
HELD_SECONDS = 30.0  # for which a place is kept at least, so that an attempt is worth its start
BEFORE = "validation_zero_shot"  # the metric's stored name, also for heads of class means
POINTS = 2_000  # of a published curve: as many as the default has steps
MEASURED = 8  # other tasks on whose probes a new vector is measured at once
T = TypeVar("T")


class LeaseClient(ProgressSink, Protocol):
    """The part of the coordinator that says which shards the next steps see; see `RunAPI.lease`."""

    def __call__(self, asked: Lease) -> Leave: ...

    def publish_statistics(self, run_id: str, statistics: str, attempt: int) -> None:
        """Gives these statistics to other tasks' trainings from now on; see `RunAPI`."""
        ...


class Ranks:
    """The processes of one run: those of the process group, or this one alone."""

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1

    def broadcast(self, compute: Callable[[], T]) -> T:
        """Returns what rank 0 computes, on every rank. A failure of rank 0 ends the whole group."""
        if self.size == 1:
            return compute()
        box: list[Any] = [compute() if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]


def train_task(work: TrainWork, home: Home, known: LeaseClient) -> Trained | None:
    """Trains as one rank of a run; rank 0 returns the result, whose blobs are stored by then."""
    started = time.monotonic()
    ranks, submission = Ranks(), work.submission
    begins: Begins = in_phases(work, known) if ranks.rank == 0 else lambda phase: None
    begins(Phase.LOADING)
    materials = Materials(home, work.base, asked_device(submission.options))
    begins(Phase.HEAD)
    data = materials.labelled(submission.train)
    templates = submission.templates
    head = ranks.broadcast(lambda: materials.head_from(submission.classes, lambda: data, templates))
    config = configuration(submission.options, len(data), materials.backbone)
    if submission.options.share == "statistics" and ranks.rank == 0:
        begins(Phase.STATISTICS)
        statistics = measure(materials.backbone, materials.shard_items(submission.shard))
        known.publish_statistics(work.run_id, materials.put(statistics.save), work.attempt)
    begins(Phase.ENGINE)
    module = materials.linearized(config.precision)
    with closing(build_engine(module, config, submission.options, ranks.size)) as engine:
        kept = checkpoints(home, work.run_id)
        run = TrainingState(work, materials, engine, ranks, config, kept)
        begins(Phase.SAMPLES)
        return _trained(run, head, data, known, started)


def _trained(
    run: TrainingState, head: Head, data: Labelled, known: LeaseClient, started: float
) -> Trained | None:
    """Trains from the step reached by earlier attempts to the last; rank 0 measures and stores."""
    engine, materials, config = run.engine, run.materials, run.config
    step = run.resume()
    ready = time.monotonic()
    with tracked(_facts(run, step) if run.ranks.rank == 0 else None) as told:
        train(
            engine,
            materials.backbone,
            head,
            data,
            lambda step: run.stores(step, known),
            config,
            start_step=step,
            on_step=lambda record: run.record(record, told),
        )
        if run.ranks.rank > 0:
            return None
        run.measures(known)
        seconds = {"seconds_ready": ready - started, "seconds_trained": time.monotonic() - ready}
        validation = materials.labelled(run.work.submission.validation)
        found = _result(run, head, validation, seconds, started)
        told.metrics = named(found.metrics, run.work.base)
    return found


def _facts(run: TrainingState, step: int) -> TrackedRun:
    """The facts of a training that a tracker shows."""
    work, submission = run.work, run.work.submission
    about = {"base": work.base.spec, "owner": submission.owner, "rows": submission.train.rows}
    about |= {"classes": len(submission.classes), "workers": run.ranks.size}
    parameters = {**about, **run.config.as_dict()}
    return TrackedRun(work.run_id, submission.name, work.attempt, step, parameters)


def named(metrics: Mapping[str, float], base: Base) -> dict[str, float]:
    """Metrics for a tracker: the accuracy without a vector is named by how the head is made."""
    own = "validation_" + base.untrained.replace("-", "_").replace(" ", "_")
    return {own if name == BEFORE else name: value for name, value in metrics.items()}


def configuration(options: Options, rows: int, backbone: Backbone) -> TrainConfig:
    chosen = TrainConfig.__dataclass_fields__.keys() & Options.model_fields.keys()
    given = options.model_dump(include=chosen - {"seed"})
    return default_config(rows, options.seed, backbone.trainable, backbone.head_kind, **given)


def build_engine(
    module: LinearizedEncoder, config: TrainConfig, options: Options, ranks: int
) -> Engine:
    """The engine of the options; raises BadConfig for several workers without DeepSpeed."""
    if options.engine == "plain":
        if ranks > 1:
            raise BadConfig(f"engine `plain` trains on one worker, not on {ranks}; use deepspeed")
        return PlainEngine(module, config)
    from tacl.training.deepspeed import DeepSpeedEngine  # imported only where it is used

    stage = options.zero_stage if options.zero_stage is not None else (2 if ranks > 1 else 0)
    return DeepSpeedEngine(module, config, stage)


@dataclass
class TrainingState:
    """The state of a run on one rank: the shards it has seen, its curves, its checkpoints."""

    work: TrainWork
    materials: Materials
    engine: Engine
    ranks: Ranks
    config: TrainConfig
    checkpoints: Checkpoints
    curves: dict[str, list[float]] = field(
        default_factory=lambda: {"step": [], "loss": [], "penalty": []}
    )
    shards: Sequence[Shard] = ()
    _arrivals: Arrivals = field(default_factory=Arrivals)
    _leased: range = range(0)  # the steps of its present lease
    _hears_more: bool = False  # whether its next lease will most likely bring more arrivals
    _seconds: float = 0.0  # length of its next lease
    _asked_at: float = field(default_factory=time.monotonic)
    _progress: Progress | None = None
    _stores: dict[str, Store] = field(default_factory=dict)  # by digest
    _near: dict[str, bool] = field(default_factory=dict)  # digest -> whether it is near
    _seen: list[Store] = field(default_factory=list)  # by the latest step
    _start: int = 0
    _made_at: float = field(default_factory=time.monotonic)
    _saved_at: float = field(default_factory=time.monotonic)

    def resume(self) -> int:
        """Loads the newest checkpoint, if any; returns the step to continue with."""
        with self._newest() as kept:
            if kept is not None:
                self._start, folder = kept
                self.engine.load(folder)
                self.curves = json.loads((folder / "curves.json").read_text())
                if (near := folder / "near.json").exists():  # not in those of an earlier version
                    self._near = json.loads(near.read_text())
        return self._start

    @contextmanager
    def _newest(self) -> Iterator[Checkpoint | None]:
        """Yields, on every rank, the newest checkpoint that rank 0 finds."""
        with self.checkpoints.newest() if self.ranks.rank == 0 else nullcontext() as kept:
            step = self.ranks.broadcast(lambda: kept and kept.step)
            if kept is not None or step is None:
                yield kept
                return
            with self.checkpoints.opened(step) as folder:
                yield Checkpoint(step, folder)

    def stores(self, step: int, known: LeaseClient) -> list[Store]:
        """The stores that optimizer step `step` uses, from the leases that rank 0 requests."""
        if step not in self._leased:
            self._ask(step, known)
        if (shards := self._arrivals.at(step)) is not self.shards:
            self.shards = shards
            there = {shard.blob.digest for shard in shards}  # others are not read again
            self._stores = {one: store for one, store in self._stores.items() if one in there}
            self._seen = [self._store(shard) for shard in shards if not self.is_near(shard)]
        return self._seen

    def _ask(self, step: int, known: LeaseClient) -> None:
        """Requests a lease of the steps from this one on, and writes a checkpoint if one is due."""

        def ask() -> tuple[range, Sequence[Arrival], bool, bool]:
            done, now = len(self._leased), time.monotonic()
            left, config = self.config.steps - step, self.config
            enough = is_enough(config.penalty, self.shards, left, config.penalty_batch)
            left = 1 if self._hears_more and not enough else left
            steps = leased(done, now - self._asked_at, self._seconds, left)
            last, since = step + steps - 1, self._leased[-1] if done else -1
            asked = Lease(
                run_id=self.work.run_id,
                first=step,
                last=last,
                since=since,
                progress=self._progress,
                attempt=self.work.attempt,
            )
            arrivals, self._seconds, gives_way = page_by_page(known, asked)
            self._hears_more = len(arrivals) >= PAGE
            self._asked_at = time.monotonic()
            gives_way = gives_way and step > self._start and now - self._made_at > HELD_SECONDS
            late = gives_way or now - self._saved_at > CHECKPOINT_SECONDS
            return range(step, last + 1), arrivals, late and step > self._start, gives_way

        self._leased, arrivals, due, gives_way = self.ranks.broadcast(ask)
        self._arrivals.apply(arrivals)
        if due:
            self._checkpoint(step)
        if gives_way:
            self.ranks.broadcast(lambda: None)  # all have saved: the first to raise ends the group
            raise GivesWay

    def record(self, record: StepRecord, told: Tracked) -> None:
        """Records an optimizer step."""
        self.curves["step"].append(record.step)
        self.curves["loss"].append(record.loss)
        self.curves["penalty"].append(record.penalty or 0.0)
        self._progress = Progress(
            step=record.step + 1, steps=record.steps, loss=record.loss, penalty=record.penalty
        )
        told.step(record)

    def measures(self, known: LeaseClient) -> None:
        """Reports, after the last step, that the vector is now measured."""
        done = self._progress or Progress(step=self.config.steps, steps=self.config.steps)
        told = done.model_copy(update={"phase": Phase.MEASURING})
        known.report_progress(self.work.run_id, told, self.work.attempt)

    def is_near(self, shard: Shard) -> bool:
        """Whether its samples are the same kind of data as the run's own: then they do not penalise
        the vector. Decided when it is first seen, and stored in checkpoints."""
        if shard.task == GENERIC or shard.statistics is not None:
            return False
        if (digest := shard.blob.digest) not in self._near:
            self._near[digest] = self.ranks.broadcast(lambda: self._compared(shard))
        return self._near[digest]

    def _compared(self, shard: Shard) -> bool:
        blobs = self.work.submission.shard, shard.blob
        own_ND, other_ND = (self.materials.probe_features(blob) for blob in blobs)
        return are_near(own_ND, other_ND)

    def _store(self, shard: Shard) -> Store:
        """The store of a shard, made once; a later version of a task's shard is another blob."""
        digest = shard.blob.digest
        if digest not in self._stores and shard.statistics is not None:
            self._stores[digest] = self.materials.statistics_store(shard.task, shard.statistics)
        if digest not in self._stores:
            norm = self.ranks.broadcast(lambda: self.materials.feature_norm(shard.blob))
            self._stores[digest] = self.materials.store(shard, norm)
        return self._stores[digest]

    def _checkpoint(self, step: int) -> None:
        is_first = self.ranks.rank == 0
        with self.checkpoints.writing(step) if is_first else nullcontext(Path()) as folder:
            self.engine.save(folder)  # rank 0 writes
            if is_first:
                (folder / "curves.json").write_text(json.dumps(self.curves))
                (folder / "near.json").write_text(json.dumps(self._near))
        self._saved_at = time.monotonic()


def leased(done: int, took: float, seconds: float, left: int) -> int:
    """The number of steps of the next lease, which is to take `seconds`, given that `done` steps
    `took` that many seconds: at least 1, and at most `left`."""
    return min(left, max(1, int(seconds * done / max(took, 1e-9))))


def is_enough(penalty: str, known: Sequence[object], left: int, rows: int) -> bool:
    """Whether the `left` steps cannot use more tasks than `known`: in a home of thousands, a run
    receives the others one page per lease."""
    if penalty == "curvature":
        return False  # it uses the statistics of all
    return len(known) >= left * len(other_tasks(penalty, 0, known, rows))


def page_by_page(known: Callable[[Lease], Leave], asked: Lease) -> Leave:
    """The answer to a lease with all of its arrivals, requested page by page."""
    leave = known(asked)
    arrivals = list(leave.arrivals)
    while len(leave.arrivals) >= PAGE:
        rest = {"since": max(one.changed for one in leave.arrivals), "progress": None}
        leave = known(asked.model_copy(update=rest))
        arrivals += leave.arrivals
    return leave._replace(arrivals=tuple(arrivals))


def _result(
    run: TrainingState, head: Head, validation: Labelled, seconds: dict[str, float], started: float
) -> Trained:
    """Measures and stores the vector: measured as stored, in float32 whatever it was trained in."""
    materials, submission = run.materials, run.work.submission
    trained = run.engine.module.tau_dict()
    whole = TaskVector.of_params(submission.name, run.work.base.digest, "linearized", trained)
    vector = whole.stored(submission.options.keep_as)
    near = tuple(shard.task for shard in run.shards if run.is_near(shard))
    met = [shard for shard in run.shards if shard.statistics is None and shard.task not in near]
    found = validated(materials, vector.to_params(), head, validation) | seconds
    found |= {"rows_cut": materials.cut(submission.train), "workers": run.ranks.size}
    return Trained(
        # Only the newest of the others: the plan has more measured later.
        **stored_with_head(materials, submission, vector, head, met[-MEASURED:]),
        config=run.config.as_dict(),
        metrics=found | {"seconds": time.monotonic() - started},
        curves=thinned(run.curves),
        near=near,
    )


def thinned(curves: dict[str, list[float]]) -> dict[str, list[float]]:
    """At most POINTS of the steps, evenly spaced, with the first and the last: to send what a
    million steps recorded would keep everybody else at a server waiting."""
    last = len(curves["step"]) - 1
    if last < POINTS:
        return curves
    places = [number * last // (POINTS - 1) for number in range(POINTS)]
    return {name: [values[place] for place in places] for name, values in curves.items()}


def stored_with_head(
    materials: Materials,
    submission: Submission,
    vector: TaskVector,
    head: Head,
    others: Sequence[Shard] = (),
) -> dict[str, Any]:
    """Fields of `stored_vector` for a new task's vector, on its own probe and those of others, and
    the blob of its head."""
    blob = materials.put_tensors(head.to_params())
    own = Shard(task=submission.name, ordinal=0, blob=submission.shard, head=blob)
    return {"head_blob": blob, **stored_vector(materials, vector, (*others, own))}


def validated(
    materials: Materials, tau: Params, head: Head, validation: Labelled
) -> dict[str, float]:
    """Validation accuracy without the vector and with it, by one dual pass."""
    cached = materials.tangents(validation.items, {"tau": tau})
    before, after = cached.linearized({}), cached.linearized({"tau": 1.0})
    return {
        BEFORE: accuracy(head.logits(before), validation.labels),
        "validation_accuracy": accuracy(head.logits(after), validation.labels),
        "validation_rows": len(validation),
    }
