"""What `status` reports, kept in memory and numbered: a reader that looks again gets what is new.

The events of the registry say what changed; only what they name is read again. Entries that wait
are reported again when the plan's room or the order of turns changes, but no faster than they can
be read. A look at which nothing happened reads nothing.

A version that is returned depends only on what its reader sees: what others do in private leaves it
unchanged, and it does not reveal how much happened.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice, takewhile
from typing import Literal, NamedTuple, TypeVar

from cluster.domain.base import RequestContext, new_id
from cluster.domain.status import OF_MODELS, OWED, STOPPED, RunKind, RunState
from cluster.domain.tasks import VectorRef
from cluster.domain.work import FitWork, MeasureWork, Progress, tasks_of
from cluster.registry import Registry, RunRecord, TaskRecord
from cluster.scheduler.queue import situation
from cluster.scheduler.state import State
from cluster.scheduler.upkeep import is_current

SHOWN = 40  # tasks and runs in one answer
PAGE_SECONDS = 0.5  # that a reader has for one
REMEMBERED = 10_000  # tombstones, and versions; a reader with an older one gets everything again
READERS = 1000  # for whom it is remembered up to which entry nothing was new
MANY = 5000  # events since the last look; after more, everything is read again
KINDS: tuple[RunKind, ...] = ("refresh", "measure", "fit", "evaluate", "compose")


@dataclass(frozen=True)
class TaskEntry:
    """A task, its training, champion and first version, and a refresh that is owed or failed."""

    task: TaskRecord
    training: RunRecord
    champion: VectorRef | None
    first: VectorRef | None
    refresh: RunState | None
    samples: int | None  # in the sample store


Owners = frozenset[frozenset[str]]  # visible to who sees the tasks of all owners of any one set


@dataclass(frozen=True)
class Tombstone:
    """An entry that is gone; of a run, with what decides who sees it."""

    kind: RunKind | Literal["task"] = "task"
    user: str | None = None
    owners: Owners = frozenset()


Entry = TaskEntry | RunRecord | Tombstone


class Key(NamedTuple):
    """A task by its name, or a run by its id."""

    is_task: bool
    name: str


class Version(NamedTuple):
    """The last entry that a reader was told of, and how many fits of heads they have seen."""

    number: int
    fits: int


class Unchanged(NamedTuple):
    """For this reader nothing changed after the entry `since`, up to the entry `until`."""

    since: int
    until: int


class Page(NamedTuple):
    """`version`: up to which entry this reports; `whole`: forget what was reported before."""

    version: str
    whole: bool
    more: bool
    entries: list[tuple[Key, Entry]]


class Board:
    """Entries by key, numbered in the order of their last change."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._epoch = registry, new_id()[:8]
        self._secret = secrets.token_bytes(16)
        self._versions: dict[str, Version] = {}  # by the text that was returned
        self._fits: Counter[str] = Counter()  # by the owner of private tasks, "" of none
        self._unchanged: dict[tuple[str | None, bool], Unchanged] = {}  # by reader
        self._owners: Mapping[str, str] = {}  # of the private tasks
        self._entries: dict[Key, Entry] = {}
        self._numbers: dict[Key, int] = {}  # of the last changes, in this order
        self._waiting: dict[Key, None] = {}  # the entries that wait
        self._tombstones: dict[Key, None] = {}  # the entries that are gone, the oldest first
        self._number = self._floor = 0
        self._left: dict[str, RunRecord] = {}  # work that is owed, or failed or was cancelled
        self._event = self._writes = -1  # as of the last look
        # of the last look at what waits; with its changes and situation
        self._state: State | None = None
        self._changes, self._plan = 0, object()
        self._again = -math.inf  # before then, what waits is not told again

    @property
    def changes(self) -> str:
        """While this stays the same, nothing is new for anybody. It counts private changes too."""
        return f"{self._epoch}.{self._number}"

    def page(self, context: RequestContext, since: str, sees: Callable[[Key, Entry], bool]) -> Page:
        """What changed since a version, the oldest first. Everything if the version is not of this
        process, or if heads were fitted since: every task may then report more."""
        fits = self._fits_of(context.user)
        before = self._versions.get(since, Version(-1, 0))
        whole = before.number < self._floor or before.fits != fits
        reader, last = (context.user, context.limited), 0 if whole else before.number
        quiet = self._unchanged.get(reader, Unchanged(-1, -1))
        begin = quiet.until if quiet.since == last else last
        told, more = list[tuple[Key, Entry]](), False
        for key in self._since(begin):
            entry = self._entries[key]
            if not sees(key, entry):
                continue
            if more := len(told) == SHOWN:
                break
            last = self._numbers[key]
            if not (whole and isinstance(entry, Tombstone)):
                told.append((key, entry))
        last = max(last, self._floor)
        if not more:
            _keep(self._unchanged, reader, Unchanged(last, self._number), READERS)
        return Page(self._written(Version(last, fits)), whole, more, told)

    def page_of(self, names: Collection[str]) -> Page:
        """These tasks, which must exist, and the work on them."""
        runs = self._registry.runs((*OWED, *STOPPED), kinds=KINDS, tasks=names)
        keys = [Key(True, name) for name in dict.fromkeys(names)]
        keys += [Key(False, run.run_id) for run in runs]
        found = ((key, self._entries[key]) for key in keys if key in self._entries)
        told: list[tuple[Key, Entry]] = [
            (key, entry) for key, entry in found if not isinstance(entry, Tombstone)
        ]
        return Page("", whole=True, more=False, entries=told)

    def is_visible(self, key: Key, sees: Callable[[Key, Entry], bool]) -> bool:
        """Whether a reader with this `sees` is told of the entry."""
        return key in self._entries and sees(key, self._entries[key])

    def task(self, name: str) -> TaskEntry:
        """The entry of a task that exists, as of the last look."""
        entry = self._entries[Key(True, name)]
        assert isinstance(entry, TaskEntry)
        return entry

    def update(self, state: State) -> None:
        """Take in what happened since the last look."""
        self._owners = state.owners
        if (writes := self._registry.writes.spent().times) != self._writes:
            self._read(state)
            self._writes = writes
        is_new = state is not self._state or state.changes != self._changes
        if is_new and time.monotonic() >= self._again:
            self._state, self._changes = state, state.changes
            self._mark_waiting(situation(state))

    def report_progress(self, run_id: str, task: str | None, progress: Progress) -> None:
        """Take in how far a run is; `task`: whose training or refresh it is."""
        key = Key(True, task or "")
        entry = self._entries.get(key)
        if isinstance(entry, TaskEntry) and entry.training.run_id == run_id:
            training = replace(entry.training, progress=progress)
            self._put(key, replace(entry, training=training))
        key = Key(False, run_id)
        if isinstance(run := self._entries.get(key), RunRecord):
            self._put(key, replace(run, progress=progress))

    def tell_again(self, tasks: Iterable[str]) -> None:
        """Report these tasks, if they are there, as changed: what is not in the registry was."""
        keys = [Key(True, task) for task in tasks]
        self._touch([key for key in keys if isinstance(self._entries.get(key), TaskEntry)])

    # -- inside

    def _fits_of(self, user: str | None) -> int:
        return self._fits.total() if user is None else self._fits[user] + self._fits[""]

    def _written(self, version: Version) -> str:
        """A version as text: equal for equal versions, and without revealing how much happened."""
        parts = f"{version.number} {version.fits}".encode()
        text = blake2b(parts, digest_size=8, key=self._secret).hexdigest()
        _keep(self._versions, text, version, REMEMBERED)
        return text

    def _since(self, number: int) -> Iterator[Key]:
        """The keys that changed after this number, the oldest first."""
        if number == 0:
            return iter(self._numbers)  # read lazily: a reader gets a few, the oldest
        newer = takewhile(lambda key: self._numbers[key] > number, reversed(self._numbers))
        return reversed([*newer])

    def _put(self, key: Key, entry: TaskEntry | RunRecord | None) -> None:
        if entry is None:
            old = self._entries.get(key)
            if old is None or isinstance(old, Tombstone):
                return
            self._entries[key] = self._gone(old)
            self._tombstones[key] = None
        else:
            self._entries[key] = entry
            self._tombstones.pop(key, None)
        self._waiting.pop(key, None)
        if _waits(self._entries[key]):
            self._waiting[key] = None
        self._touch([key])
        if entry is None:
            self._forget()

    def _gone(self, entry: TaskEntry | RunRecord) -> Tombstone:
        if isinstance(entry, TaskEntry):
            return Tombstone()
        return Tombstone(entry.kind, entry.user, owners_of(entry, self._owners))

    def _touch(self, keys: Collection[Key]) -> None:
        for key in keys:
            self._numbers.pop(key, None)
            self._number += 1
            self._numbers[key] = self._number

    def _forget(self) -> None:
        """Drop the oldest REMEMBERED // 2 tombstones once there are more than REMEMBERED."""
        if len(self._tombstones) > REMEMBERED:
            for key in [*islice(self._tombstones, REMEMBERED // 2)]:
                self._floor = self._numbers.pop(key)
                del self._entries[key], self._tombstones[key]

    def _mark_waiting(self, plan: object) -> None:
        """Not again before a reader had time for all: otherwise nobody would come to the end."""
        if plan != self._plan:
            self._plan = plan
            self._again = time.monotonic() + len(self._waiting) // SHOWN * PAGE_SECONDS
            self._touch([*self._waiting])

    def _read(self, state: State) -> None:
        begins = self._event < 0
        event, found = self._registry.events_after(self._event)
        if begins or len(found) > MANY:
            self._read_tasks(None)
            self._read_runs(None)
        elif found:
            if tasks := dict.fromkeys(one.task for one in found if one.task):
                self._read_tasks(tasks)
            if ids := dict.fromkeys(one.run_id for one in found if one.run_id):
                self._read_runs(ids)
            # Stopped evaluations of a model that somebody has again.
            if again := {one.composition for one in found if one.composition}:
                stopped = self._registry.runs(STOPPED, kinds=("evaluate",), models=again)
                self._left |= {run.run_id: run for run in stopped}
        fitted = [one.run_id for one in found if one.kind == "fitted" and one.run_id]
        runs = self._registry.runs(run_ids=fitted) if fitted else []  # forgotten ones are not found
        self._show_stopped(state)
        for run in runs:
            assert isinstance(run.work, FitWork)
            self._fits[run.work.owner] += 1
        self._event = event  # set last: what could not be read is read by the next look

    def _read_tasks(self, names: Collection[str] | None) -> None:
        tasks = {task.name: task for task in self._registry.tasks(names=names)}
        # Some are read by ids: by kind and tasks SQLite would scan all trainings.
        ids = None if names is None else [task.run_id for task in tasks.values()]
        trainings = self._registry.runs(kinds=("train",) if ids is None else None, run_ids=ids)
        of = {run.run_id: run for run in trainings}
        champions = self._registry.champion_references(names)
        firsts = self._registry.first_references(names)
        left = self._registry.runs((*OWED, *STOPPED), kinds=("refresh",), tasks=names)
        refreshes = {
            run.task: run.state
            for run in sorted(left, key=lambda run: run.state in OWED)  # the last one counts
            if run.state in OWED or _is_of(run, champions.get(run.task or ""))
        }
        samples = {one.task: one.blob.rows for one in self._registry.shards(*(names or ()))}
        known = (key.name for key in self._entries if key.is_task)
        for name in dict.fromkeys((*known, *tasks)) if names is None else names:
            entry: TaskEntry | None = None
            if (task := tasks.get(name)) and (training := of.get(task.run_id)):
                vectors = champions.get(name), firsts.get(name)
                entry = TaskEntry(task, training, *vectors, refreshes.get(name), samples.get(name))
            self._put(Key(True, name), entry)

    def _read_runs(self, run_ids: Collection[str] | None) -> None:
        runs = self._registry.runs
        if run_ids is None:
            upkeep = runs((*OWED, *STOPPED), kinds=("refresh", "measure", "fit"))
            found = [*upkeep, *runs(OWED, kinds=OF_MODELS), *self._registry.stopped_and_wanted()]
        else:
            found = runs((*OWED, *STOPPED), kinds=KINDS, run_ids=run_ids)
        left = {run.run_id: run for run in found}
        for run_id in self._left | left if run_ids is None else run_ids:
            self._left.pop(run_id, None)
            run = left.get(run_id)
            if run is not None:
                self._left[run_id] = run
            if run is None or run.state in OWED:
                self._put(Key(False, run_id), run)

    def _show_stopped(self, state: State) -> None:
        """Show what failed as long as it matters. Runs that make or evaluate a model that nobody
        wants any more are dropped: wanting it again is an event."""
        stopped = {run_id: run for run_id, run in self._left.items() if run.state in STOPPED}
        asked = [i for i, run in stopped.items() if run.kind in OF_MODELS]
        unwanted = {*asked} - self._registry.still_wanted(asked)
        for run_id, run in stopped.items():
            key = Key(False, run_id)
            if run_id in unwanted:
                del self._left[run_id]
            if run_id in unwanted or self._is_past(run, state):
                self._put(key, None)
            elif self._entries.get(key) != run:
                self._put(key, run)

    def _is_past(self, run: RunRecord, state: State) -> bool:
        """Whether a stopped run matters no longer: a refresh of a vector that is no champion any
        more, or a fit or a measure that is not of the present champions."""
        if run.kind in ("fit", "measure"):
            return not is_current(state, state.runs[run.run_id])
        if run.kind != "refresh":
            return False
        return not _is_of(run, self._champion(run.task))

    def _champion(self, task: str | None) -> VectorRef | None:
        entry = self._entries.get(Key(True, task or ""))
        return entry.champion if isinstance(entry, TaskEntry) else None


def owners_of(run: RunRecord, owners: Mapping[str, str]) -> Owners:
    """The sets of owners of which a reader must see one whole; of a measure, one pair is enough."""
    groups = [{run.task} if run.task else set[str]()]
    if run.kind == "fit":
        assert isinstance(run.work, FitWork)
        return frozenset([frozenset({run.work.owner} - {""})])
    if run.kind == "compose":
        groups = [tasks_of(run.work)]
    elif run.kind == "measure" and isinstance(run.work, MeasureWork):
        groups = [{vector.task, shard.task} for vector, shard in run.work.pairs]
    return frozenset(frozenset(owners[task] for task in group & owners.keys()) for group in groups)


def _is_of(refresh: RunRecord, champion: VectorRef | None) -> bool:
    return champion is not None and champion.version == refresh.version


def _waits(entry: Entry) -> bool:
    run = entry.training if isinstance(entry, TaskEntry) else entry
    return isinstance(run, RunRecord) and run.state == RunState.QUEUED


K = TypeVar("K")
V = TypeVar("V")


def _keep(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Store a value as the newest, and drop the oldest beyond `most`."""
    known.pop(key, None)
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]
