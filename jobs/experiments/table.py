"""A table: its definition, from which `runner.py` makes it; and its stored form, with the entries,
the settings and the commands that made them.

A table grows: a later run with other seeds or variants adds its entries to those that were made
with the same settings.
"""

from __future__ import annotations

import json
import math
import reprlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jobs.experiments.bootstrap import Difference
from jobs.experiments.cache import Cost, together
from jobs.experiments.context import Experiment
from jobs.experiments.models import TrainedVector
from jobs.experiments.suites import Suite
from tacl.backbone import Backbone
from tacl.errors import BadConfig

SHOWN = 3  # differences in a message
Numbers = dict[str, float | None]


@dataclass
class Entry:
    """One variant with one seed. `numbers` are the columns, `tasks` the same for each task, `more`
    the data of a picture. Costs are those of all trainings, and of what followed them.
    `coefficients`: how they are chosen, if rows of the table differ in it. `right`: which test rows
    of each task are right, by column (`bootstrap.packed`)."""

    variant: str
    seed: int
    saw_training: str
    saw_merging: str
    numbers: Numbers
    tasks: dict[str, Numbers] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    training: Cost = field(default_factory=Cost)
    merging: Cost = field(default_factory=Cost)
    coefficients: str = ""
    right: dict[str, dict[str, str]] = field(default_factory=dict)


def means_of(tasks: Mapping[str, Numbers]) -> Numbers:
    """The mean of each number over the tasks that have it; None if no task has."""
    found: Numbers = {}
    for key in next(iter(tasks.values())):
        known = [value for numbers in tasks.values() if (value := numbers[key]) is not None]
        found[key] = statistics.fmean(known) if known else None
    return found


class Column(NamedTuple):
    """`percent`: a share in [0, 1], shown as a percentage."""

    key: str
    heading: str
    percent: bool = True


def shares(**headings: str) -> tuple[Column, ...]:
    """Columns of shares by key."""
    return tuple(Column(key, heading) for key, heading in headings.items())


def figures(**headings: str) -> tuple[Column, ...]:
    """Columns of other numbers by key."""
    return tuple(Column(key, heading, percent=False) for key, heading in headings.items())


@dataclass
class Table:
    """`settings` are those that all entries of a table share: suite, base and weights."""

    name: str
    title: str
    about: str
    columns: Sequence[Column]
    settings: dict[str, Any]
    data: dict[str, dict[str, int]] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Add an entry; it replaces one of the same variant and seed."""
        same = [(e.variant, e.seed) for e in self.entries]
        if (entry.variant, entry.seed) in same:
            self.entries[same.index((entry.variant, entry.seed))] = entry
        else:
            self.entries.append(entry)

    def sort(self, variants: Sequence[str]) -> None:
        """Sort the entries in the order of `variants`, then by seed; entries of other variants come
        last."""
        place = {variant: number for number, variant in enumerate(variants)}
        self.entries.sort(key=lambda one: (place.get(one.variant, len(place)), one.seed))

    def variants(self) -> list[str]:
        return list(dict.fromkeys(entry.variant for entry in self.entries))

    def of(self, variant: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.variant == variant]

    def as_dict(self) -> dict[str, Any]:
        columns = [column._asdict() for column in self.columns]
        return asdict(self) | {"columns": columns, "summary": self.summary()}

    def spread(self, variant: str, key: str) -> OverSeeds | None:
        """Mean and deviation of a number over the seeds."""
        return spread([entry.numbers.get(key) for entry in self.of(variant)])

    def summary(self) -> dict[str, dict[str, dict[str, Any] | None]]:
        """Mean and deviation over the seeds, by variant and column."""
        keys = [column.key for column in self.columns]
        return {
            variant: {key: (one := self.spread(variant, key)) and one._asdict() for key in keys}
            for variant in self.variants()
        }


class OverSeeds(NamedTuple):
    """Over seeds; `deviation` is the sample's, None for one seed."""

    mean: float
    deviation: float | None
    count: int


