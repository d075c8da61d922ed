"""What the coordinator decides, without I/O: handle(state, event) -> instructions.

After every event the same questions are decided: which pairs to measure, which vectors to refresh,
which runs to start, and which give way. So nothing is lost if an instruction was not carried out:
from a state that is rebuilt from the registry it follows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cluster.domain.status import OF_MODELS, RunState
from cluster.scheduler import champion_sets, matrix
from cluster.scheduler import state as facts
from cluster.scheduler import upkeep as owed
from cluster.scheduler.budget import granted
from cluster.scheduler.giving_way import giving_way, mark
from cluster.scheduler.gpus import allot, unplaceable
from cluster.scheduler.queue import forget_passed, next_run, starts
from cluster.scheduler.state import Effect, Fail, MatrixCell, PlannedRun, Row, State, Stop

DEATHS = 2  # processes that a run may lose and be started again; with one more it fails


def handle(state: State, event: facts.Event) -> list[facts.Instruction]:
    """Change the state by one event, and return the instructions that follow, in order."""
    state.changes += 1
    instructions = list(_apply(state, event))
    instructions += owed.upkeep(state)
    allot(state)
    instructions += starts(state)
    forget_passed(state)
    mark(state)
    return instructions


def _apply(state: State, event: facts.Event) -> Iterator[facts.Instruction]:
    match event:
        case facts.NodesChanged(nodes, free):
            state.nodes, state.free = nodes, free
            yield from _lost_gpus(state)
        case facts.MinutesTaken(users):
            state.over = users
        case facts.SamplesArrived():
            _arrive(state, event)
        case facts.Requested():
            _queue(state, event)
        case facts.Published():
            _publish(state, event)
        case facts.Promoted(task, vector, row):
            _promote(state, task, vector, row)
            state.ask.add(task)
        case facts.CellsMeasured(run_id, values):
            _end(state, run_id, measured=values)
        case facts.Ended(run_id):
            _end(state, run_id)
        case facts.PlaceGivenBack(run_id):
            run = state.runs[run_id]
            run.state, run.gave_way = RunState.QUEUED, run.gave_way + 1
            yield facts.Requeue(run_id, None)
        case facts.Died(run_id, cause) if state.runs[run_id].deaths < DEATHS:
            run = state.runs[run_id]
            run.state, run.deaths = RunState.QUEUED, run.deaths + 1
            yield facts.Requeue(run_id, cause)
        case facts.Died(run_id, cause):
            yield _fail(state, run_id, f"{cause} (it was tried {DEATHS + 1} times)")
        case facts.Failed(run_id, cause):
            yield _fail(state, run_id, cause)
        case facts.Cancelled(run_id):
            yield Stop(run_id)
            if run_id in state.runs:  # else it failed, and that could not be recorded before
                _give_back(state, state.runs[run_id])
                _give_up(state, run_id)
        case facts.Removed():
            yield from _remove(state, event)
        case facts.Forgotten(runs):
            state.done -= runs


def _lost_gpus(state: State) -> Iterator[facts.Instruction]:
    for run in [*unplaceable(state)]:
        yield Stop(run.run_id)
        run.state = RunState.QUEUED
        yield facts.Requeue(run.run_id, "no node has its GPU any more", died=False)


def _arrive(state: State, event: facts.SamplesArrived) -> None:
    known = state.tasks.get(event.task)
    head = known.head if known else ""
    state.tasks[event.task] = replace(event.planned, head=head)
    if event.private:
        state.owners[event.task] = event.planned.owner
    elif known is None:  # the name may have been that of a private task which was cancelled
        state.owners.pop(event.task, None)
    if known is None or known.shard != event.planned.shard:
        matrix.drop_column(state, event.task)


def _queue(state: State, event: facts.Requested) -> None:
    run = state.runs.get(event.run_id)
    if run is None:
        about = event.run_id, event.kind, 0, event.task, event.needs, event.urgency
        run = PlannedRun(*about, model=event.model)
        owed.add(state, run)
    elif run.state == RunState.FAILED:
        run.state, run.deaths = RunState.QUEUED, 0
        state.unmeasurable.difference_update(run.cells)
    if event.user is not None and (run.user is None or run.user in state.over):
        run.user = event.user
    run.urgency = min(run.urgency, event.urgency)
    _take_turn(state, run)


def _take_turn(state: State, run: PlannedRun) -> None:
    """A user without another run of this urgency waits from now on, whenever their last started."""
    whose = run.urgency, run.user
    others = (one for one in state.runs.values() if (one.urgency, one.user) == whose)
    if all(one is run or one.state == RunState.FAILED for one in others):
        state.turns[whose] = max(state.turns.get(whose, -1), 2 * state.started - 1)


def _publish(state: State, event: facts.Published) -> None:
    task = state.tasks[event.task]
    near = {(event.task, other) for other in event.near if other in state.tasks}
    state.near |= near | {(other, one) for one, other in near}
    if task.head != event.head:  # its first vector: now it has answers
        state.balance = granted(state.balance, task.allowance)
        task.head = event.head
        matrix.drop_column(state, event.task)
    if event.champion:
        _promote(state, event.task, event.vector, event.row)
    _end(state, event.run_id)


def _promote(state: State, task: str, vector: facts.VectorVersion, measured: Row) -> None:
    """Make the vector the task's champion. What was measured of it is kept if it was on the present
    samples and heads."""
    champion_sets.before_champion_change(state, task, vector.digest)
    state.champions[task] = vector
    state.promoted.pop(task, None)
    state.promoted[task] = None
    row = {
        name: effect
        for (name, shard, head), effect in measured.items()
        if _is_of_now(state, name, shard, head) and owed.is_measured(state, task, name)
    }
    matrix.put_row(state, task, row)


def _is_of_now(state: State, name: str, shard: str, head: str) -> bool:
    """Whether these are the present samples and head of a task that exists."""
    task = state.tasks.get(name)
    return task is not None and (task.shard, task.head) == (shard, head)


def _end(state: State, run_id: str, measured: Mapping[MatrixCell, Effect] | None = None) -> None:
    """The run is done. Pairs that it was to measure and did not are never ordered again."""
    run = state.runs.pop(run_id)
    if run.kind in owed.ONCE:
        state.done.add(run_id)
    _ask(state, run)
    for cell in run.cells:
        if measured is None or cell not in measured:
            state.unmeasurable.add(cell)
        elif cell == owed.cell_of(state, cell.task, cell.on):  # neither has a newer version
            matrix.put(state, cell.task, cell.on, measured[cell])


def _fail(state: State, run_id: str, cause: str) -> Fail:
    _give_up(state, run_id)
    return Fail(run_id, cause)


def _give_up(state: State, run_id: str) -> None:
    """The run failed. If it was to compute something of a user's model it leaves the plan: no
    decision depends on that."""
    run = state.runs[run_id]
    run.state = RunState.FAILED
    state.unmeasurable.update(run.cells)
    _ask(state, run)
    if run.kind in OF_MODELS:
        del state.runs[run_id]


def _give_back(state: State, run: PlannedRun) -> None:
    state.balance += run.cost
    run.cost = 0


def _remove(state: State, event: facts.Removed) -> Iterator[Stop]:
    """Withdraw a task as if it had never arrived: what its runs were about is decided again,
    without it. A vector that was not due before is not due now, since nothing is measured anew."""
    task = event.task
    touched = (run.run_id for run in state.runs.values() if _concerns(state, run, task))
    for run_id in dict.fromkeys((*event.runs, *touched)):  # some are not in the registry yet
        if (run := state.runs.pop(run_id, None)) is not None:
            state.unmeasurable.difference_update(run.cells)
            _give_back(state, run)
            _ask(state, run)
        yield Stop(run_id, forget=True)
    for run_id in event.anew:
        run = state.runs[run_id]
        run.state = RunState.QUEUED if run.state == RunState.RUNNING else run.state
        yield Stop(run_id, forget=True)
    matrix.drop_row(state, task)
    matrix.drop_column(state, task)
    champion_sets.before_champion_change(state, task, None)
    for table in (state.tasks, state.champions, state.promoted):
        table.pop(task, None)
    state.near = {pair for pair in state.near if task not in pair}
    state.ask.discard(task)


def _ask(state: State, run: PlannedRun) -> None:
    """Have it checked whether what this run was about is due for a refresh now."""
    state.ask.update(cell.task for cell in run.cells)
    if run.task is not None:
        state.ask.add(run.task)


def _concerns(state: State, run: PlannedRun, task: str) -> bool:
    about = run.kind in ("train", "refresh") and run.task == task
    in_cells = any(task in (c.task, c.on) for c in run.cells)
    return about or task in run.others or in_cells or owed.concerns(state, run, task)


# -- checks


def validate(state: State) -> None:
    """Raises Inconsistent unless everything holds that must hold after every event."""
    wrong = list(_violations(state))
    if wrong:
        raise facts.Inconsistent("; ".join(wrong))


def _violations(state: State) -> Iterator[str]:
    names = state.tasks.keys()
    if not state.champions.keys() == state.rows.keys() <= names:
        yield "champions and rows are of different tasks"
    ordinals = [task.ordinal for task in state.tasks.values()]
    if ordinals != sorted(ordinals):
        yield "tasks are not by arrival"
    shared = [task.options.share for task in state.tasks.values()].count("samples")
    for task, row in state.rows.items():
        if len(row) > shared and len(row) > shared + (not owed.shares(state, task)):
            yield f"the row of {task} has more than can be measured"
    active = [run for run in state.runs.values() if run.state != RunState.FAILED]
    cells = [cell for run in active for cell in run.cells]
    if len(cells) != len(set(cells)):
        yield "a pair is measured twice at once"
    refreshed = [(run.kind, run.task) for run in active if run.kind in ("train", "refresh")]
    if len(refreshed) != len(set(refreshed)):
        yield "a task is trained or refreshed twice at once"
    if state.done & state.runs.keys():
        yield "a run is done and owed"
    if any(run.deaths > DEATHS for run in active):
        yield "a run is owed beyond its budget"
    if owed.rests(state) and any(owed.is_owed(state, run_id) for run_id in owed.fits(state)):
        yield "heads could be fitted and no run does it"
    if next_run(state) is not None:
        yield "a run could start and was not started"
    if {run.run_id for run in active if run.gives_way} != {r.run_id for r in giving_way(state)}:
        yield "a run is to give way and does not know, or knows and is not to"
    if owed.could_measure(state):
        yield "a pair could be measured and no run does it"
