"""What becomes of vectors when tasks arrive: which pairs are measured, which vectors are refreshed,
and which heads are fitted again.

What an arrival may cost is bounded (`budget`). First the newcomer's probe is measured under older
vectors, the loudest first; then those that change most answers are refreshed, once for all tasks
that arrived since; what is left is spent on other pairs. What waits is decided again at the next
arrival. Arrivals of short trainings save up for a refresh that is due before more is measured.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice, zip_longest

from cluster.domain.base import identity
from cluster.domain.status import RunKind, RunState
from cluster.domain.tasks import GENERIC
from cluster.domain.visibility import Visibility
from cluster.scheduler import budget, matrix
from cluster.scheduler import state as facts
from cluster.scheduler.champion_sets import champion_sets
from cluster.scheduler.champion_sets import champions as champions_of
from cluster.scheduler.queue import needs_of, placeable
from cluster.scheduler.state import MatrixCell, Measure, PlannedRun, RefreshChampion, State

REFRESH_FROM = 0.2  # relative tau_jp on a shard the vector has not met, from which it is refreshed
MEASURE_BATCH = 64  # pairs in one piece of work
COLUMN = 16  # vectors that are measured on a newcomer's probe before any is refreshed
LOOKED_AT = 128  # vectors among which the next to be measured is chosen
RECENT = 32  # newest tasks: vectors are measured on their probes, and refreshed against them
ONCE: tuple[RunKind, ...] = ("refresh", "fit")  # done once for the same inputs
SHARED = 4  # arrivals that a refresh waits for while others are being trained
TURN = 4  # in this many refreshes, one is of the vector that has waited longest
BEFORE_FIT = 2  # measures and refreshes that are ordered while a fit of heads waits

Orders = tuple[list[str], list[str]]  # tasks in two orders


def upkeep(state: State) -> Iterator[facts.Instruction]:
    """What is due now, as far as the budget has room for it."""
    if fit_is_next(state):
        yield from _fits(state)
        if fit_is_next(state):
            return
    if _saves(state):
        yield from _measures(state, _own(state))
    else:
        yield from _measures(state, _unmeasured(state, met=False))
        yield from _refreshes(state)
        yield from _measures(state, _unmeasured(state, met=True))
    yield from _fits(state)


def add(state: State, run: PlannedRun) -> None:
    state.numbers += 1
    run.number = state.numbers
    state.runs[run.run_id] = run
    state.done.discard(run.run_id)


def _pay(state: State, run: PlannedRun) -> None:
    add(state, run)
    state.balance -= run.cost
    state.before_fit += bool(_owed_fits(state))


def unspent(state: State, run_ids: Iterable[str]) -> int:
    """What was taken from the balance for runs among these that did not start."""
    return sum(state.runs[run_id].cost for run_id in run_ids if run_id in state.runs)


# -- the matrix of what vectors do to inputs


def is_measured(state: State, task: str, on: str) -> bool:
    """Whether a vector of `task` may be measured on the probe of `on`. A task that withholds
    samples withholds its probe: only its own vector is measured there."""
    return task == on or shares(state, on)


def shares(state: State, task: str) -> bool:
    """Whether other tasks' runs see its samples."""
    return state.tasks[task].options.share == "samples"


def cell_of(state: State, task: str, on: str) -> MatrixCell:
    probe = state.tasks[on]
    return MatrixCell(task, state.champions[task].digest, on, probe.shard, probe.head)


def _active(state: State, kind: RunKind, task: str | None = None) -> bool:
    runs = (run for run in state.runs.values() if run.kind == kind and run.state != RunState.FAILED)
    return any(task is None or run.task == task for run in runs)


def _measures(state: State, wanted: Iterator[MatrixCell]) -> Iterator[Measure]:
    """Order one measure at a time: pairs that come to be missing meanwhile make the next batch."""
    most = min(MEASURE_BATCH, budget.cells(state.balance))
    if most == 0 or _active(state, "measure"):
        return
    if cells := tuple(islice(wanted, most)):
        run_id = identity("measure", {"base": state.base, "cells": cells})
        cost = len(cells) * budget.CELL
        _pay(state, PlannedRun(run_id, "measure", 0, cells=cells, cost=cost))
        yield Measure(run_id, cost, cells)


