"""Which running work gives its place to what somebody waits for, without I/O.

- a refresh, a measure or a fit that nobody asked for: to what a person asked for, and to training
- a training on one worker: to what a person waits for (evaluate, export, import, compose); one
  with GPUs only to what needs a GPU too
- a training, or a refresh that was asked for, of a user beyond their minutes of the day: to what
  a user within theirs waits for, except upkeep

A run learns of it when it next reports how far it is; it keeps what it has done, and waits in the
queue again. A run gives way only where its place is enough, and no more runs do than are needed.
After MOST times a run is left alone, except those of users beyond their minutes; with the patience
of the queue, no run waits for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.scheduler.queue import after_release, has_room, in_turn, kept_back
from cluster.scheduler.state import Needs, Node, PlannedRun, State, Urgency

MOST = 2  # times that a run gives way


def mark(state: State) -> None:
    """Mark the runs that are to give way now, and remove marks that are no longer needed."""
    chosen = {run.run_id for run in giving_way(state)}
    for run in state.runs.values():
        run.gives_way = run.run_id in chosen


def giving_way(state: State) -> list[PlannedRun]:
    """Runs whose places let a waiting run start: the first, in the order of the queue, that can."""
    # First those that are marked already, then upkeep, then those that were accepted last.
    running = sorted(state.running, key=lambda r: (not r.gives_way, -r.urgency, -r.number))
    if not any(_could(state, run) for run in running):
        return []
    # Late upkeep takes the place first; then it gives way to whoever waited behind it.
    behind = kept_back(state)
    for waiting in (*in_turn(state), *([behind] if behind else [])):
        able = [run for run in running if gives_way_to(state, run, waiting)]
        if chosen := _fewest(state, waiting.needs, able):
            return chosen
    return []


def _could(state: State, run: PlannedRun) -> bool:
    """Whether the run could give way to anything."""
    return run.urgency != Urgency.AWAITED and (run.gave_way < MOST or run.user in state.over)


def gives_way_to(state: State, run: PlannedRun, waiting: PlannedRun) -> bool:
    """Whether `run` would give way to `waiting`, if its place is enough."""
    if waiting.urgency == Urgency.UPKEEP or not _could(state, run):
        return False
    if run.urgency == Urgency.UPKEEP:
        return run.user is None and run.gave_way < MOST
    if run.user in state.over and waiting.user is not None and waiting.user not in state.over:
        return True
    is_small = run.kind == "train" and run.needs.workers == 1
    is_small = is_small and (run.needs.gpus == 0 or waiting.needs.gpus > 0)
    return waiting.urgency == Urgency.AWAITED and is_small and run.gave_way < MOST


def _fewest(state: State, needs: Needs, able: Sequence[PlannedRun]) -> list[PlannedRun]:
    """As few of these as are enough, in their order; none if all together are not."""
    chosen = list[PlannedRun]()
    for run in able:
        if is_enough(state, needs, chosen):
            break
        chosen.append(run)
    if not is_enough(state, needs, chosen):
        return []
    for run in chosen[::-1]:  # a narrow one may have been chosen before one that is wide enough
        others = [one for one in chosen if one is not run]
        chosen = others if is_enough(state, needs, others) else chosen
    return chosen


def is_enough(state: State, needs: Needs, chosen: Sequence[PlannedRun]) -> bool:
    """Whether a group fits once these runs have gone. If there are several nodes, the place of each
    worker counts as a piece of room of its own: on which node it is, is not known."""
    given = [one.needs for one in chosen]
    if len(state.nodes) > 1:
        pieces = [Node(one.cpus, one.gpus) for one in given for _ in range(one.workers)]
        return has_room(state, needs, given, (*state.free, *pieces) if state.free else ())
    free = tuple(after_release(node, given) for node in state.free)
    return has_room(state, needs, given, free)
