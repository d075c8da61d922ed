"""The queue and the room: which waiting run starts next, and why the others wait.

What a person waits for (evaluate, export, import, compose) goes before training and a refresh that
somebody asked for, and these before the upkeep of vectors and heads (measure, refresh, fit). But
the first waiting run of each urgency lets at most MAX_BYPASSES runs of the others pass, then the
room is kept for it. So none starves another, and a wide run is not starved by narrow ones. Within
an urgency, users take turns: next is the user who has waited longest for a start, with their first
request; users who took their minutes of the day come last.

Room is counted over all nodes, without what serving holds; each worker must also find room on one
of them, by what the cluster reports as free there. That may lag, and Ray places the workers: so a
group that was started may still wait in Ray for a moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from cluster.domain.status import RunKind, RunState, WaitsFor
from cluster.domain.tasks import Options
from cluster.domain.visibility import ALL, Visibility
from cluster.scheduler.state import ONE_CPU, Needs, Node, PlannedRun, Start, State, Urgency

MAX_BYPASSES = 4  # runs of other urgencies that may pass one that waits
DOING: dict[RunKind, str] = {
    "measure": "measuring interference",
    "fit": "fitting heads",
    "evaluate": "an evaluation",
    "compose": "composing a model",
}


def needs_of(kind: RunKind, options: Options) -> Needs:
    """What a run reserves: a training its group, a refresh one worker, all other work one CPU, and
    the part of a GPU that `gpus` allots."""
    if kind in ("evaluate", "measure"):
        return ONE_CPU
    workers = options.workers if kind == "train" else 1
    return Needs(workers, options.cpus_per_worker, options.gpus_per_worker)


def urgency_of(kind: RunKind, imports: bool = False, user: str | None = None) -> Urgency:
    """`imports`: a training whose vector exists already; `user`: the requester."""
    if kind in ("evaluate", "compose") or imports:
        return Urgency.AWAITED
    is_long = kind == "train" or (kind == "refresh" and user is not None)
    return Urgency.TRAINING if is_long else Urgency.UPKEEP


def placeable(nodes: Iterable[Node], needs: Needs) -> bool:
    """Whether the group fits when no other run does. Every worker must fit on one node."""
    return sum(_workers_on(node, needs) for node in nodes) >= needs.workers


def _workers_on(node: Node, needs: Needs) -> int:
    cpus, gpus = max(0, node.cpus - node.held_cpus), max(0, node.gpus - node.held_gpus)
    by_gpus = int(gpus // needs.gpus) if needs.gpus else needs.workers
    return min(cpus // needs.cpus if needs.cpus else needs.workers, by_gpus)


def free(state: State) -> Node:
    """What neither running runs nor serving hold, over all nodes; below 0 after a node was lost."""
    taken = [run.needs for run in state.running]
    return Node(
        sum(n.cpus - n.held_cpus for n in state.nodes) - sum(n.workers * n.cpus for n in taken),
        sum(n.gpus - n.held_gpus for n in state.nodes) - sum(n.workers * n.gpus for n in taken),
    )


def _fits(state: State, run: PlannedRun) -> bool:
    return has_room(state, run.needs, (), state.free)


def after_release(room: Node, given: Sequence[Needs]) -> Node:
    """The room once these groups have gone."""
    cpus = room.cpus + sum(one.workers * one.cpus for one in given)
    return Node(cpus, room.gpus + sum(one.workers * one.gpus for one in given))


def has_room(
    state: State, needs: Needs, given: Sequence[Needs], nodes_free: tuple[Node, ...]
) -> bool:
    """Whether a group fits once the groups that are `given` have gone. `nodes_free`: what each node
    has left then; () if only counting tells."""
    counted = _is_enough(after_release(free(state), given), needs)
    counted = counted and _in_one_piece(state, needs, given)
    return counted and placeable(state.nodes, needs) and placeable(nodes_free or state.nodes, needs)


def _in_one_piece(state: State, needs: Needs, given: Sequence[Needs] = ()) -> bool:
    """Whether the GPUs that are left can give parts large enough, not only scattered ones: a worker
    with more than half of a GPU has one of its own, shared only with what fits beside it."""
    if not needs.gpus:
        return True

    def closed(groups: Iterable[Needs]) -> float:
        large = (one for one in groups if one.gpus > 0.5 and one.gpus + needs.gpus > 1)
        return sum(one.workers * max(1, one.gpus) for one in large)

    left = sum(n.gpus - n.held_gpus for n in state.nodes) + closed(given)
    left -= closed(run.needs for run in state.running)
    return needs.workers * max(1, needs.gpus) <= left


def _is_enough(room: Node, needs: Needs) -> bool:
    return needs.workers * needs.cpus <= room.cpus and needs.workers * needs.gpus <= room.gpus


def _without(nodes: Iterable[Node], needs: Needs) -> tuple[Node, ...]:
    """What is left if the group is placed node by node; the next report says where it really is."""
    left: list[Node] = []
    workers = needs.workers
    for node in nodes:
        here = min(workers, _workers_on(node, needs))
        workers -= here
        left.append(Node(node.cpus - here * needs.cpus, node.gpus - here * needs.gpus))
    return tuple(left)


def starts(state: State) -> Iterator[Start]:
    while run := next_run(state):
        run.state = RunState.RUNNING
        state.free = _without(state.free, run.needs)
        for other in (one for one in _firsts(state) if one.user not in state.over):
            state.passed[other.urgency] = state.passed.get(other.urgency, 0) + 1
        state.passed[run.urgency] = 0
        state.started += 1
        state.turns[run.urgency, run.user] = 2 * state.started
        yield Start(run.run_id, run.needs)


def forget_passed(state: State) -> None:
    """A run that comes later has let nobody pass: what is counted ends with the last that waits."""
    waiting = {run.urgency for run in _firsts(state)}
    state.passed = {one: count for one, count in state.passed.items() if one in waiting}


def next_run(state: State) -> PlannedRun | None:
    return next((run for run in in_turn(state) if _fits(state, run)), None)


def in_turn(state: State) -> list[PlannedRun]:
    """Waiting runs in the order in which they are tried: the first that fits is started. Late ones
    come first, then those that take nothing that a late one waits for."""
    firsts = _firsts(state)
    late = _late(state, firsts)
    kept = _kept(state, late)
    others = (run for run in firsts if not any(run is one for one in late))
    return [*kept, *(o for o in others if all(_leaves(state, one, o.needs) for one in kept))]


def kept_back(state: State) -> PlannedRun | None:
    """The first run that a person waits for, if only late upkeep is before it."""
    if any(run.urgency != Urgency.UPKEEP for run in in_turn(state)):
        return None
    return next((run for run in _firsts(state) if run.urgency == Urgency.AWAITED), None)


def _kept(state: State, late: Iterable[PlannedRun]) -> list[PlannedRun]:
    """The late runs for which room is kept: not those that would take from another of them."""
    kept = list[PlannedRun]()
    for run in late:
        if all(_leaves(state, one, run.needs) for one in kept):
            kept.append(run)
    return kept


def _leaves(state: State, late: PlannedRun, needs: Needs) -> bool:
    """Whether a run with these needs takes nothing that a late run waits for: the late one lacks
    GPUs, which may take hours, and CPUs are left for it, also on the nodes with GPUs. Nodes that
    can never hold it do not count."""
    room, kept = free(state), late.needs
    has_gpus = kept.workers * kept.gpus <= room.gpus and _in_one_piece(state, kept)
    if needs.gpus or not kept.gpus or has_gpus:
        return False
    by_node = zip(state.free, state.nodes, strict=False)
    others = [one for one, node in by_node if not _workers_on(node, kept)]
    if needs.workers == 1 and placeable(others, needs):  # Ray keeps nodes with GPUs for last
        return True
    if kept.workers * kept.cpus > room.cpus - needs.workers * needs.cpus:
        return False
    left = zip(_without(state.free, needs), state.nodes, strict=False)
    with_gpus = tuple(Node(one.cpus, node.gpus, 0, node.held_gpus) for one, node in left)
    return not with_gpus or placeable(with_gpus, kept)


def _firsts(state: State) -> list[PlannedRun]:
    """The first waiting run of each urgency; a run that no node can hold now is left out."""
    queued = state.queued
    able = {needs for needs in {run.needs for run in queued} if placeable(state.nodes, needs)}
    waiting: dict[Urgency, list[PlannedRun]] = {urgency: [] for urgency in Urgency}
    for run in queued:
        if run.needs in able:
            waiting[run.urgency].append(run)
    return [min(runs, key=partial(_turn, state)) for runs in waiting.values() if runs]


def _turn(state: State, run: PlannedRun) -> tuple[bool, int, int]:
    """The key by which the lowest is next."""
    return run.user in state.over, state.turns.get((run.urgency, run.user), -1), run.number


def in_order(state: State) -> list[PlannedRun]:
    """Waiting runs as they start if there is room for each and nothing else comes."""
    waiting = state.queued
    rounds = Counter[tuple[Urgency, str | None]]()
    keys = dict[str, tuple[Urgency, bool, int, int, int]]()
    for run in sorted(waiting, key=lambda run: run.number):
        over, turn, number = _turn(state, run)
        keys[run.run_id] = run.urgency, over, rounds[run.urgency, run.user], turn, number
        rounds[run.urgency, run.user] += 1
    return sorted(waiting, key=lambda run: keys[run.run_id])


def _late(state: State, firsts: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Those that have let enough others pass; none of a user who took their minutes: it would have
    to give back the room that was kept for it."""
    within = (run for run in firsts if run.user not in state.over)
    return [run for run in within if state.passed.get(run.urgency, 0) >= MAX_BYPASSES]