def could_measure(state: State) -> bool:
    """Whether a pair could be measured now and no run does it."""
    if budget.cells(state.balance) == 0 or _active(state, "measure") or fit_is_next(state):
        return False
    others = () if _saves(state) else (False, True)
    wanted = (_own(state), *(_unmeasured(state, met) for met in others))
    return next(chain(*wanted), None) is not None


def _own(state: State) -> Iterator[MatrixCell]:
    """Pairs of vectors and their own inputs, without which nothing is known of a vector."""
    return _able(state, ((task, task) for task, row in state.rows.items() if task not in row))


def _unmeasured(state: State, met: bool) -> Iterator[MatrixCell]:
    """Pairs that are not measured, on the newest task first. With `met`, of vectors and tasks that
    they have met. Without, of vectors and tasks that they have not met, own inputs first: up to
    COLUMN vectors on each task, which decide about refreshes. A vector has met a newer task only if
    it became champion since."""
    if not met:
        yield from _own(state)
    orders: dict[str | None, Orders] = {}  # computed once: slow, and the same for most tasks
    for on in _recent(state):
        there = (task for task in state.columns.get(on, ()) if _is_new(state, task, on))
        known = 0 if met else sum(1 for _ in islice(there, COLUMN))
        if known < COLUMN:
            whose = None if met else state.owners.get(on)  # it is new only to its owner's vectors
            if whose not in orders:
                among = islice(reversed(state.promoted), LOOKED_AT) if met else state.rows
                theirs = (t for t in among if whose in (None, state.tasks[t].owner))
                orders[whose] = _orders(state, theirs)
            lacking = _lacking(state, on, met, orders[whose])
            cells = _able(state, ((task, on) for task in lacking))
            yield from cells if met else islice(cells, COLUMN - known)


def _lacking(state: State, on: str, met: bool, orders: Orders) -> Iterator[str]:
    """Tasks whose vectors could be measured on `on` and are not: the first of each order, then the
    second of each, and so on."""

    def lacks(task: str) -> bool:
        able = task != on and on not in state.rows[task] and is_measured(state, task, on)
        return able and _is_new(state, task, on) != met

    pairs = zip_longest(*(filter(lacks, order) for order in orders))
    found = set[str | None]([None])
    for task in chain.from_iterable(pairs):
        if task not in found:
            found.add(task)
            yield task


def _able(state: State, pairs: Iterator[tuple[str, str]]) -> Iterator[MatrixCell]:
    """The cells of pairs, without those whose run failed and those of the same kind of data."""
    cells = (cell_of(state, task, on) for task, on in pairs if (task, on) not in state.near)
    return (cell for cell in cells if cell not in state.unmeasurable)


def _orders(state: State, tasks: Iterable[str]) -> Orders:
    """At most LOOKED_AT of the tasks in each of two orders: the loudest vector first, and first the
    one that was measured on no newcomer for longest."""
    marks = [(matrix.mark(state, task), task) for task in tasks]
    loudest = heapq.nsmallest(LOOKED_AT, ((-mark.loudness, task) for mark, task in marks))
    longest = heapq.nsmallest(LOOKED_AT, ((mark.newest, task) for mark, task in marks))
    return [task for _, task in loudest], [task for _, task in longest]


def _recent(state: State) -> Iterator[str]:
    """The RECENT newest tasks whose answers are known, generic samples included; newest first."""
    tasks = reversed(state.tasks.items())  # they are by arrival
    return islice((name for name, task in tasks if task.head or name == GENERIC), RECENT)


# -- label-free refresh


def _saves(state: State) -> bool:
    """Whether the balance, too small for a refresh, is kept for one that is due."""
    if state.balance >= budget.REFRESH:
        return False
    due = (refresh_of(state, task).run_id for task in state.ask if is_due(state, task))
    if any(is_owed(state, run_id) for run_id in due):
        return True
    state.ask = {task for task in state.ask if is_due(state, task)}  # the others are settled
    return False