def spread(values: Sequence[float | None]) -> OverSeeds | None:
    """Mean and deviation of the values; None if nothing was measured."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return OverSeeds(statistics.fmean(known), deviation, len(known))


def grown(fresh: Table, path: Path) -> Table:
    """`fresh` with the entries of the file.

    Raises BadConfig if the file's rows do not fit: they were made under other settings, have other
    columns or are about data with other classes or test rows.
    """
    if not path.is_file():
        return fresh
    known = json.loads(path.read_text())
    mine = json.loads(json.dumps(fresh.as_dict()))
    names = known["data"].keys() & fresh.data.keys()
    before, after = ({**one, "data": _tested(one["data"], names)} for one in (known, mine))
    different = [
        f"{name} {reprlib.repr(was)}, now {reprlib.repr(now)}"
        for part in ("settings", "columns", "data")
        for name, was, now in _differences(part, before[part], after[part])
    ]
    if different:
        shown = "; ".join(different[:SHOWN]) + (", ..." if len(different) > SHOWN else "")
        raise BadConfig(
            f"{path} has {len(known['entries'])} rows made otherwise: {shown}; "
            "move it away, or choose another --out"
        )
    fresh.entries = [_entry(one) for one in known["entries"]]
    fresh.commands = list(dict.fromkeys([*known["commands"], *fresh.commands]))
    fresh.data = known["data"] | fresh.data
    return fresh


def _tested(data: dict[str, dict[str, int]], names: Set[str]) -> dict[str, dict[str, int]]:
    """The sizes that do not depend on the seed, which determines the other splits."""
    return {name: {part: data[name][part] for part in ("classes", "test")} for name in names}


def _differences(name: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ: dotted names of fields, with both values."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            yield from _differences(f"{name}.{key}", was.get(key), now.get(key))
    elif was != now:
        yield name, was, now


def _entry(known: dict[str, Any]) -> Entry:
    costs: dict[str, Any] = {name: Cost(**known[name]) for name in ("training", "merging")}
    return Entry(**{**known, **costs})


Train = Callable[[Experiment, str], TrainedVector]


@dataclass(frozen=True)
class Method:
    """A row: how the vector of each task is trained, and what each step sees of the data.

    `train` None: no vector is needed, or not one for each task of the pool.
    """

    name: str
    train: Train | None
    saw_training: str
    saw_merging: str

    def require(self, suite: Suite, backbone: Backbone) -> None:
        """BadConfig if a table of this suite, on this base, cannot have the row."""

    def vectors(self, experiment: Experiment) -> dict[str, TrainedVector]:
        """The vectors of the pool, as first trained."""
        train = self.train
        return {task: train(experiment, task) for task in experiment.pool} if train else {}

    def entry(
        self,
        experiment: Experiment,
        numbers: Numbers,
        tasks: dict[str, Numbers] | None = None,
        more: dict[str, Any] | None = None,
        training: Sequence[Cost] = (),
        merging: Sequence[Cost] = (),
    ) -> Entry:
        """The entry of this method under the seed of the experiment."""
        costs = together(training), together(merging)
        saw = self.saw_training, self.saw_merging
        return Entry(self.name, experiment.seed, *saw, numbers, tasks or {}, more or {}, *costs)


@dataclass(frozen=True)
class Spec:
    """`methods` are made in this order, the most informative first, unless others are requested.

    `finish` computes what needs several entries, each time before the table is written. `ahead`:
    its trainings are those of the whole pool, and can be done in parallel. `targets`: the table
    also covers the suite's tasks outside the pool.
    """

    name: str
    about: str
    columns: Sequence[Column]
    methods: Callable[[Suite], Sequence[Method]]
    measure: Callable[[Experiment, Any], Entry]
    picture: Callable[[Table, Path], None]
    finish: Callable[[Table], None] = lambda table: None
    ahead: bool = True
    targets: bool = False

    def variants(self, suite: Suite) -> list[str]:
        return [method.name for method in self.methods(suite)]

    def method(self, suite: Suite, variant: str) -> Method:
        return next(method for method in self.methods(suite) if method.name == variant)

    def entry(self, experiment: Experiment, variant: str) -> Entry:
        return self.measure(experiment, self.method(experiment.suite, variant))