# -- what people are told


def outlook(state: State) -> State:
    """The state with only those runs on which `waits_for` and `reason` depend: what runs, and the
    first of each urgency. Both say the same with it, and take as long however many wait."""
    runs = {run.run_id: run for run in (*state.running, *_firsts(state))}
    return replace(state, runs=runs)


def waits_for(state: State, run: PlannedRun) -> WaitsFor:
    """What has to change before a queued run starts."""
    if not placeable(state.nodes, run.needs):
        return WaitsFor.NODES
    return WaitsFor.TURN if _fits(state, run) else WaitsFor.ROOM


def reason(state: State, run: PlannedRun, visibility: Visibility = ALL) -> str:
    """Why a queued run waits; a task that is not seen is not named."""
    asked, room, waits = resources(run.needs), free(state), waits_for(state, run)
    if waits == WaitsFor.NODES:
        return f"needs {asked}; {describe(state.nodes)}"
    if waits == WaitsFor.TURN and (ahead := _ahead(state, run)) is not None:
        why = reason(state, ahead, visibility)
        return f"waits for {_name(ahead, visibility)}, whose turn it is: {why}"
    cpus, gpus = sum(node.cpus for node in state.nodes), sum(node.gpus for node in state.nodes)
    found = f"{max(room.cpus, 0)} of {_count(cpus, 'CPU')} free"
    if run.needs.gpus:
        found += f" and {max(room.gpus, 0):g} of {_count(gpus, 'GPU')} free"
        if _is_enough(room, run.needs) and not _in_one_piece(state, run.needs):
            found += " in parts"
    if state.free and _is_enough(room, run.needs) and not placeable(state.free, run.needs):
        found = "free are " + "; ".join(_has(node) for node in state.free)
    doing = ["serving"] if any(n.held_cpus or n.held_gpus for n in state.nodes) else []
    doing += [_name(r, visibility) + r.gives_way * ", which gives way" for r in state.running]
    return f"needs {asked}, {found}: {', '.join(doing) or 'it starts next'}"


