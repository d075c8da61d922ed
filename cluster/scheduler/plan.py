"""What the coordinator decides, without I/O: handle(state, event) -> instructions.

After every event the same questions are asked: which pairs are to be measured, which vectors
refreshed, which runs started. So nothing is lost when an instruction was not carried out: a state
read from the registry again asks them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cluster.domain.base import identity
from cluster.domain.status import RunState
from cluster.domain.tasks import GENERIC
from cluster.domain.visibility import Visibility
from cluster.scheduler import state as facts
from cluster.scheduler.queue import needs_of, next_run, placeable, starts
from cluster.scheduler.state import (
    Cell,
    Fail,
    Fit,
    Measure,
    Refresh,
    Row,
    Run,
    State,
    Stop,
    Vector,
)

DEATHS = 2  # processes a run may lose and be started again; one more and it has failed
REFRESH_FROM = 0.2  # relative tau_jp on a shard the vector has not met, from which it is refreshed
MEASURE_BATCH = 64  # pairs in one piece of work


def handle(state: State, event: facts.Event) -> list[facts.Instruction]:
    """Change the state by one event, and say what is to be done now, in this order."""
    instructions = list(_apply(state, event))
    instructions += _measures(state)
    instructions += _refreshes(state)
    instructions += _fits(state)
    instructions += starts(state)
    return instructions


def _apply(state: State, event: facts.Event) -> Iterator[facts.Instruction]:
    match event:
        case facts.NodesChanged(nodes, free):
            state.nodes, state.free = nodes, free
        case facts.SamplesArrived():
            _arrive(state, event)
        case facts.Requested():
            _queue(state, event)
        case facts.Published():
            _publish(state, event)
        case facts.Championed(task, vector, row):
            _crown(state, task, vector, row)
            state.ask.add(task)
        case facts.Measured(run_id, values):
            _end(state, run_id, measured=values)
        case facts.Ended(run_id):
            _end(state, run_id)
        case facts.Died(run_id, cause) if state.runs[run_id].deaths < DEATHS:
            run = state.runs[run_id]
            run.state, run.deaths = RunState.QUEUED, run.deaths + 1
            yield facts.Requeue(run_id, cause)
        case facts.Died(run_id, cause):
            yield _fail(state, run_id, f"{cause} (its process was lost {DEATHS + 1} times)")
        case facts.Failed(run_id, cause):
            yield _fail(state, run_id, cause)
        case facts.Cancelled(run_id):
            yield Stop(run_id)
            _give_up(state, run_id)
        case facts.Removed():
            yield from _remove(state, event)


def _arrive(state: State, event: facts.SamplesArrived) -> None:
    known = state.tasks.get(event.task)
    head = known.head if known else ""
    state.tasks[event.task] = facts.Task(
        event.ordinal, event.options, event.shard, event.owner, head
    )
    if event.private:
        state.owners[event.task] = event.owner
    if known is None or known.shard != event.shard:
        _measure_again(state, event.task)


def _queue(state: State, event: facts.Requested) -> None:
    run = state.runs.get(event.run_id)
    if run is None:
        _add(state, Run(event.run_id, event.kind, 0, event.task, event.needs, event.urgency))
    elif run.state == RunState.FAILED:
        run.state, run.deaths = RunState.QUEUED, 0
        state.unmeasurable.difference_update(run.cells)


def _publish(state: State, event: facts.Published) -> None:
    if state.tasks[event.task].head != event.head:  # its first vector: now there are answers
        state.tasks[event.task].head = event.head
        _measure_again(state, event.task)
    if event.champion:
        _crown(state, event.task, event.vector, event.row)
    _end(state, event.run_id)


def _crown(state: State, task: str, vector: Vector, measured: Row) -> None:
    """The vector is the task's champion; of what was measured of it, what is of the samples and
    heads of now."""
    state.champions[task] = vector
    names = measured_on(state, task)
    keys = {name: (name, state.tasks[name].shard, state.tasks[name].head) for name in names}
    row = {name: measured[key] for name, key in keys.items() if key in measured}
    state.rows[task], state.missing[task] = row, names - row.keys()


def _end(state: State, run_id: str, measured: Mapping[Cell, float] | None = None) -> None:
    """The run is done. Pairs it was to measure and did not are never asked for again."""
    run = state.runs.pop(run_id)
    state.done.add(run_id)
    _ask(state, run)
    for cell in run.cells:
        if measured is None or cell not in measured:
            state.unmeasurable.add(cell)
        elif cell == _cell(state, cell.task, cell.on):  # neither has a newer version
            state.rows[cell.task][cell.on] = measured[cell]
            state.missing[cell.task].discard(cell.on)


def _fail(state: State, run_id: str, cause: str) -> Fail:
    _give_up(state, run_id)
    return Fail(run_id, cause)


def _give_up(state: State, run_id: str) -> None:
    run = state.runs[run_id]
    run.state = RunState.FAILED
    state.unmeasurable.update(run.cells)
    _ask(state, run)


def _remove(state: State, event: facts.Removed) -> Iterator[Stop]:
    """As if it had never come: what is left is asked again, without it."""
    task = event.task
    touched = (run.run_id for run in state.runs.values() if _concerns(run, task))
    for run_id in dict.fromkeys((*event.runs, *touched)):  # some are not in the registry yet
        if (run := state.runs.pop(run_id, None)) is not None:
            state.unmeasurable.difference_update(run.cells)
        yield Stop(run_id, forget=True)
    for run_id in event.anew:
        run = state.runs[run_id]
        run.state = RunState.QUEUED if run.state == RunState.RUNNING else run.state
        yield Stop(run_id, forget=True)
    for table in (state.tasks, state.champions, state.rows, state.missing):
        table.pop(task, None)
    for champion, row in state.rows.items():
        row.pop(task, None)
        state.missing[champion].discard(task)
    state.ask.discard(task)
    state.ask.update(state.champions)


def _ask(state: State, run: Run) -> None:
    """What this run was about may be due for a refresh now."""
    state.ask.update(cell.task for cell in run.cells)
    if run.task is not None:
        state.ask.add(run.task)


def _add(state: State, run: Run) -> None:
    state.numbers += 1
    run.number = state.numbers
    state.runs[run.run_id] = run
    state.done.discard(run.run_id)


def _concerns(run: Run, task: str) -> bool:
    about = run.kind in ("train", "refresh") and run.task == task
    return about or task in run.others or any(task in (c.task, c.on) for c in run.cells)


# -- the tau_jp matrix


def measured_on(state: State, task: str) -> set[str]:
    """The tasks whose probes a vector of `task` is measured on."""
    return {on for on in state.tasks if is_measured(state, task, on)}


def is_measured(state: State, task: str, on: str) -> bool:
    """Whoever withholds samples withholds the probe: only the own vector is measured there."""
    return task == on or shares(state, on)


def _measure_again(state: State, on: str) -> None:
    """What was measured of others on this task is of samples, or of no head, that were before."""
    for champion, row in state.rows.items():
        row.pop(on, None)
        if is_measured(state, champion, on):
            state.missing[champion].add(on)


def shares(state: State, task: str) -> bool:
    """Whether other tasks' runs see its samples."""
    return state.tasks[task].options.share == "samples"


