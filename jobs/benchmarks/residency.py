"""How much predictors find in their memory if it holds only a part of the vectors.

Caching and routing are those of serving (`cluster.serving.residency`, `cluster.serving.routing`);
vectors are numbers of bytes, and nothing is computed or timed, so that every machine gives the same
numbers. No predictor is ever busy.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.tasks import VectorRef
from cluster.serving.residency import Residency
from cluster.serving.routing import keeper
from jobs.benchmarks.load import OF_EACH
from jobs.console.documents import markdown_table

EACH = 1 << 20  # bytes of a vector
BATCH = 16  # queries of a pass
PREDICTORS = (1, 2, 4)
PARTS = (0.1, 0.25, 0.5)  # of all vectors, that fit into the memory of one predictor
LOADS = ("uniform", "zipf")  # of queries over users, and of users' choices over vectors


@dataclass(frozen=True)
class LoadSizes:
    vectors: int
    users: int
    requests: int


@dataclass(frozen=True)
class HitRates:
    """`anywhere` and `keeper`: the share of needed vectors that were in memory, if queries go to
    any predictor and if they go to their model's keeper; half of the requests warm up. `bytes`: the
    most that a predictor held, `budget` what it may hold; `busiest`: queries of the busiest keeper,
    as a multiple of the mean."""

    load: str
    predictors: int
    budget: int
    bytes: int
    anywhere: float
    keeper: float
    busiest: float


def bench_residency(sizes: LoadSizes, say: Callable[[int, int], None]) -> list[HitRates]:
    cases = list(itertools.product(LOADS, PREDICTORS, PARTS))
    models = {load: _models(load, sizes) for load in LOADS}
    found: list[HitRates] = []
    for load, predictors, part in cases:
        say(len(found), len(cases))
        budget = int(part * sizes.vectors) * EACH
        found.append(_held(load, predictors, budget, models[load], sizes))
    return found


def _held(
    load: str, predictors: int, budget: int, models: Sequence[Composition], sizes: LoadSizes
) -> HitRates:
    names, chance = tuple(f"p{number}" for number in range(predictors)), random.Random(2)
    anywhere, kept = _Predictors(names, budget), _Predictors(names, budget)
    users = drawn(load, sizes.users, random.Random(3))
    for user in itertools.islice(users, sizes.requests):
        anywhere.ask(chance.choice(names), models[user])
        kept.ask(keeper(models[user], names), models[user])
    return HitRates(
        load=load,
        predictors=predictors,
        budget=budget,
        bytes=max(anywhere.most, kept.most),
        anywhere=anywhere.rate(),
        keeper=kept.rate(),
        busiest=max(kept.count.values()) * predictors / sizes.requests,
    )


class _Predictors:
    """Predictors that answer in batches."""

    def __init__(self, names: Sequence[str], budget: int) -> None:
        self._waiting: dict[str, list[Composition]] = {name: [] for name in names}
        self._kept = {name: Residency(budget) for name in names}
        self._rates: list[tuple[int, int]] = []  # hits and misses of each batch
        self.count, self.most = Counter[str](), 0

    def ask(self, name: str, model: Composition) -> None:
        self.count[name] += 1
        self._waiting[name].append(model)
        if len(self._waiting[name]) == BATCH:
            self._answer(self._kept[name], self._waiting[name])
            self._waiting[name].clear()

    def _answer(self, kept: Residency, models: Sequence[Composition]) -> None:
        hits, misses = kept.hits, kept.misses
        with kept.batch():
            for model in models:
                for term in model.terms:
                    kept.get(term.vector.digest, lambda _: None, lambda _: EACH)
        self._rates.append((kept.hits - hits, kept.misses - misses))
        self.most = max(self.most, kept.bytes)

    def rate(self) -> float:
        later = self._rates[len(self._rates) // 2 :]
        hits, misses = (sum(counts) for counts in zip(*later, strict=True))
        return hits / (hits + misses)


def _models(load: str, sizes: LoadSizes) -> list[Composition]:
    chance, vectors = random.Random(0), drawn(load, sizes.vectors, random.Random(1))
    found = []
    for user in range(sizes.users):
        chosen: dict[int, None] = {}
        while len(chosen) < OF_EACH:
            chosen[next(vectors)] = None
        terms = [
            RecipeTerm(coefficient=chance.uniform(0.1, 1.5), vector=_vector(number))
            for number in chosen
        ]
        found.append(Composition(digest=f"m{user}", user=f"u{user}", terms=tuple(terms)))
    return found


def _vector(number: int) -> VectorRef:
    name = f"t{number}"
    return VectorRef(task=name, version=1, digest=name, blob=name, head_blob=name, run_id=name)


def drawn(load: str, count: int, chance: random.Random) -> Iterator[int]:
    """Numbers below `count`: uniformly, or the n-th in proportion to 1/n (Zipf)."""
    weights = [1.0 if load == "uniform" else 1 / (1 + n) for n in range(count)]
    cumulative = list(itertools.accumulate(weights))
    while True:
        yield from chance.choices(range(count), cum_weights=cumulative, k=1000)


def markdown(found: Sequence[HitRates], sizes: LoadSizes) -> str:
    """The table for results/residency.md."""
    rows = [
        (
            one.load,
            f"{one.predictors}",
            f"{one.budget >> 20:,}",
            f"{one.bytes >> 20:,}",
            f"{one.anywhere:.2f}",
            f"{one.keeper:.2f}",
            f"{one.busiest:.2f}",
        )
        for one in found
    ]
    columns = ("load", "predictors", "MiB each may fill", "MiB filled", "found, any predictor")
    columns += ("found, keeper of the model", "busiest, of the mean")
    command = f"tacl bench residency --vectors {sizes.vectors} --users {sizes.users}"
    command += f" --requests {sizes.requests} --out results/residency.md"
    return (
        f"# What predictors find in their memory\n\n{sizes.vectors:,} vectors of {EACH >> 20} MiB, "
        f"{sizes.users:,} users with {OF_EACH} of them each, {sizes.requests:,} requests in passes "
        f"of {BATCH}. `{command}` makes this, the same on every machine: sizes are counted, "
        "nothing is timed, and no predictor is ever too busy for its own models.\n\n"
        f"{markdown_table(columns, rows, '---:')}\n\n"
        "Found: of the vectors that the passes of the second half needed. Uniform: users ask "
        "equally often, and chose among all vectors alike. Zipf: the n-th user asks, and the n-th "
        "vector was chosen, in proportion to 1/n. Recipes share nothing else; users of a team who "
        "want the same tasks would find more.\n"
    )