def _refreshes(state: State) -> Iterator[RefreshChampion]:
    """Once what decides is measured and arrivals are gathered, refresh the due vectors that do the
    most, and now and then the one that has waited longest."""
    if state.balance < budget.REFRESH or _active(state, "measure"):
        return
    state.ask = {task for task in state.ask if is_due(state, task)}
    if _gathers(state):
        return
    due = {task: harm(state, task) for task in state.ask}
    while due and state.balance >= budget.REFRESH:
        task = _next(state, due)
        del due[task]
        refresh = refresh_of(state, task)
        if not is_owed(state, refresh.run_id):
            continue
        others = frozenset(name for name, _ in refresh.others)
        needs = needs_of("refresh", state.tasks[task].options)
        about = refresh.run_id, "refresh", 0, task, needs
        _pay(state, PlannedRun(*about, others=others, cost=refresh.cost))
        state.refreshes += 1
        yield refresh


def _gathers(state: State) -> bool:
    """Whether refreshes wait because a task is being trained: they would have to be repeated soon.
    They wait for no more than SHARED such tasks."""
    training = (run for run in state.runs.values() if run.kind == "train")
    coming = any(r.state != RunState.FAILED and placeable(state.nodes, r.needs) for r in training)
    return coming and all(len(disturbed(state, task)) < SHARED for task in state.ask)


def _next(state: State, due: Mapping[str, float]) -> str:
    """The next of the tasks in `due`, which has what each does. A vector that has waited longest
    has met the fewest shards."""
    if state.refreshes % TURN == TURN - 1:
        return min(due, key=lambda task: (len(state.champions[task].seen), task))
    return min(due, key=lambda task: (-due[task], task))


def is_due(state: State, task: str) -> bool:
    """Whether the probes say that the task's champion is to be refreshed: it disturbs a task, its
    own was submitted with refresh "on_arrival", and no refresh of it is owed."""
    if task not in state.champions or state.tasks[task].options.refresh == "never":
        return False
    return bool(disturbed(state, task)) and not _active(state, "refresh", task)


def disturbed(state: State, task: str) -> list[str]:
    """The tasks that its champion has not met, and whose inputs it moves by more than REFRESH_FROM
    of what it does to its own; first those whose answers it changes most."""
    row = state.rows[task]
    own = row[task].tau_jp if task in row else 0.0
    moved = (on for on, effect in row.items() if own and effect.tau_jp > REFRESH_FROM * own)
    found = [on for on in moved if _is_new(state, task, on)]
    return sorted(found, key=lambda on: (-_changed(state, task, on), on))


def harm(state: State, task: str) -> float:
    """How much its champion changes the answers of the tasks that it disturbs, in sum."""
    return sum(_changed(state, task, on) for on in disturbed(state, task))


def _changed(state: State, task: str, on: str) -> float:
    """The change of the answers of `on`, relative to what its own vector does to them. If no
    answers were measured, the change of the features, relative to that on the vector's own task."""
    effect, own = state.rows[task][on], state.rows.get(on, {}).get(on)
    if effect.answers is not None and own and own.answers:
        return effect.answers / own.answers
    return effect.tau_jp / state.rows[task][task].tau_jp


def _is_new(state: State, task: str, on: str) -> bool:
    """Whether the champion has not met a task that has answers. A task of the same kind of data as
    its own is never new to it."""
    probe = state.tasks[on]
    if on in (task, GENERIC) or (task, on) in state.near or not probe.head:
        return False
    if probe.shard in state.champions[task].seen:
        return False
    return on not in state.owners or _visibility(state, task).sees(on)


def _visibility(state: State, task: str) -> Visibility:
    """Which samples the vector of a task may be refreshed against."""
    return Visibility(state.tasks[task].owner, state.owners)


