"""Which part of a GPU work with vectors reserves, without I/O.

No option sets it for a measure, a fit, an evaluation or a composition: each gets as much as the
trainings of the vectors that it computes with, the largest of their parts, but at most one GPU,
since it computes on one. A training holds more there than passes that learn nothing, so the
part is enough.

If no node can give that now, beside what serving holds, the work gets a CPU: nothing waits for a
GPU that does not exist. It waits for one in use only if the work there is short or gives way. Where
trainings keep all GPUs, or the CPUs beside them, it is done on a CPU, so that nothing waits behind
it for hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cluster.domain.status import RunKind
from cluster.scheduler.champion_sets import champions
from cluster.scheduler.giving_way import gives_way_to, is_enough
from cluster.scheduler.queue import has_room, placeable
from cluster.scheduler.state import Needs, PlannedRun, State, Urgency

WITH_VECTORS: tuple[RunKind, ...] = ("measure", "fit", "evaluate", "compose")


def allot(state: State) -> None:
    """Set the needs of waiting work with vectors, as things are now."""
    able: dict[tuple[Needs, Urgency, str | None], bool] = {}  # by all that it depends on
    for run in state.queued:
        if run.kind not in WITH_VECTORS:
            continue
        if run.gpus is None:
            run.gpus = _wanted(state, run)
        run.needs = run.needs._replace(gpus=run.gpus)
        key = run.needs, run.urgency, run.user
        if key not in able:
            able[key] = placeable(state.nodes, run.needs) and _comes_soon(state, run)
        if not able[key]:
            run.needs = run.needs._replace(gpus=0)


def unplaceable(state: State) -> Iterator[PlannedRun]:
    """Running work whose part of a GPU no node has any more: if its process had not started yet, it
    would wait for ever."""
    most = max((node.gpus for node in state.nodes), default=0)
    for run in state.running:
        if run.kind in WITH_VECTORS and run.needs.gpus > most:
            yield run


def _wanted(state: State, run: PlannedRun) -> float:
    """The part of a GPU that a run should have. Nothing is known of removed tasks; if all were
    removed, the run keeps what it had."""
    known = (state.tasks[task] for task in _about(state, run) if task in state.tasks)
    parts = (min(1, task.options.gpus_per_worker) for task in known)
    return max(parts, default=run.needs.gpus)


def _about(state: State, run: PlannedRun) -> Iterable[str]:
    """The tasks whose vectors it computes with."""
    if run.kind == "measure":
        return {cell.task for cell in run.cells}
    return champions(state, run.owner) if run.kind == "fit" else run.model


def _comes_soon(state: State, run: PlannedRun) -> bool:
    """Whether its part of a GPU is free once short work, and work that gives way to it, has gone;
    and the CPUs beside it, unless it cannot start without a GPU either. The first is only counted:
    what each node reports as free may lag behind a run that has just ended."""
    if not run.needs.gpus:
        return True
    holding = (one for one in state.running if one.needs.gpus)
    goes = [o for o in holding if o.urgency == Urgency.AWAITED or gives_way_to(state, o, run)]
    given = [one.needs for one in goes]
    if not has_room(state, run.needs._replace(cpus=0), given, ()):
        return False
    starts_without = has_room(state, run.needs._replace(gpus=0), (), state.free)
    return not starts_without or is_enough(state, run.needs, goes)