def _cell(state: State, task: str, on: str) -> Cell:
    probe = state.tasks[on]
    return Cell(task, state.champions[task].digest, on, probe.shard, probe.head)


def _active(state: State, kind: str, task: str | None = None) -> bool:
    runs = (run for run in state.runs.values() if run.kind == kind and run.state != RunState.FAILED)
    return any(task is None or run.task == task for run in runs)


def _measures(state: State) -> Iterator[Measure]:
    """One measure at a time: what goes missing meanwhile makes the next batch."""
    if _active(state, "measure"):
        return
    cells = tuple(cell for cell, _ in zip(_unmeasured(state), range(MEASURE_BATCH), strict=False))
    if cells:
        run_id = identity("measure", {"base": state.base, "cells": cells})
        _add(state, Run(run_id, "measure", 0, cells=cells))
        yield Measure(run_id, cells)


def _unmeasured(state: State) -> Iterator[Cell]:
    """Missing pairs that can be measured: vector by vector, by arrival of the other task."""
    for task, missing in state.missing.items():
        for on in sorted(missing, key=lambda name: state.tasks[name].ordinal):
            cell = _cell(state, task, on)
            if cell not in state.unmeasurable:
                yield cell


# -- label-free refresh


def _refreshes(state: State) -> Iterator[Refresh]:
    for task in sorted(state.ask):
        if task in state.champions and is_due(state, task):
            refresh = refresh_of(state, task)
            if refresh.run_id not in state.runs and refresh.run_id not in state.done:
                needs = needs_of("refresh", state.tasks[task].options)
                others = frozenset(name for name, _ in refresh.others)
                run = Run(refresh.run_id, "refresh", 0, task, needs, others=others)
                _add(state, run)
                yield refresh
    state.ask.clear()


def is_due(state: State, task: str) -> bool:
    """Whether the probes say that the task's champion is to be refreshed.

    It is when it moves the inputs of a task it has not met by more than REFRESH_FROM of what it
    does to its own inputs, and its task was submitted with refresh "on_arrival"; but not before its
    row is measured, nor while a refresh of it is owed.
    """
    vector, row = state.champions[task], state.rows[task]
    own = row.get(task, 0.0)
    if state.tasks[task].options.refresh == "never" or own == 0:
        return False
    if _active(state, "refresh", task) or _is_incomplete(state, task):
        return False
    visibility = _visibility(state, task)
    return any(
        value > REFRESH_FROM * own and state.tasks[on].shard not in vector.seen
        for on, value in row.items()
        if on not in (task, GENERIC) and visibility.sees(on)
    )


