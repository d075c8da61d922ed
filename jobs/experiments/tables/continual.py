"""Continual learning: tasks arrive one by one, and after each the model so far is evaluated on all.

Task k is trained against the samples that were there when it arrived: those of the generic set and
of the tasks before it. Vectors before it are not trained again; refreshing them needs no label.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from jobs.experiments import plots
from jobs.experiments.cache import Made
from jobs.experiments.context import Bench
from jobs.experiments.cost import Cost, together
from jobs.experiments.directions import Direction, Kept, Sum, Vector, features
from jobs.experiments.methods import ALL_LABELS, INPUTS, LABELS, NOTHING, ordinary
from jobs.experiments.models import right
from jobs.experiments.spec import Spec
from jobs.experiments.table import Column, Entry, Numbers
from jobs.experiments.training import joint, refreshed, trained
from tacl.compose.elementwise import magmax
from tacl.compose.spectral import opcm
from tacl.evaluation import metrics
from tacl.vectors.params import Params

PART = "test:300"
EARLIER = "own labels, earlier tasks' inputs"
ABOUT = (
    "Tasks arrive one by one, in an order by seed; the seed also decides splits and batches. R[i, "
    "j] is the accuracy on task j, on at most 300 of its test rows and with its own head, after "
    "task i arrived. *ACC*: mean of the last row. *AIA*: mean over i of the mean over tasks so "
    "far. *BWT*: mean of R[T, j] - R[j, j]. *Forgetting*: from the best before the end. *FWT*: "
    "mean of R[j-1, j] - zero-shot. *Class-incremental*: at the end, one head over all classes. "
    "`joint` is trained on all tasks at once: the ceiling."
)
COLUMNS = (
    Column("acc", "ACC"),
    Column("aia", "AIA"),
    Column("bwt", "BWT"),
    Column("forgetting", "forgetting"),
    Column("fwt", "FWT"),
    Column("class_incremental", "class-incremental"),
)


@dataclass(frozen=True)
class Arrival:
    """The model after an arrival, and what it took since the one before."""

    model: Direction
    training: Cost
    merging: Cost


Stream = Callable[[Bench, list[str]], list[Arrival]]


def order_of(bench: Bench) -> list[str]:
    """The order in which the pool arrives under this seed."""
    order = list(bench.pool)
    random.Random(f"order {bench.seed}").shuffle(order)
    return order


def linear_sum(bench: Bench, order: list[str]) -> list[Arrival]:
    return _sums([trained(bench, task) for task in order])


def tau_jp_sum(bench: Bench, order: list[str]) -> list[Arrival]:
    return _sums(_against_earlier(bench, order))


def tau_jp_refreshed(bench: Bench, order: list[str]) -> list[Arrival]:
    """At every arrival those before it are refreshed, from where they are, against all so far.

    The new vector was trained against all of them: it needs none.
    """
    arrivals: list[Arrival] = []
    now: dict[str, Vector] = {}
    for vector in _against_earlier(bench, order):
        before = sum(v.later.cpu_seconds for v in now.values())
        so_far = [*now, vector.task]
        now = {t: refreshed(bench, v, [s for s in so_far if s != t]) for t, v in now.items()}
        spent = sum(v.later.cpu_seconds for v in now.values()) - before
        now[vector.task] = vector
        model = Sum([(1.0, v) for v in now.values()])
        arrivals.append(Arrival(model, vector.cost, Cost(cpu_seconds=spent)))
    return arrivals


def _against_earlier(bench: Bench, order: list[str]) -> list[Vector]:
    generic = bench.suite.generics
    return [trained(bench, task, [*generic, *order[:k]]) for k, task in enumerate(order)]


def _sums(vectors: list[Vector]) -> list[Arrival]:
    return [
        Arrival(Sum([(1.0, v) for v in vectors[: k + 1]]), vector.cost, Cost())
        for k, vector in enumerate(vectors)
    ]


def magmax_so_far(bench: Bench, order: list[str]) -> list[Arrival]:
    """Each entry of largest magnitude, over vectors that start where the one before ended."""

    def merge(vectors: list[Vector]) -> Params:
        kept = [vector.task_vector(bench.backbone.digest) for vector in vectors]
        return magmax(kept, [1.0] * len(kept))

    return _merges(bench, "magmax", one_after_another(bench, order), merge)


def opcm_so_far(bench: Bench, order: list[str]) -> list[Arrival]:
    """Projected away from what was merged before (arXiv 2501.09522)."""
    vectors = [ordinary(bench, task) for task in order]
    return _merges(bench, "opcm", vectors, lambda some: opcm([v.tau() for v in some]))


def sequential(bench: Bench, order: list[str]) -> list[Arrival]:
    """Ordinary fine-tuning of one model on task after task."""
    vectors = one_after_another(bench, order)
    return [Arrival(vector, vector.cost, Cost()) for vector in vectors]


def one_after_another(bench: Bench, order: list[str]) -> list[Vector]:
    vectors: list[Vector] = []
    for task in order:
        start = vectors[-1] if vectors else None
        vectors.append(trained(bench, task, regime="ordinary", start=start))
    return vectors


def _merges(
    bench: Bench, name: str, vectors: list[Vector], merge: Callable[[list[Vector]], Params]
) -> list[Arrival]:
    arrivals = []
    for k, vector in enumerate(vectors):
        some = vectors[: k + 1]

        def make(some: list[Vector] = some) -> Made:
            return {}, merge(some)

        decides = bench.decided_by(merge=name, vectors=[one.key for one in some])
        cell = bench.cells.get("merge", decides, make, f"{name} of {k + 1}, seed {bench.seed}")
        arrivals.append(Arrival(Kept(cell, vector.regime), vector.cost, cell.cost))
    return arrivals


def ceiling(bench: Bench, order: list[str]) -> list[Arrival]:
    model = joint(bench, "ordinary")
    return [Arrival(model, model.cell.cost, Cost())]


@dataclass(frozen=True)
class Method:
    arrivals: Stream
    saw_training: str
    saw_merging: str


METHODS = {
    "linear": Method(linear_sum, LABELS, NOTHING),
    "taujp": Method(tau_jp_sum, EARLIER, NOTHING),
    "taujp+refresh": Method(tau_jp_refreshed, EARLIER, INPUTS),
    "sequential": Method(sequential, LABELS, NOTHING),
    "magmax": Method(magmax_so_far, LABELS, NOTHING),
    "opcm": Method(opcm_so_far, LABELS, NOTHING),
    "joint": Method(ceiling, ALL_LABELS, "one training for all tasks"),
}


def entry(bench: Bench, variant: str) -> Entry:
    method, order = METHODS[variant], order_of(bench)
    arrivals = method.arrivals(bench, order)
    R = [_accuracies(bench, arrival.model, order) for arrival in arrivals]
    zero_shot = right(bench, {task: bench.features(task, PART) for task in order}, PART)
    b_T = torch.tensor([zero_shot[task] for task in order])
    numbers: Numbers = {"class_incremental": _task_unknown(bench, arrivals[-1].model)}
    if len(R) == len(order):
        numbers |= asdict(metrics.continual(torch.tensor(R, dtype=torch.float64), b_T.double()))
    else:  # all tasks at once: there is no way from one to the next
        numbers["acc"] = sum(R[-1]) / len(R[-1])
    return Entry(
        variant,
        bench.seed,
        method.saw_training,
        method.saw_merging,
        numbers,
        more={"order": order, "R": R, "zero_shot": [zero_shot[task] for task in order]},
        training=together([arrival.training for arrival in arrivals]),
        merging=together([arrival.merging for arrival in arrivals]),
    )


def _accuracies(bench: Bench, model: Direction, order: list[str]) -> list[float]:
    found = right(bench, {t: features(bench, model, t, PART) for t in order}, PART)
    return [found[task] for task in order]


def _task_unknown(bench: Bench, model: Direction) -> float:
    found = {task: features(bench, model, task, PART) for task in bench.pool}
    labels = {task: bench.rows(task).labels_N(PART) for task in bench.pool}
    heads = {task: bench.head(task) for task in bench.pool}
    return metrics.absolute(metrics.class_incremental(found, labels, heads))


SPEC = Spec("continual", ABOUT, COLUMNS, lambda suite: list(METHODS), entry, plots.arrivals)
