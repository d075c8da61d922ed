"""What `status` tells, kept in memory and numbered: whoever looks again is told what is new.

The events of the registry say what changed; what they name is read again, and nothing else. Whoever
waits in the plan is told again when the plan's room or its turn changed. A look at which nothing
happened reads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from cluster.domain.base import new_id
from cluster.domain.status import OWED, STOPPED, RunState
from cluster.domain.tasks import VectorRef
from cluster.domain.work import FitWork, Progress
from cluster.registry import Registry, Run, Task
from cluster.scheduler.state import State

SHOWN = 40  # tasks and runs that one answer tells
REMEMBERED = 10_000  # of what is gone; who looked before that is told everything again
MANY = 5000  # events after which everything is read again
KINDS = ("refresh", "measure", "fit", "evaluate", "compose")


@dataclass(frozen=True)
class TaskEntry:
    """A task, its training, champion and first version, and a refresh that is owed or failed."""

    task: Task
    training: Run
    champion: VectorRef | None
    first: VectorRef | None
    refresh: RunState | None
    samples: int | None  # in the sample store


Entry = TaskEntry | Run | None  # None: it is gone


class Key(NamedTuple):
    """A task by its name, or a run by its id."""

    is_task: bool
    name: str


class Page(NamedTuple):
    """`version`: until which this tells; `whole`: forget what you were told before."""

    version: str
    whole: bool
    more: bool
    entries: list[tuple[Key, Entry]]


class Board:
    """Entries by key, the last that changed last."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._epoch = registry, new_id()[:8]
        self._entries: dict[Key, Entry] = {}
        self._numbers: dict[Key, int] = {}  # in the same order
        self._number = self._floor = 0
        self._left: dict[str, Run] = {}  # work that is owed, or failed or was cancelled
        self._event = self._writes = -1  # as of the last look
        self._plan: object = None

    @property
    def version(self) -> str:
        return f"{self._epoch}.{self._number}"

    def page(self, since: str, sees: Callable[[Key, Entry], bool]) -> Page:
        """What changed since a version, the oldest first; everything, when it is none of this
        process."""
        epoch, _, text = since.partition(".")
        number = int(text) if epoch == self._epoch and text.isdecimal() else -1
        whole = not self._floor <= number <= self._number
        changed = list(self._since(0 if whole else number))[::-1]
        found = ((key, self._entries[key]) for key in changed)
        news = ((key, entry) for key, entry in found if entry or not whole)
        told = list(islice((pair for pair in news if sees(*pair)), SHOWN + 1))
        more = len(told) > SHOWN
        last = self._numbers[told[SHOWN - 1][0]] if more else self._number
        return Page(f"{self._epoch}.{last}", whole, more, told[:SHOWN])

    def look(self, state: State) -> None:
        """Take in what happened since the last look."""
        if (writes := self._registry.writes.spent().times) != self._writes:
            self._read()
            self._writes = writes
        plan = _turns(state)
        if plan != self._plan:
            self._plan = plan
            self._touch([key for key, entry in self._entries.items() if _waits(entry)])

    def progressed(self, run_id: str, task: str | None, progress: Progress) -> None:
        """A run told how far it is; `task`: whose training or refresh it is."""
        key = Key(True, task or "")
        entry = self._entries.get(key)
        if isinstance(entry, TaskEntry) and entry.training.run_id == run_id:
            training = replace(entry.training, progress=progress)
            self._put(key, replace(entry, training=training))
        key = Key(False, run_id)
        if isinstance(run := self._entries.get(key), Run):
            self._put(key, replace(run, progress=progress))

    # -- inside

    def _since(self, number: int) -> Iterator[Key]:
        """The newest first."""
        for key in reversed(self._numbers):
            if self._numbers[key] <= number:
                return
            yield key

    def _put(self, key: Key, entry: Entry) -> None:
        if entry is None and self._entries.get(key) is None:
            return
        self._entries[key] = entry
        self._touch([key])
        self._forget()

    def _touch(self, keys: Collection[Key]) -> None:
        for key in keys:
            self._numbers.pop(key, None)
            self._number += 1
            self._numbers[key] = self._number

    def _forget(self) -> None:
        """The oldest half of what is gone, once it is much."""
        gone = len(self._entries) > REMEMBERED and [
            key for key in self._numbers if self._entries[key] is None
        ]
        if gone and len(gone) > REMEMBERED:
            for key in gone[: REMEMBERED // 2]:
                self._floor = self._numbers.pop(key)
                del self._entries[key]

    def _read(self) -> None:
        begins = self._event < 0
        self._event, found = self._registry.happened(self._event)
        if begins or len(found) > MANY:
            self._read_tasks(None)
            self._read_runs(None)
        elif found:
            self._read_tasks(dict.fromkeys(one.task for one in found if one.task))
            self._read_runs(dict.fromkeys(one.run_id for one in found if one.run_id))
        if any(one.kind == "fitted" for one in found):
            self._touch([key for key, entry in self._entries.items() if entry and key.is_task])
        self._show()

    def _read_tasks(self, names: Collection[str] | None) -> None:
        tasks = {task.name: task for task in self._registry.tasks(names=names)}
        trainings = self._registry.runs(kinds=("train",), tasks=names)
        of = {run.run_id: run for run in trainings}
        champions = self._registry.champion_references(names)
        firsts = self._registry.first_references(names)
        left = self._registry.runs((*OWED, *STOPPED), kinds=("refresh",), tasks=names)
        refreshes = {run.task: run.state for run in left}
        samples = {one.task: one.blob.rows for one in self._registry.shards(*(names or ()))}
        for name in tasks if names is None else names:
            entry = None
            if (task := tasks.get(name)) and (training := of.get(task.run_id)):
                vectors = champions.get(name), firsts.get(name)
                entry = TaskEntry(task, training, *vectors, refreshes.get(name), samples.get(name))
            self._put(Key(True, name), entry)

    def _read_runs(self, run_ids: Collection[str] | None) -> None:
        left = self._registry.runs((*OWED, *STOPPED), kinds=KINDS, run_ids=run_ids)
        for run_id in run_ids or ():
            self._left.pop(run_id, None)
        self._left |= {run.run_id: run for run in left}
        for run_id in (run.run_id for run in left) if run_ids is None else run_ids:
            run = self._left.get(run_id)
            if run is None or run.state in OWED:
                self._put(Key(False, run_id), run)

    def _show(self) -> None:
        """What failed is told while it matters."""
        stopped = {run_id: run for run_id, run in self._left.items() if run.state in STOPPED}
        composed = [run_id for run_id, run in stopped.items() if run.kind == "compose"]
        awaited = self._registry.awaited(composed)
        for run_id, run in stopped.items():
            key = Key(False, run_id)
            told = None if self._is_past(run, awaited) else run
            if self._entries.get(key) != told:
                self._put(key, told)

    def _is_past(self, run: Run, awaited: Collection[str]) -> bool:
        """A refresh or a fit that failed, of a vector that is no champion any more; a composition
        that failed or was cancelled, and that its user awaits no more."""
        if run.kind == "compose":
            return run.run_id not in awaited
        if run.kind == "fit":
            assert isinstance(run.work, FitWork)
            fitted = (one.vector for one in run.work.tasks)
            return any(self._champion(one.task) != one for one in fitted)
        if run.kind != "refresh":
            return False
        champion = self._champion(run.task)
        return champion is None or champion.version != run.version

    def _champion(self, task: str | None) -> VectorRef | None:
        entry = self._entries.get(Key(True, task or ""))
        return entry.champion if isinstance(entry, TaskEntry) else None


def _waits(entry: Entry) -> bool:
    run = entry.training if isinstance(entry, TaskEntry) else entry
    return run is not None and run.state == RunState.QUEUED


def _turns(state: State) -> object:
    """What decides why a run waits."""
    states: Mapping[RunState, list[str]] = {RunState.QUEUED: [], RunState.RUNNING: []}
    for run in state.runs.values():
        if run.state in states:
            states[run.state].append(run.run_id)
    first = states[RunState.QUEUED][:1]
    return state.nodes, state.free, tuple(states[RunState.RUNNING]), tuple(first), len(state.runs)