def situation(state: State) -> object:
    """What `waits_for` and `reason` of any run depend on: while it is the same, so are they."""
    places = tuple((run.run_id, run.gives_way) for run in state.running)
    firsts = _firsts(state)
    turns = tuple(run.run_id for run in firsts)
    late = tuple(run.run_id for run in _late(state, firsts))
    return state.nodes, state.free, places, turns, late


def _ahead(state: State, run: PlannedRun) -> PlannedRun | None:
    """The run that this one has to let go first, though there is room for it."""
    firsts = _firsts(state)
    kept = _kept(state, _late(state, firsts))
    blocks = (one for one in kept if one is run or not _leaves(state, one, run.needs))
    of_its_kind = (one for one in firsts if one.urgency == run.urgency)
    ahead = next(blocks, None) or next(of_its_kind, None)
    return None if ahead is run else ahead


def describe(nodes: Iterable[Node]) -> str:
    """What a cluster has, in words."""
    each = [_has(node) for node in nodes]
    return f"the cluster has {_count(len(each), 'node')}: {'; '.join(each) or 'no room'}"


def _has(node: Node) -> str:
    held = [_count(node.held_cpus, "CPU")] if node.held_cpus else []
    held += [_count(node.held_gpus, "GPU")] if node.held_gpus else []
    served = f", of which serving holds {' and '.join(held)}" if held else ""
    return resources(Needs(1, node.cpus, node.gpus)) + served


def resources(needs: Needs) -> str:
    each = _count(needs.cpus, "CPU") + (f" and {_count(needs.gpus, 'GPU')}" if needs.gpus else "")
    return each if needs.workers == 1 else f"{needs.workers} workers of {each}"


def _count(number: float, unit: str) -> str:
    return f"{number:g} {unit}" + ("" if number == 1 else "s")


def _name(run: PlannedRun, visibility: Visibility) -> str:
    """A run, in words."""
    task = run.task if run.task and visibility.sees(run.task) else "a private task"
    if run.kind == "train":
        return f"training {task}"
    if run.kind == "refresh":
        return f"refreshing {task}"
    return DOING[run.kind]