def _visibility(state: State, task: str) -> Visibility:
    """Whose samples the vector of a task may be refreshed against."""
    return Visibility(state.tasks[task].owner, state.owners)


def _is_incomplete(state: State, task: str) -> bool:
    return any(_cell(state, task, on) not in state.unmeasurable for on in state.missing[task])


def refresh_of(state: State, task: str) -> Refresh:
    """The refresh of a task's champion against all shards of now; the same inputs, the same id."""
    vector, known, visibility = state.champions[task], state.tasks, _visibility(state, task)
    seen = (n for n in known if n != task and visibility.sees(n) and shares(state, n))
    names = sorted(seen, key=lambda name: known[name].ordinal)
    own, others = known[task].shard, tuple((name, known[name].shard) for name in names)
    options = known[task].options.model_dump()
    parts = {"base": state.base, "task": task, "vector": vector.digest, "parent": vector.version}
    run_id = identity("refresh", {**parts, "own": own, "others": others, "options": options})
    return Refresh(run_id, task, vector.digest, own, others)


def is_current(state: State, run: Run) -> bool:
    """Whether a failed run is worth another try: a fit is not when champions have changed, a
    refresh not when there is another one, or when the vector or the samples are no longer those of
    then."""
    if run.kind == "fit":
        return run.run_id in {fit.run_id for fit in fits(state)}
    if run.kind != "refresh" or run.task is None:
        return True
    same = refresh_of(state, run.task).run_id == run.run_id
    return same and not _active(state, "refresh", run.task)


# -- heads


def _fits(state: State) -> Iterator[Fit]:
    """One at a time, and when vectors rest: what is measured or refreshed may move them."""
    owed = (fit for fit in fits(state) if _is_owed(state, fit))
    if _rests(state) and (fit := next(owed, None)):
        _add(state, Run(fit.run_id, "fit", 0, others=frozenset(dict(fit.champions))))
        yield fit


def _rests(state: State) -> bool:
    """A refresh that no node can hold, as when one with a GPU was lost, keeps no head waiting."""
    owed = (run for run in state.runs.values() if run.state != RunState.FAILED)
    return not any(
        run.kind in ("measure", "fit")
        or (run.kind == "refresh" and placeable(state.nodes, run.needs))
        for run in owed
    )


def _is_owed(state: State, fit: Fit) -> bool:
    return fit.run_id not in state.runs and fit.run_id not in state.done


def fits(state: State) -> Iterator[Fit]:
    """Whose heads are fitted together: those of all tasks that nobody keeps private; and for every
    owner of private tasks, these with them. Who withholds samples is left out."""
    able = {task: v.digest for task, v in state.champions.items() if _is_fitted(state, task)}
    owners = {owner for task, owner in state.owners.items() if task in able}
    for owner in ("", *sorted(owners)):
        visibility = Visibility(owner, state.owners)
        champions = tuple(sorted((t, v) for t, v in able.items() if visibility.sees(t)))
        if champions:
            parts = {"base": state.base, "owner": owner, "champions": champions}
            yield Fit(identity("fit", parts), owner, champions)


def _is_fitted(state: State, task: str) -> bool:
    return shares(state, task) and state.tasks[task].options.heads == "fitted"


# -- checks


def validate(state: State) -> None:
    """Raise Inconsistent unless all that must hold after every event does."""
    wrong = list(_violations(state))
    if wrong:
        raise facts.Inconsistent("; ".join(wrong))


def _violations(state: State) -> Iterator[str]:
    names = state.tasks.keys()
    if not state.champions.keys() == state.rows.keys() == state.missing.keys():
        yield "champions, rows and missing pairs are of different tasks"
    shared = sum(shares(state, name) for name in names)
    for task, row in state.rows.items():
        missing = state.missing[task]  # small; the row is not, so no set is made of it
        measured = shared + (not shares(state, task))
        each_once = row.keys().isdisjoint(missing) and len(row) + len(missing) == measured
        if not (each_once and missing <= names):
            yield f"the row of {task} and what is missing of it are not all tasks, each once"
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
    if any(_is_owed(state, fit) for fit in fits(state)) and _rests(state):
        yield "heads could be fitted and no run does it"
    if next_run(state) is not None:
        yield "a run could start and was not started"
    if not _active(state, "measure") and next(_unmeasured(state), None):
        yield "a pair could be measured and no run does it"
