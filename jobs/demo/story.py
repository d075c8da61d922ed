"""The story of `tacl demo` in chapters: tasks arrive, vectors are refreshed, users compose.

It uses only `cluster.client.client.Client`, as a user's own program would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.client.client import Client
from cluster.domain.status import ClusterStatus, RunStatus
from cluster.domain.work import Evaluated
from tacl import embedded
from tacl.embedded.parquet import png
from tacl.errors import RunFailed

EVERYONE = "everyone"  # a user whose model is the sum of all vectors so far
ASKED_SEED = 77  # of the pictures that are queried: in no training or test row

Watch = Callable[[ClusterStatus], None]


@dataclass(frozen=True)
class Plan:
    """Tasks and sizes of the story; `options` are used for every submission."""

    tasks: tuple[str, ...] = embedded.tasks()
    train_rows: int = 800
    test_rows: int = 300
    options: Mapping[str, Any] = field(default_factory=dict)


QUICK = Plan(("signs", "land"), train_rows=300, test_rows=100, options={"steps": 40})  # a minute


@dataclass(frozen=True)
class Refreshing:
    """One label-free refresh; figures are mean squares, relative to the vector's own effect."""

    vector: str  # TASK@vN
    version: int | None  # the new one; None if the old one stays
    reason: str
    interference_before: float | None = None
    interference_after: float | None = None
    own_change: float | None = None


@dataclass(frozen=True)
class ArrivedTask:
    """A task that arrived and was trained, and the refreshes of older vectors against it."""

    task: str
    sum: Evaluated  # of all vectors so far
    unrefreshed: Evaluated | None  # the sum of first versions; None if nothing was refreshed
    refreshes: tuple[Refreshing, ...]


@dataclass(frozen=True)
class RankedClasses:
    user: str
    task: str
    shown: str  # the class of the picture
    ranked: tuple[tuple[str, float], ...]  # (class, probability), likeliest first


@dataclass(frozen=True)
class Users:
    """Users with different models, composed of the same vectors."""

    models: dict[str, tuple[str, ...]]  # user -> terms
    answers: tuple[RankedClasses, ...]


@dataclass(frozen=True)
class Subtraction:
    """The sum, and the model with one vector subtracted instead of added."""

    task: str
    sum: Evaluated
    subtracted: Evaluated


Chapter = ArrivedTask | Users | Subtraction


def story(client: Client, folder: Path, plan: Plan, watch: Watch) -> Iterator[Chapter]:
    """Yield the chapters; while one is read, the cluster works on the next. RunFailed ends it."""
    teller = _Teller(client, plan, watch)
    told: Callable[[], ArrivedTask] | None = None
    for name in plan.tasks:
        teller.submit(name, folder / name)
        if told is not None:
            yield told()
        client.wait(progress=watch, poll=0.5)
        told = teller.arrived(name)
    assert told is not None  # a plan has tasks
    subtraction = teller.subtract(plan.tasks[-1])
    last = told()
    yield last
    yield teller.users()
    yield Subtraction(plan.tasks[-1], last.sum, teller.evaluated(subtraction))


class _Teller:
    """The state of the story between chapters."""

    def __init__(self, client: Client, plan: Plan, watch: Watch) -> None:
        self.client, self.plan, self._watch = client, plan, watch
        self.pinned: dict[str, int] = {}  # the versions of the last sum
        self.seen: set[str] = set()  # refresh runs

    def submit(self, name: str, folder: Path) -> None:
        embedded.write_parquet(name, folder, self.plan.train_rows, self.plan.test_rows, seed=0)
        self.client.submit(name, folder, refresh="on_arrival", **self.plan.options)

    def arrived(self, name: str) -> Callable[[], ArrivedTask]:
        """Compose the sum of the current versions, and the sum as if nothing had been refreshed,
        and request their evaluations. The returned function waits for both."""
        first = dict.fromkeys((*self.pinned, name), 1)
        model = self.client.compose(EVERYONE, _sum([*first]))
        made = {term.vector.task: term.vector.version for term in model.terms}
        self.pinned = {task: made[task] for task in first}  # in the order of arrival
        sum_run, before = self.client.evaluating(EVERYONE), None
        if self.pinned != first:
            self.client.compose("unrefreshed", [f"+{task}@v1" for task in first])
            before = self.client.evaluating("unrefreshed")
        refreshes = tuple(self._refreshes())

        def told() -> ArrivedTask:
            unrefreshed = self._by_arrival(before, first) if before else None
            return ArrivedTask(name, self._by_arrival(sum_run, first), unrefreshed, refreshes)

        return told

    def evaluated(self, run_id: str) -> Evaluated:
        return self.client.evaluation(run_id, lambda run: self._watch(self.client.status()))

    def _by_arrival(self, run_id: str, tasks: Iterable[str]) -> Evaluated:
        found = self.evaluated(run_id)
        return found.model_copy(update={"per_task": {task: found.per_task[task] for task in tasks}})

    def subtract(self, task: str) -> str:
        """Start a run that evaluates the sum with `task` subtracted; returns its id."""
        kept = [name for name in self.pinned if name != task]
        self.client.compose("subtracted", [*_sum(kept), f"-{task}"])
        return self.client.evaluating("subtracted")

    def users(self) -> Users:
        """Compose two models that share a vector; query each with a picture of each task."""
        names = list(self.pinned)
        half = (len(names) + 1) // 2
        models = {"alice": _sum(names[:half]), "bob": _sum(names[half - 1 :])}
        answers = [answer for user in models for answer in self._asked(user, models[user])]
        return Users({user: tuple(terms) for user, terms in models.items()}, tuple(answers))

    def _asked(self, user: str, terms: Sequence[str]) -> Iterator[RankedClasses]:
        self.client.compose(user, terms)
        for number, task in enumerate(task for task in self.pinned if f"+{task}" in terms):
            images, labels = embedded.generate(task, number + 1, ASKED_SEED)
            found = self.client.query(user, [png(images[-1])], [task])
            shown = embedded.classes(task)[labels[-1]]
            yield RankedClasses(user, task, shown, tuple(found.answers[0][task]))

    def _refreshes(self) -> Iterator[Refreshing]:
        """The refreshes that ended since the last arrival."""
        for task in self.pinned:
            made = {one.run_id: one.version for one in self.client.vectors(task)}
            for run in self.client.task(task).runs:
                if run.kind == "refresh" and run.run_id not in self.seen:
                    self.seen.add(run.run_id)
                    yield _refreshing(self.client, run, made.get(run.run_id))


def _refreshing(client: Client, run: RunStatus, version: int | None) -> Refreshing:
    vector = f"{run.task}@v{run.version}"
    try:
        found = client.refreshed(run.run_id)
    except RunFailed as error:  # the old version stays, and the story continues
        return Refreshing(vector, None, str(error))
    figures = {name: found.metrics.get(name) for name in _FIGURES}
    return Refreshing(vector, version, found.reason, **figures)


_FIGURES = ("interference_before", "interference_after", "own_change")


def _sum(names: Sequence[str]) -> list[str]:
    return [f"+{name}" for name in names]
