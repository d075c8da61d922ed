"""Which champions change the answers of other tasks most, found without a look at every pair.

For each champion `State.loudest` has a bound: no pair of its row has a larger share. Champions are
looked at from the largest bound on, until the next bound is below what was found: `by_bound` has
them in that order, so that a look costs the same however many there are.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cluster.scheduler.state import State


class LoudPair(NamedTuple):
    """`share`: the change of the answers of `on`, of what its own vector does to them."""

    share: float
    task: str  # whose champion
    on: str  # whose inputs


def loudest(state: State, sees: Callable[[str], bool], most: int) -> list[LoudPair]:
    """Of tasks that are seen the pairs of the largest share, the largest first."""
    found: list[LoudPair] = []
    for bound, task in reversed(state.by_bound):
        if len(found) == most and (bound, task) < found[0][:2]:
            break  # also where many are equally loud: then those of the last names are told
        for pair in shares_of(state, task) if sees(task) else ():
            if sees(pair.on):
                push = heapq.heappush if len(found) < most else heapq.heappushpop
                push(found, pair)
    return sorted(found, reverse=True)


def bound(state: State, task: str) -> None:
    """Anew, of everything that is known of a champion."""
    shares = (share_of(state, task, on) for on in state.rows[task] if on != task)
    forget(state, task)
    _put(state, task, max((share for share in shares if share is not None), default=0.0))


def heard(state: State, task: str, on: str) -> None:
    """A pair was measured. What a champion does to its own inputs, shares of others are of."""
    for one in state.columns[on] if task == on else (task,):
        share = share_of(state, one, on) if one != on else None
        if share is not None and share > state.loudest[one]:
            forget(state, one)
            _put(state, one, share)


def forget(state: State, task: str) -> None:
    """Its champion is another, or gone."""
    if (bound := state.loudest.pop(task, None)) is not None:
        del state.by_bound[bisect_left(state.by_bound, (bound, task))]


def _put(state: State, task: str, bound: float) -> None:
    state.loudest[task] = bound
    insort(state.by_bound, (bound, task))


def shares_of(state: State, task: str) -> Iterator[LoudPair]:
    """Of a champion on the inputs of others, where both were measured."""
    for on in state.rows[task]:
        if on != task and (share := share_of(state, task, on)) is not None:
            yield LoudPair(share, task, on)


def share_of(state: State, task: str, on: str) -> float | None:
    """None unless the answers of `on` were measured under both vectors. NaN is of a vector that
    diverged: earlier versions accepted those."""
    effect, row = state.rows[task].get(on), state.rows.get(on)
    if effect is None or effect.answers is None or row is None:
        return None
    own = row.get(on)
    share = effect.answers / own.answers if own and own.answers else math.nan
    return share if math.isfinite(share) else None
