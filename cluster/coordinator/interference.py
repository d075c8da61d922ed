"""Interference as it is reported: the matrix of some tasks, and the loudest pairs of all tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial

from cluster.coordinator.views import PlanView
from cluster.domain import reports
from cluster.domain.base import PAGE
from cluster.domain.tasks import Shard
from cluster.registry import Found
from cluster.scheduler.loudest import loudest, share_of
from cluster.scheduler.state import State
from cluster.scheduler.upkeep import shares
from tacl.evaluation.interference import HIGH_CHANGE, Matrix, MeanSize
from tacl.evaluation.interference import report as findings

REPORTED = 24  # at most: tasks in one matrix, and loudest pairs of all tasks


def interference(view: PlanView, shards: Mapping[str, Shard]) -> reports.InterferenceReport:
    """The matrix of the champions on these shards, in order of arrival, and the loudest pairs of
    all tasks that the requester sees."""
    registry, state = view.registry, view.state
    arrival = sorted(shards.values(), key=lambda shard: shard.ordinal)
    on = [shard.task for shard in arrival]
    champions = registry.champions_with_norms(on)
    names = [name for name in on if name in champions]
    current = {name: (shard.blob.digest, shard.head) for name, shard in shards.items()}
    pairs = {
        (name, one.on): one
        for name, row in registry.champion_effects(on)
        for one in row
        if current.get(one.on) == (one.shard_digest, one.head)
    }
    matrix, logits = _matrices(pairs)
    near = state.near  # pairs of the same kind of data are never measured
    wanted = [
        (s, t) for s in names for t in on if s == t or (shares(state, t) and (s, t) not in near)
    ]
    norms = {name: norm for name in names if (norm := champions[name].norm) is not None}
    errors = {pair: one.standard_error for pair, one in pairs.items()}
    loud, found = loudest(state, view.visibility.sees, REPORTED), findings(logits, norms)
    return reports.InterferenceReport(
        vectors=tuple(champions[name] for name in names),
        on=tuple(on),
        raw=_table(matrix.raw, names, on),
        standard_error=_table(lambda s, t: errors.get((s, t)), names, on),
        relative=_table(partial(_relative, matrix), names, on),
        logits=_table(partial(_relative, logits), names, on),
        high=HIGH_CHANGE,
        missing=sum(pair not in pairs for pair in wanted),
        findings=tuple(reports.InterferenceFinding(**asdict(one)) for one in found),
        loudest=tuple(_pair(state, s, t) for _, s, t in loud),
    )


def _matrices(pairs: Mapping[tuple[str, str], Found]) -> tuple[Matrix, Matrix]:
    """The matrix of tau_jp, and that of the changes of logits."""
    sizes = {k: MeanSize(pair.tau_jp, pair.standard_error, pair.rows) for k, pair in pairs.items()}
    changes = {
        k: MeanSize(pair.logits, pair.logits_error, pair.rows)
        for k, pair in pairs.items()
        if pair.logits is not None and pair.logits_error is not None
    }
    return Matrix(sizes), Matrix(changes)


def _table(
    of: Callable[[str, str], float | None], names: Sequence[str], on: Sequence[str]
) -> reports.Table:
    return tuple(tuple(of(s, t) for t in on) for s in names)


def _relative(matrix: Matrix, vector: str, on: str) -> float | None:
    ratio = matrix.relative(vector, on)
    return ratio and ratio.value


def of_task(view: PlanView, task: str) -> reports.TaskInterference:
    """A task's row and column of the matrix, as far as the requester sees the other tasks."""
    state, sees = view.state, view.visibility.sees
    does = [(task, on) for on in state.rows.get(task, {}) if on != task and sees(on)]
    bears = [(one, task) for one in state.columns.get(task, ()) if one != task and sees(one)]
    return reports.TaskInterference(
        task=task,
        high=HIGH_CHANGE,
        does=_first(state, does),
        bears=_first(state, bears),
        measured=(len(does), len(bears)),
    )


def _first(state: State, pairs: Iterable[tuple[str, str]]) -> tuple[reports.MeasuredPair, ...]:
    """The first PAGE pairs, those that change most answers first."""
    found = sorted(pairs, key=lambda pair: (-(share_of(state, *pair) or 0.0), pair))
    return tuple(_pair(state, *pair) for pair in found[:PAGE])


def _pair(state: State, task: str, on: str) -> reports.MeasuredPair:
    effect, own = state.rows[task][on], state.rows.get(on, {}).get(on)
    return reports.MeasuredPair(
        vector=task,
        version=state.champions[task].version,
        on=on,
        raw=effect.tau_jp,
        relative=effect.tau_jp / own.tau_jp if own and own.tau_jp else None,
        logits=share_of(state, task, on),
    )
