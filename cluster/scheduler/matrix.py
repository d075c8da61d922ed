"""The matrix of what vectors do to inputs: a row for each champion, with what was measured on the
present samples and heads.

Indexes beside it save reading every pair: whose rows have a task (`columns`), what decides which
row is measured next (`marks`), and a bound on the shares of every row (`loudest`).
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.domain.tasks import GENERIC
from cluster.scheduler.loudest import bound, forget, heard
from cluster.scheduler.state import Effect, Mark, State


def put_row(state: State, task: str, row: dict[str, Effect]) -> None:
    """Set the row of a new champion."""
    drop_row(state, task)
    _place(state, task, row)
    bound(state, task)
    if task in row:
        heard(state, task, task)


def restore(state: State, rows: Mapping[str, dict[str, Effect]]) -> None:
    """Set all rows at once, in a state that has none; afterwards no event has to read many."""
    for task, row in rows.items():
        _place(state, task, row)
    for task in rows:
        bound(state, task)
        mark(state, task)


def put(state: State, task: str, on: str, effect: Effect) -> None:
    """Set the effect of a pair that was measured."""
    state.rows[task][on] = effect
    state.columns.setdefault(on, set()).add(task)
    state.marks.pop(task, None)
    heard(state, task, on)


def drop_row(state: State, task: str) -> None:
    for on in state.rows.pop(task, ()):
        state.columns[on].discard(task)
    state.marks.pop(task, None)
    forget(state, task)


def drop_column(state: State, on: str) -> None:
    """Drop what was measured on a task: its samples changed, it has its first head, or it left."""
    for task in state.columns.pop(on, ()):
        del state.rows[task][on]
        state.marks.pop(task, None)


def mark(state: State, task: str) -> Mark:
    """The mark of a row, recomputed on first use after a change."""
    if task not in state.marks:
        row, own = state.rows[task], state.rows[task].get(task)
        others = [(on, effect) for on, effect in row.items() if on not in (task, GENERIC)]
        most = max((effect.tau_jp for _, effect in others), default=0.0)
        newest = max((state.tasks[on].ordinal for on, _ in others), default=0)
        state.marks[task] = Mark(most / own.tau_jp if own and own.tau_jp else 0.0, newest)
    return state.marks[task]


def _place(state: State, task: str, row: dict[str, Effect]) -> None:
    state.rows[task] = row
    for on in row:
        state.columns.setdefault(on, set()).add(task)
