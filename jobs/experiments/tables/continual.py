"""Continual learning: tasks arrive one by one; after each arrival the model is evaluated on all.

Task k is trained against the samples that existed when it arrived: those of the generic set and of
the tasks before it. Earlier vectors are not trained again; refreshing them needs no label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch

from jobs.experiments import plots, saw
from jobs.experiments.cache import Cost
from jobs.experiments.context import Experiment
from jobs.experiments.merging import Merge, merge_of
from jobs.experiments.methods import order_of, ordinary
from jobs.experiments.models import Direction, Model, Sum, TrainedVector, task_accuracies, zero_shot
from jobs.experiments.planned import planned
from jobs.experiments.table import Entry, Method, Numbers, Spec, shares
from jobs.experiments.training import joint, refreshed, trained
from tacl.compose import merges
from tacl.evaluation import metrics

PART = "test:300"
ABOUT = (
    "Tasks arrive one by one, in an order by seed; the seed also decides splits and batches. R[i, "
    "j] is the accuracy on task j, on at most 300 of its test rows and with its own head, after "
    "task i arrived. *ACC*: mean of the last row. *AIA*: mean over i of the mean over tasks so "
    "far. *BWT*: mean of R[T, j] - R[j, j]. *Forgetting*: from the best before the end. *FWT*: "
    "mean of R[j-1, j] - zero-shot. *Class-incremental*: at the end, one head over all classes. "
    "`joint` is trained on all tasks at once: the ceiling."
)
COLUMNS = (
    *shares(acc="ACC", aia="AIA", bwt="BWT", forgetting="forgetting", fwt="FWT"),
    *shares(class_incremental="class-incremental"),
)


class AfterArrival(NamedTuple):
    """The model after an arrival, and the costs since the previous one."""

    model: Direction
    training: Cost
    merging: Cost = Cost()


def linear_sum(experiment: Experiment, order: list[str]) -> list[AfterArrival]:
    return _sums([trained(experiment, task) for task in order])


def tau_jp_sum(experiment: Experiment, order: list[str]) -> list[AfterArrival]:
    return _sums(_against_earlier(experiment, order))


def tau_jp_refreshed(experiment: Experiment, order: list[str]) -> list[AfterArrival]:
    """At every arrival earlier vectors are refreshed, from their current state, against all so far.

    The new vector was trained against all of them and needs no refresh.
    """
    arrivals: list[AfterArrival] = []
    now: dict[str, TrainedVector] = {}
    for vector in _against_earlier(experiment, order):
        before = sum(v.later.cpu_seconds for v in now.values())
        so_far = [*now, vector.task]
        now = {t: refreshed(experiment, v, [s for s in so_far if s != t]) for t, v in now.items()}
        spent = sum(v.later.cpu_seconds for v in now.values()) - before
        now[vector.task] = vector
        model = Sum([(1.0, v) for v in now.values()])
        arrivals.append(AfterArrival(model, vector.cost, Cost(cpu_seconds=spent)))
    return arrivals


def tau_jp_upkeep(experiment: Experiment, order: list[str]) -> list[AfterArrival]:
    """At every arrival, refresh the vectors that the coordinator would, within its budget."""
    vectors = _against_earlier(experiment, order)
    return [
        AfterArrival(Sum([(1.0, one) for one in now.values()]), vector.cost, spent)
        for vector, (now, spent) in zip(vectors, planned(experiment, vectors), strict=True)
    ]


def _against_earlier(experiment: Experiment, order: list[str]) -> list[TrainedVector]:
    generic = experiment.suite.generics
    return [trained(experiment, task, [*generic, *order[:k]]) for k, task in enumerate(order)]


def _sums(vectors: list[TrainedVector]) -> list[AfterArrival]:
    terms = [(1.0, vector) for vector in vectors]
    return [AfterArrival(Sum(terms[:k]), v.cost) for k, v in enumerate(vectors, start=1)]


def magmax_so_far(experiment: Experiment, order: list[str]) -> list[AfterArrival]:
    """The entries of largest magnitude of vectors that each start where the previous one ended."""
    return _merges(experiment, merges.magmax, one_after_another(experiment, order))


def opcm_so_far(experiment: Experiment, order: list[str]) -> list[AfterArrival]:
    """Each vector is projected away from the merge so far (arXiv 2501.09522)."""
    return _merges(experiment, merges.opcm, [ordinary(experiment, task) for task in order])


def sequential(experiment: Experiment, order: list[str]) -> list[AfterArrival]:
    """Ordinary fine-tuning of one model on one task after another."""
    return [AfterArrival(vector, vector.cost) for vector in one_after_another(experiment, order)]


def one_after_another(experiment: Experiment, order: list[str]) -> list[TrainedVector]:
    vectors: list[TrainedVector] = []
    for task in order:
        start = vectors[-1] if vectors else None
        vectors.append(trained(experiment, task, regime="ordinary", start=start))
    return vectors


def _merges(
    experiment: Experiment, merge: Merge, vectors: list[TrainedVector]
) -> list[AfterArrival]:
    kept = [merge_of(experiment, merge, vectors[:k]) for k in range(1, len(vectors) + 1)]
    pairs = zip(vectors, kept, strict=True)
    return [AfterArrival(one, vector.cost, one.cell.cost) for vector, one in pairs]


def ceiling(experiment: Experiment, order: list[str]) -> list[AfterArrival]:
    model = joint(experiment, "ordinary")
    return [AfterArrival(model, model.cell.cost)]


@dataclass(frozen=True)
class Streaming(Method):
    arrivals: Callable[[Experiment, list[str]], list[AfterArrival]]


METHODS = (
    Streaming("linear", None, saw.LABELS, saw.NOTHING, linear_sum),
    Streaming("taujp", None, saw.EARLIER, saw.NOTHING, tau_jp_sum),
    Streaming("taujp+refresh", None, saw.EARLIER, saw.INPUTS, tau_jp_refreshed),
    Streaming("taujp+upkeep", None, saw.EARLIER, saw.INPUTS, tau_jp_upkeep),
    Streaming("sequential", None, saw.LABELS, saw.NOTHING, sequential),
    Streaming("magmax", None, saw.LABELS, saw.NOTHING, magmax_so_far),
    Streaming("opcm", None, saw.LABELS, saw.NOTHING, opcm_so_far),
    Streaming("joint", None, saw.ALL_LABELS, saw.AT_ONCE, ceiling),
)


def entry(experiment: Experiment, method: Streaming) -> Entry:
    order = order_of(experiment)
    arrivals = method.arrivals(experiment, order)
    models = [Model(experiment, direction=arrival.model) for arrival in arrivals]
    found = [{task: model.features(task, PART) for task in order} for model in models]
    R = [list(task_accuracies(experiment, after, PART).values()) for after in found]
    b_T = list(zero_shot(experiment, order, PART).values())
    labels = {task: experiment.rows(task).labels_N(PART) for task in experiment.pool}
    heads = {task: experiment.head(task) for task in experiment.pool}
    among_all = metrics.class_incremental({t: found[-1][t] for t in experiment.pool}, labels, heads)
    numbers: Numbers = {"class_incremental": metrics.absolute(among_all)}
    if len(R) == len(order):
        R_TT = torch.tensor(R, dtype=torch.float64)
        numbers |= asdict(metrics.continual(R_TT, torch.tensor(b_T).double()))
    else:  # all tasks at once: no sequence
        numbers["acc"] = sum(R[-1]) / len(R[-1])
    _, training, merging = zip(*arrivals, strict=True)
    more = {"order": order, "R": R, "zero_shot": b_T}
    return method.entry(experiment, numbers, more=more, training=training, merging=merging)


SPECS = (Spec("continual", ABOUT, COLUMNS, lambda suite: METHODS, entry, plots.arrivals),)
