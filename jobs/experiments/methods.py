"""The rows of the addition table: methods that make one model of all tasks of the pool.

A method is how the vector of one task is trained, and what is then made of all vectors;
`saw_training` and `saw_merging` say what each step sees of the data, `coefficients` how the
coefficients of the vectors are set.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jobs.experiments import saw
from jobs.experiments.context import Experiment
from jobs.experiments.lora import lora
from jobs.experiments.merging import adamerged, atlas, merged, one_delta
from jobs.experiments.models import (
    Model,
    TrainedVector,
    Vectors,
    individual_models,
    on_grid,
    summed,
)
from jobs.experiments.table import Method, Train
from jobs.experiments.training import joint, refreshed, trained
from tacl.compose.merges import iso_c, ties, tsv_m
from tacl.training.config import CURVATURE, RefreshConfig

Make = Callable[[Experiment, Vectors], Model]

GRID = "one, by a grid"
LEARNED = "learned, for each block"


linear: Train = trained  # linear fine-tuning without a penalty (arXiv 2305.12827)
ordinary: Train = partial(trained, regime="ordinary")


def tau_jp(
    experiment: Experiment, task: str, most: int | None = None, **changed: Any
) -> TrainedVector:
    """Train with the cyclical penalty on the inputs of every other task and of the generic set.

    `most` bounds the samples of each; `changed` are fields of TrainConfig.
    """
    others = [*experiment.suite.generics, *(name for name in experiment.pool if name != task)]
    return trained(experiment, task, others, most, **changed)  # in the order of the suite


# All other tasks at every step; as many rows a step as in cyclical, dealt over all other tasks one
# at a time; a penalty weight that grows with the number of other tasks.
strict = partial(tau_jp, penalty="strict")
mixed = partial(tau_jp, penalty="mixed")
grown = partial(tau_jp, grow_strength=True)
mixed_grown = partial(tau_jp, penalty="mixed", grow_strength=True)
LONGER: dict[str, Any] = {"steps": 400, "learning_rate": 2e-4}  # two passes at twice the rate
linear_longer: Train = partial(trained, **LONGER)
ordinary_longer: Train = partial(trained, regime="ordinary", **LONGER)
# The default: longer, with a row of each of eight other tasks at every step.
longer = partial(tau_jp, penalty="mixed", penalty_batch=8, **LONGER)


def arriving(experiment: Experiment, task: str) -> TrainedVector:
    """Train like `longer`, against the samples that exist when the task arrives, one by one."""
    order = order_of(experiment)
    there = [*experiment.suite.generics, *order[: order.index(task)]]
    return trained(experiment, task, there, penalty="mixed", penalty_batch=8, **LONGER)


def order_of(experiment: Experiment) -> list[str]:
    """The order in which the tasks of the pool arrive under this seed."""
    order = list(experiment.pool)
    random.Random(f"order {experiment.seed}").shuffle(order)
    return order


def curvature(experiment: Experiment, task: str) -> TrainedVector:
    """Train with statistics of the other tasks instead of their samples (TAK, arXiv 2602.17385)."""
    return tau_jp(
        experiment, task, penalty="curvature", strength=CURVATURE * experiment.suite.strength
    )


def total(experiment: Experiment, first: Vectors) -> Model:
    return summed(experiment, first, first)


def best_total(experiment: Experiment, first: Vectors) -> Model:
    return on_grid(total(experiment, first))


@dataclass(frozen=True)
class RefreshedTotal:
    """The sum of the vectors after a label-free refresh of each against all other tasks; by default
    with the suite's settings."""

    config: RefreshConfig | None = None

    def __call__(self, experiment: Experiment, first: Vectors) -> Model:
        now = self.now(experiment, first)
        accepted = sum(now[task].key != first[task].key for task in now)
        return replace(summed(experiment, first, now), facts={"refreshes accepted": accepted})

    def now(self, experiment: Experiment, first: Vectors) -> dict[str, TrainedVector]:
        """Refresh against the samples of the others in `first`; the generic set is not a task."""
        return {
            task: refreshed(
                experiment, vector, [name for name in first if name != task], self.config
            )
            for task, vector in first.items()
        }


TODAY = RefreshedTotal(RefreshConfig(seed=0))  # starts with the closed form, as in a cluster


def at_once(experiment: Experiment, first: Vectors) -> Model:
    """The model of one training for all tasks, in the regime of the single trainings."""
    direction = joint(experiment, next(iter(first.values())).regime)
    return replace(
        individual_models(experiment, first), direction=direction, training=direction.cell.cost
    )


