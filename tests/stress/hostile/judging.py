"""What was lost, doubled, wrong or a defect, and how much slower ann was answered."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from cluster.registry import Registry
from cluster.storage.home import Home
from tacl.errors import CorruptBlob
from tests.stress.hostile.scene import Place
from tests.stress.hostile.told import ANSWER, Span, Told, phase_of

MAX_SLOWER = 3.0
MIN_ANSWERS = 200  # below which a p99 says nothing
MIB = 1 << 20
BUDGETS = {  # MiB of a process of each kind; of a reader its own limit, libraries included
    "predictor": 2048, "ingress": 1024, "proxy": 1024, "controller": 512, "coordinator": 1024,
    "learner": 3072, "reader": 3072, "raylet": 1024, "gcs": 512, "head": 1024, "others": 1024,
}  # fmt: skip


class Seconds(BaseModel):
    """Of ann's answers, asking again included."""

    answers: int
    p50: float
    p99: float
    longest: float

    @staticmethod
    def of(found: Sequence[float]) -> Seconds:
        cuts = (
            statistics.quantiles(found, n=100, method="inclusive") if len(found) > 1 else [0] * 99
        )
        longest = max(found, default=0)
        return Seconds(answers=len(found), p50=cuts[49], p99=cuts[98], longest=longest)


class Found(BaseModel):
    """All that a run found, as `results/hostile.json` keeps it."""

    command: str
    machine: str
    minutes: float
    lost: list[str]
    doubled: list[str]
    wrong: list[str]
    defects: list[str]
    answers: dict[str, dict[str, int]]  # by user: how many of each status
    refused: dict[str, int]  # by error, of all users
    killed: dict[str, int]
    recovery: dict[str, list[float]]  # seconds until the server was whole, by kind
    tasks: int
    vectors: int
    quiet: Seconds
    attacked: Seconds
    whole_run: Seconds
    slower: float
    memory: dict[str, int]  # MiB, by kind

    def faults(self) -> list[str]:
        """What falls short, in words."""
        counts = {"lost": self.lost, "doubled": self.doubled, "wrong": self.wrong}
        said = [f"{kind}: {one}" for kind, which in counts.items() for one in which]
        said += [f"500: {one}" for one in self.defects]
        if self.is_measured and self.slower > MAX_SLOWER:
            said.append(f"p99 is {self.slower:.1f} times that without the attackers")
        over = [kind for kind, most in self.memory.items() if most > BUDGETS[kind]]
        return said + [f"{kind} had {self.memory[kind]} MiB of {BUDGETS[kind]}" for kind in over]

    @property
    def is_measured(self) -> bool:
        return min(self.quiet.answers, self.attacked.answers) >= MIN_ANSWERS


def answered(told: Sequence[Told], spans: Sequence[Span]) -> dict[str, Seconds]:
    """Of ann: without the attackers, with them, and over all."""
    hers = [one for one in told if one.what == ANSWER]
    by_phase = {
        phase: Seconds.of([one.seconds for one in hers if phase_of(one, spans) == phase])
        for phase in ("quiet", "attacked")
    }
    return by_phase | {"whole_run": Seconds.of([one.seconds for one in hers])}


def defects(told: Sequence[Told], spans: Sequence[Span]) -> list[str]:
    """Answers of 500 while every process was there."""
    found = (one for one in told if one.status == 500 and phase_of(one, spans) != "broken")
    return [f"{one.who}: {one.what}: {one.error}" for one in found]


def statuses(told: Sequence[Told]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for one in told:
        if one.what != ANSWER:
            counts.setdefault(one.who, Counter())[str(one.status)] += 1
    return {who: dict(sorted(of.items())) for who, of in counts.items()}


class Kept(BaseModel):
    lost: list[str]
    doubled: list[str]
    wrong: list[str]
    tasks: int
    vectors: int


def kept(place: Place) -> Kept:
    """What there is on the disk after all processes ended."""
    home, accepted = place.home, place.kept("accepted")
    registry = Registry(home.registry_url)
    try:
        return Kept(
            lost=_lost(registry, accepted, place.kept("runs"), place.kept("models")),
            doubled=_doubled(registry),
            wrong=_harmed(registry, home),
            tasks=len(registry.tasks()),
            vectors=len(registry.vectors()),
        )
    finally:
        registry.close()


def _lost(
    registry: Registry,
    accepted: Mapping[str, str],
    runs: Mapping[str, str],
    models: Mapping[str, str],
) -> list[str]:
    tasks = {task.name: task for task in registry.tasks(with_removed=True)}
    found = [f"task {name}" for name, run in accepted.items() if _run_of(tasks, name) != run]
    for name in accepted:
        if name in tasks and tasks[name].submission.owner == "bob" and not registry.vectors(name):
            state = registry.run(tasks[name].run_id)
            found.append(f"the vector of {name}: {state.state}, {state.cause}")
    states = {run: registry.run(run).state for run in runs}
    found += [f"composition {run}: {state}" for run, state in states.items() if state != "done"]
    now = {model.user: model.digest for model in registry.compositions(*models)}
    return found + [f"the model of {user}" for user, d in models.items() if now.get(user) != d]


def _run_of(tasks: Mapping[str, object], name: str) -> str | None:
    return getattr(tasks.get(name), "run_id", None)


def _doubled(registry: Registry) -> list[str]:
    tasks = registry.tasks(with_removed=True)
    ordinals = [task.ordinal for task in tasks]
    found = [] if ordinals == list(range(1, len(tasks) + 1)) else [f"tasks {ordinals}"]
    for task in tasks:
        versions = [entry.reference.version for entry in registry.vectors(task.name)]
        if versions != list(range(1, len(versions) + 1)):
            found.append(f"versions of {task.name}: {versions}")
    return found


def _harmed(registry: Registry, home: Home) -> list[str]:
    found, blobs = [], home.blobs()
    for digest, one in registry.referenced().items():
        try:
            blobs.verify(digest)
        except CorruptBlob as error:
            found.append(f"{one.what}: {error}")
    return found
