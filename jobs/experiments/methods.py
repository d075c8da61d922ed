"""The rows of the addition table: every way to make one model of all tasks of the pool.

A method is how the vector of one task is trained, and what is then made of all of them;
`saw_training` and `saw_merging` say what each step sees of the data, `coefficients` what vectors
are multiplied by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from jobs.experiments.context import Bench
from jobs.experiments.directions import Vector
from jobs.experiments.learned import adamerged, atlas
from jobs.experiments.merging import merged, one_delta
from jobs.experiments.models import Model, Vectors, apart, on_grid, summed
from jobs.experiments.training import joint, refreshed, trained
from tacl.compose.elementwise import ties
from tacl.compose.spectral import iso_c, tsv_m
from tacl.training.config import CURVATURE, Penalty
from tacl.vectors.vector import Regime

Train = Callable[[Bench, str], Vector]
Make = Callable[[Bench, Vectors], Model]

NOTHING = "nothing"
LABELS = "own labels"
HEADS = "own labels, for the heads"
PENALISED = "own labels, others' inputs"
INPUTS = "inputs"
VALIDATION = "validation labels"
ALL_LABELS = "labels of all tasks"
GRID = "one, by a grid"
LEARNED = "learned, for each block"


def linear(bench: Bench, task: str) -> Vector:
    """Linear fine-tuning without a penalty (arXiv 2305.12827)."""
    return trained(bench, task)


def ordinary(bench: Bench, task: str) -> Vector:
    return trained(bench, task, regime="ordinary")


def tau_jp(bench: Bench, task: str) -> Vector:
    """With the cyclical penalty on the inputs of every other task and the generic set."""
    return trained(bench, task, others_of(bench, task))


def strict(bench: Bench, task: str) -> Vector:
    """The same with all other tasks at every step."""
    return trained(bench, task, others_of(bench, task), penalty="strict")


def mixed(bench: Bench, task: str) -> Vector:
    """With as many rows a step as cyclical, dealt over all other tasks one at a time."""
    return trained(bench, task, others_of(bench, task), penalty="mixed")


def grown(bench: Bench, task: str, penalty: Penalty = "cyclical") -> Vector:
    """With a strength that grows with the number of other tasks."""
    others = others_of(bench, task)
    return trained(bench, task, others, penalty=penalty, grow_strength=True)


def mixed_grown(bench: Bench, task: str) -> Vector:
    return grown(bench, task, "mixed")


def curvature(bench: Bench, task: str) -> Vector:
    """With statistics of the other tasks instead of their samples (TAK, arXiv 2602.17385)."""
    strength = CURVATURE * bench.suite.strength
    return trained(bench, task, others_of(bench, task), penalty="curvature", strength=strength)


def others_of(bench: Bench, task: str) -> list[str]:
    """In the order of their arrival: generic first."""
    return [*bench.suite.generics, *(name for name in bench.pool if name != task)]


def total(bench: Bench, first: Vectors) -> Model:
    return summed(bench, first, first)


def best_total(bench: Bench, first: Vectors) -> Model:
    return on_grid(total(bench, first))


def refreshed_total(bench: Bench, first: Vectors) -> Model:
    """Label-free refresh of every vector against all other tasks."""
    now = after_refresh(bench, first)
    accepted = sum(now[task].key != first[task].key for task in now)
    return replace(summed(bench, first, now), facts={"refreshes accepted": accepted})


def after_refresh(bench: Bench, first: Vectors) -> dict[str, Vector]:
    """Against the samples of all others in `first`. The generic set is nobody's task."""
    return {
        task: refreshed(bench, vector, [name for name in first if name != task])
        for task, vector in first.items()
    }


def together_ordinary(bench: Bench, first: Vectors) -> Model:
    return _together(bench, first, "ordinary")


def together_linear(bench: Bench, first: Vectors) -> Model:
    return _together(bench, first, "linearized")


def _together(bench: Bench, first: Vectors, regime: Regime) -> Model:
    direction = joint(bench, regime)
    return replace(apart(bench, first), direction=direction, training=direction.cell.cost)


def nothing(bench: Bench, first: Vectors) -> Model:
    return Model(bench)


@dataclass(frozen=True)
class Method:
    """`train` None: no vector is needed."""

    name: str
    train: Train | None
    make: Make
    saw_training: str
    saw_merging: str
    coefficients: str = "1"

    def vectors(self, bench: Bench) -> dict[str, Vector]:
        """As first trained."""
        train = self.train
        return {task: train(bench, task) for task in bench.pool} if train else {}

    def model(self, bench: Bench) -> Model:
        return self.make(bench, self.vectors(bench))


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("zero-shot", None, nothing, NOTHING, NOTHING, "none"),
        Method("individual", linear, apart, LABELS, "one model for each task"),
        Method("linear", linear, total, LABELS, NOTHING),
        Method("linear-grid", linear, best_total, LABELS, VALIDATION, GRID),
        Method("taujp", tau_jp, total, PENALISED, NOTHING),
        Method("taujp-grid", tau_jp, best_total, PENALISED, VALIDATION, GRID),
        Method("linear+refresh", linear, refreshed_total, LABELS, INPUTS),
        Method("taujp+refresh", tau_jp, refreshed_total, PENALISED, INPUTS),
        Method("ordinary", ordinary, total, LABELS, NOTHING),
        Method("ties", ordinary, partial(merged, merge=ties), LABELS, NOTHING),
        Method("tsv-m", ordinary, partial(merged, merge=tsv_m), LABELS, NOTHING),
        Method("iso-c", ordinary, partial(merged, merge=iso_c), LABELS, NOTHING),
        Method("ordinary-grid", ordinary, best_total, LABELS, VALIDATION, GRID),
        Method(
            "mtl", ordinary, together_ordinary, ALL_LABELS, "one training for all tasks", "none"
        ),
        Method(
            "mtl-linear", linear, together_linear, ALL_LABELS, "one training for all tasks", "none"
        ),
        Method("linear+delta", linear, one_delta, LABELS, INPUTS),
        Method("taujp+delta", tau_jp, one_delta, PENALISED, INPUTS),
        Method("strict", strict, total, PENALISED, NOTHING),
        Method("mixed", mixed, total, PENALISED, NOTHING),
        Method("taujp-grown", grown, total, PENALISED, NOTHING),
        Method("mixed-grown", mixed_grown, total, PENALISED, NOTHING),
        Method("curvature", curvature, total, "own labels, others' statistics", NOTHING),
        Method("adamerging", ordinary, adamerged, LABELS, "validation inputs", LEARNED),
        Method("atlas", ordinary, atlas, LABELS, VALIDATION, LEARNED),
        Method("taujp+atlas", tau_jp, atlas, PENALISED, VALIDATION, LEARNED),
    )
}


def vectors_of(bench: Bench, name: str) -> dict[str, Vector]:
    """The vectors that a method adds up: after the refresh where it has one."""
    first = METHODS[name].vectors(bench)
    return after_refresh(bench, first) if METHODS[name].make is refreshed_total else first


def train_of(name: str) -> list[Train]:
    train = METHODS[name].train
    return [train] if train else []