def in_one_softmax(experiment: Experiment, first: Vectors) -> Model:
    """One training of an ordinary model over the classes of all tasks, for as long as `longer`."""
    direction = joint(experiment, "ordinary", one_softmax=True, **LONGER)
    return Model(experiment, direction=direction, training=direction.cell.cost)


def nothing(experiment: Experiment, first: Vectors) -> Model:
    return Model(experiment)


BY_TIES, BY_TSV_M, BY_ISO_C = (partial(merged, merge=merge) for merge in (ties, tsv_m, iso_c))


@dataclass(frozen=True)
class Merging(Method):
    """`make` makes one model of the vectors; `coefficients`: how their coefficients are set."""

    make: Make
    coefficients: str = "1"

    def model(self, experiment: Experiment) -> Model:
        return self.make(experiment, self.vectors(experiment))

    def added(self, experiment: Experiment) -> dict[str, TrainedVector]:
        """The vectors that are added up, after the refresh if there is one."""
        first = self.vectors(experiment)
        return self.make.now(experiment, first) if isinstance(self.make, RefreshedTotal) else first


METHODS: dict[str, Merging] = {
    method.name: method
    for method in (
        Merging("zero-shot", None, saw.NOTHING, saw.NOTHING, nothing, "none"),
        Merging("individual", linear, saw.LABELS, saw.ONE_EACH, individual_models),
        Merging("individual-longer", linear_longer, saw.LABELS, saw.ONE_EACH, individual_models),
        Merging("linear", linear, saw.LABELS, saw.NOTHING, total),
        Merging("linear-grid", linear, saw.LABELS, saw.VALIDATION, best_total, GRID),
        Merging("taujp", tau_jp, saw.PENALISED, saw.NOTHING, total),
        Merging("taujp-grid", tau_jp, saw.PENALISED, saw.VALIDATION, best_total, GRID),
        Merging("linear+refresh", linear, saw.LABELS, saw.INPUTS, RefreshedTotal()),
        Merging("taujp+refresh", tau_jp, saw.PENALISED, saw.INPUTS, RefreshedTotal()),
        Merging("ordinary", ordinary, saw.LABELS, saw.NOTHING, total),
        Merging("lora", lora, saw.LABELS, saw.NOTHING, total),
        Merging("ties", ordinary, saw.LABELS, saw.NOTHING, BY_TIES),
        Merging("tsv-m", ordinary, saw.LABELS, saw.NOTHING, BY_TSV_M),
        Merging("ordinary-longer", ordinary_longer, saw.LABELS, saw.NOTHING, total),
        Merging("tsv-m-longer", ordinary_longer, saw.LABELS, saw.NOTHING, BY_TSV_M),
        Merging("iso-c", ordinary, saw.LABELS, saw.NOTHING, BY_ISO_C),
        Merging("ordinary-grid", ordinary, saw.LABELS, saw.VALIDATION, best_total, GRID),
        Merging("mtl", ordinary, saw.ALL_LABELS, saw.AT_ONCE, at_once, "none"),
        Merging("mtl-softmax", None, saw.ALL_LABELS, saw.AT_ONCE, in_one_softmax, "none"),
        Merging("mtl-linear", linear, saw.ALL_LABELS, saw.AT_ONCE, at_once, "none"),
        Merging("linear+delta", linear, saw.LABELS, saw.INPUTS, one_delta),
        Merging("taujp+delta", tau_jp, saw.PENALISED, saw.INPUTS, one_delta),
        Merging("strict", strict, saw.PENALISED, saw.NOTHING, total),
        Merging("mixed", mixed, saw.PENALISED, saw.NOTHING, total),
        Merging("mixed-longer", longer, saw.PENALISED, saw.NOTHING, total),
        Merging("mixed-longer+refresh", longer, saw.PENALISED, saw.INPUTS, TODAY),
        Merging("arriving", arriving, saw.EARLIER, saw.NOTHING, total),
        Merging("arriving+refresh", arriving, saw.EARLIER, saw.INPUTS, TODAY),
        Merging("taujp-grown", grown, saw.PENALISED, saw.NOTHING, total),
        Merging("mixed-grown", mixed_grown, saw.PENALISED, saw.NOTHING, total),
        Merging("curvature", curvature, "own labels, others' statistics", saw.NOTHING, total),
        Merging("adamerging", ordinary, saw.LABELS, "validation inputs", adamerged, LEARNED),
        Merging("atlas", ordinary, saw.LABELS, saw.VALIDATION, atlas, LEARNED),
        Merging("taujp+atlas", tau_jp, saw.PENALISED, saw.VALIDATION, atlas, LEARNED),
    )
}
