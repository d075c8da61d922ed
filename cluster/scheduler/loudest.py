"""Finds the champions that change the answers of other tasks most, without reading every pair.

`State.loudest` has a bound for each champion: no pair of its row has a larger share. Champions are
read from the largest bound on, until the next bound is below what was found. `by_bound` has them in
that order, so the time does not depend on how many there are.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cluster.scheduler.state import State


class LoudPair(NamedTuple):
    """`share`: the change of the answers of `on`, relative to what its own vector does to them."""

    share: float
    task: str  # whose champion
    on: str  # whose inputs


def loudest(state: State, sees: Callable[[str], bool], most: int) -> list[LoudPair]:
    """The `most` pairs with the largest shares, of tasks that are seen, the largest first."""
    found: list[LoudPair] = []
    for bound, task in reversed(state.by_bound):
        if len(found) == most and (bound, task) < found[0][:2]:
            break  # also if many are equally loud: then the last names are returned
        for pair in shares_of(state, task) if sees(task) else ():
            if sees(pair.on):
                push = heapq.heappush if len(found) < most else heapq.heappushpop
                push(found, pair)
    return sorted(found, reverse=True)


def bound(state: State, task: str) -> None:
    """Recompute the bound of a champion from all that is known of it."""
    shares = (share_of(state, task, on) for on in state.rows[task] if on != task)
    forget(state, task)
    _put(state, task, max((share for share in shares if share is not None), default=0.0))


def heard(state: State, task: str, on: str) -> None:
    """Raise bounds after a pair was measured. Shares of other vectors are relative to what a
    champion does to its own inputs."""
    for one in state.columns[on] if task == on else (task,):
        share = share_of(state, one, on) if one != on else None
        if share is not None and share > state.loudest[one]:
            forget(state, one)
            _put(state, one, share)


def forget(state: State, task: str) -> None:
    """Drop the bound of a champion that was replaced or is gone."""
    if (bound := state.loudest.pop(task, None)) is not None:
        del state.by_bound[bisect_left(state.by_bound, (bound, task))]


def _put(state: State, task: str, bound: float) -> None:
    state.loudest[task] = bound
    insort(state.by_bound, (bound, task))


def shares_of(state: State, task: str) -> Iterator[LoudPair]:
    """Pairs of a champion and other tasks whose inputs were measured under both their vectors."""
    for on in state.rows[task]:
        if on != task and (share := share_of(state, task, on)) is not None:
            yield LoudPair(share, task, on)


def share_of(state: State, task: str, on: str) -> float | None:
    """None unless the answers of `on` were measured under both vectors and the share is finite: it
    is not where a vector diverged, which earlier versions accepted."""
    effect, row = state.rows[task].get(on), state.rows.get(on)
    if effect is None or effect.answers is None or row is None:
        return None
    own = row.get(on)
    share = effect.answers / own.answers if own and own.answers else math.nan
    return share if math.isfinite(share) else None