def refresh_of(state: State, task: str) -> RefreshChampion:
    """The refresh of a task's champion against the shards of those it disturbs and of the newest;
    the same inputs give the same id."""
    vector, known, visibility = state.champions[task], state.tasks, _visibility(state, task)
    worst = dict.fromkeys(disturbed(state, task)[:RECENT])
    newest = islice(reversed(known), 2 * RECENT)
    others = (n for n in (*worst, *newest) if n != task and (task, n) not in state.near)
    seen = (n for n in others if visibility.sees(n) and shares(state, n))
    names = {*islice(dict.fromkeys(seen), RECENT), GENERIC} & known.keys()
    own = known[task].shard
    others = tuple((n, known[n].shard) for n in sorted(names, key=lambda n: known[n].ordinal))
    options = known[task].options.model_dump()
    parts = {"base": state.base, "task": task, "vector": vector.digest, "parent": vector.version}
    run_id = identity("refresh", {**parts, "own": own, "others": others, "options": options})
    return RefreshChampion(run_id, budget.REFRESH, task, vector.digest, own, others)


def is_current(state: State, run: PlannedRun) -> bool:
    """Whether a failed run is worth another try. Not worth it are a fit if champions have changed,
    a measure if all its pairs have, and a refresh if another is owed or its vector or samples
    changed."""
    if run.kind == "fit":
        return run.run_id in fits(state)
    if run.kind == "measure":
        return any(cell == cell_of(state, cell.task, cell.on) for cell in run.cells)
    if run.kind != "refresh" or run.task is None:
        return True
    same = refresh_of(state, run.task).run_id == run.run_id
    return same and not _active(state, "refresh", run.task)


# -- heads


def _fits(state: State) -> Iterator[facts.FitHeads]:
    """Order one fit at a time, when vectors rest: what is measured or refreshed may move them."""
    if not rests(state):  # the fits are computed only when needed
        return
    if owed := _owed_fits(state):
        turns = state.fit_turns
        # Open tasks come first, but not twice in a row; owners of private tasks take turns.
        again = "" in turns and turns[""] == max(turns.values())
        run_id = min(owed, key=lambda r: (again or owed[r] != "", turns.get(owed[r], -1)))
        owner, state.before_fit = owed[run_id], 0
        champions = champions_of(state, owner)
        add(state, run := PlannedRun(run_id, "fit", 0, owner=owner, tasks=len(champions)))
        turns[owner] = run.number
        yield facts.FitHeads(run_id, owner, champions)


def fit_is_next(state: State) -> bool:
    """Whether a fit has waited long enough: nothing else is ordered before it. Vectors of tasks
    that keep coming would never rest."""
    return state.before_fit >= BEFORE_FIT and bool(_owed_fits(state))


def _owed_fits(state: State) -> dict[str, str]:
    return {run_id: owner for run_id, owner in fits(state).items() if is_owed(state, run_id)}


def rests(state: State) -> bool:
    """Whether no measure, refresh or fit is owed. A refresh that no node can hold, as when one with
    a GPU was lost, does not count."""
    owed = (run for run in state.runs.values() if run.state != RunState.FAILED)
    return not any(
        run.kind in ("measure", "fit")
        or (run.kind == "refresh" and placeable(state.nodes, run.needs))
        for run in owed
    )


def is_owed(state: State, run_id: str) -> bool:
    return run_id not in state.runs and run_id not in state.done


def concerns(state: State, run: PlannedRun, task: str) -> bool:
    """Whether a run is a fit of heads that includes the task's champion: it includes those of all
    teaching tasks that its owner sees."""
    known = state.tasks.get(task)
    there = known is not None and known.teaches and task in state.champions
    return run.kind == "fit" and there and Visibility(run.owner, state.owners).sees(task)


def fits(state: State) -> dict[str, str]:
    """The runs that fit the heads of present champions, with their owners: for "" those of all open
    tasks; for every owner of private tasks, these and theirs. Tasks that withhold samples are left
    out.

    Most events change no champion, so the result is kept until one does.
    """
    if state.fits is None:
        of = champion_sets(state)
        everybody = of[""].number if "" in of else 0
        state.fits = {
            identity("fit", {"base": state.base, "of": [everybody, owner, of[owner].number]}): owner
            for owner in sorted(of)
            if of[owner].champions
        }
    return state.fits
