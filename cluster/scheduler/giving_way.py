"""Which running work gives its place to what somebody waits for, without I/O.

A refresh, a measure or a fit that nobody asked for gives way to what a person asked for and to
training: it is told when it next says how far it is, keeps what it has done, and waits in the queue
again. So does a training of a user who took their minutes of the day, for one who did not. Nothing
gives way whose place would not be enough, and no more than are needed. After MOST times upkeep is
let alone; with the patience of the queue, none waits for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.domain.status import RunState
from cluster.scheduler.queue import has_room, in_turn
from cluster.scheduler.state import Needs, Node, Run, State, Urgency

MOST = 2  # times that a run gives way


def mark(state: State) -> None:
    """Mark those that are to give way now; a mark that is needed no more is taken back."""
    chosen = {run.run_id for run in giving_way(state)}
    for run in state.runs.values():
        run.gives_way = run.run_id in chosen


def giving_way(state: State) -> list[Run]:
    """Those in whose place the first starts that waits, in the order of the queue, and can."""
    able = _able(state)
    for waiting in in_turn(state) if able else ():
        if waiting.urgency == Urgency.UPKEEP:
            continue
        for_it = [
            run for run in able if run.urgency == Urgency.UPKEEP or _is_within(state, waiting)
        ]
        if chosen := _fewest(state, waiting.needs, for_it):
            return chosen
    return []


def _able(state: State) -> list[Run]:
    """Those that were told before, then upkeep, then those that were accepted last."""
    running = (run for run in state.runs.values() if run.state == RunState.RUNNING)
    able = [run for run in running if _is_spared(run) or _is_over(state, run)]
    return sorted(able, key=lambda run: (not run.gives_way, -run.urgency, -run.number))


def _is_spared(run: Run) -> bool:
    """Upkeep that nobody asked for."""
    return run.urgency == Urgency.UPKEEP and run.user is None and run.gave_way < MOST


def _is_over(state: State, run: Run) -> bool:
    return run.urgency == Urgency.TRAINING and run.user in state.over


def _is_within(state: State, run: Run) -> bool:
    return run.user is not None and run.user not in state.over


def _fewest(state: State, needs: Needs, able: Sequence[Run]) -> list[Run]:
    """As many as are enough, in their order; none where all are not."""
    chosen = list[Run]()
    for run in able:
        if _is_enough(state, needs, chosen):
            break
        chosen.append(run)
    if not _is_enough(state, needs, chosen):
        return []
    for run in chosen[::-1]:  # a narrow one may have been chosen before one that is wide enough
        others = [one for one in chosen if one is not run]
        chosen = others if _is_enough(state, needs, others) else chosen
    return chosen


def _is_enough(state: State, needs: Needs, chosen: Sequence[Run]) -> bool:
    """Where each of several nodes has its own room, the place of a worker is a piece of one: which
    it is nobody knows."""
    given = [one.needs for one in chosen]
    if len(state.nodes) > 1:
        pieces = [Node(one.cpus, one.gpus) for one in given for _ in range(one.workers)]
        return has_room(state, needs, given, (*state.free, *pieces) if state.free else ())
    free = [
        Node(
            node.cpus + sum(one.workers * one.cpus for one in given),
            node.gpus + sum(one.workers * one.gpus for one in given),
        )
        for node in state.free
    ]
    return has_room(state, needs, given, tuple(free))
