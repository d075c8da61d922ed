"""Writes the result of a run into the registry, and returns the event that tells the plan of it."""

from __future__ import annotations

from cluster.coordinator.acceptance import row_of, values_of
from cluster.coordinator.arrivals import still_there
from cluster.domain.tasks import CHAMPION
from cluster.domain.work import Composed, Measured, Refreshed, Result, Trained
from cluster.registry import Registry
from cluster.scheduler import state as facts
from cluster.scheduler.budget import granted


def recorded(
    registry: Registry, state: facts.State, run_id: str, result: Result, written: str
) -> facts.Event:
    """Record a result in one transaction; it can be repeated. `written`: the result as JSON."""
    if isinstance(result, Trained) or (isinstance(result, Refreshed) and result.accepted):
        return _published(registry, state, run_id, result)
    if isinstance(result, Composed):
        registry.composed(run_id, result)
        return facts.Ended(run_id)
    registry.finish(run_id, result, written)
    if isinstance(result, Measured):
        return facts.CellsMeasured(run_id, values_of(result))
    return facts.Ended(run_id)


def _published(
    registry: Registry, state: facts.State, run_id: str, result: Trained | Refreshed
) -> facts.Published:
    """Publish a version of a vector."""
    near: tuple[str, ...] = ()
    if isinstance(result, Trained) and result.near:
        near = still_there(result.near, registry.arrivals(run_id), state.tasks)
        result = result.model_copy(update={"near": near})
    reference = registry.publish(run_id, result, _grant(state, run_id))
    task, seen = reference.task, registry.seen(run_id)
    champion = registry.aliases(task)[CHAMPION] == reference.version
    vector = facts.VectorVersion(reference.version, reference.digest, seen)
    return facts.Published(
        run_id, task, vector, row_of(result.pairs), reference.head_blob, champion, near
    )


def _grant(state: facts.State, run_id: str) -> int:
    """What a task's arrival adds to the balance: with its first vector, and nothing later."""
    task = state.tasks.get(state.runs[run_id].task or "")
    if task is None or task.head:
        return 0
    return granted(state.balance, task.allowance) - state.balance
