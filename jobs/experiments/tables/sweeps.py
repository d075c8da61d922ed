"""Addition by tauJp under other settings: fewer samples, tasks or steps, and other strengths."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

from jobs.experiments import plots
from jobs.experiments.cache import Made
from jobs.experiments.context import Bench
from jobs.experiments.cost import together
from jobs.experiments.directions import Vector
from jobs.experiments.methods import (
    LABELS,
    NOTHING,
    PENALISED,
    Train,
    linear,
    ordinary,
    others_of,
    tau_jp,
    total,
)
from jobs.experiments.models import Model, accuracies
from jobs.experiments.spec import Spec
from jobs.experiments.suites import Suite
from jobs.experiments.table import Column, Entry
from jobs.experiments.tables.addition import by_task, numbers
from jobs.experiments.training import trained
from tacl.evaluation.metrics import normalized
from tacl.vectors.blocks import Storage

COLUMNS = (
    Column("absolute", "absolute"),
    Column("normalised", "normalised"),
    Column("of_linear", "of linear"),
    Column("individual", "individual"),
    Column("class_incremental", "class-incremental"),
)
LIMITED = (
    "tauJp, summed at 1.0, with less of everything: shared samples of each other task (all are "
    "960: 1,024 without the probe), only a random half of the other tasks, fewer steps."
)
SENSITIVITY = (
    "tauJp, summed at 1.0, over the strength of the penalty: accuracy of the single-task models "
    "(individual) and of their sum (absolute)."
)
STORAGE = (
    "tauJp vectors, summed at 1.0, after they were kept in fewer bits: accuracy of the single-task "
    "models (individual) and of their sum (absolute). int8 has a scale for each row of a block, "
    "int4 for each 64 entries of a row; biases and gains stay float32."
)
PUBLIC = (
    "Vectors of ordinary fine-tuned checkpoints, as they are public, taken for linearized ones and "
    "trained for a few more steps under tauJp; summed at 1.0. The strength is the suite's."
)


@dataclass(frozen=True)
class Sweep:
    """Variants by name, each a training."""

    of: Callable[[Suite], dict[str, Train]]

    def variants(self, suite: Suite) -> list[str]:
        return list(self.of(suite))

    def entry(self, bench: Bench, variant: str) -> Entry:
        train = self.of(bench.suite)[variant]
        model = total(bench, {task: train(bench, task) for task in bench.pool})
        found = accuracies(model)
        saw = LABELS if train in (linear, _as_linear) else PENALISED
        plain = Model(bench, {task: linear(bench, task) for task in bench.pool})
        of_linear = normalized(found.merged, accuracies(plain).individual)
        return Entry(
            variant,
            bench.seed,
            saw,
            NOTHING,
            numbers(found) | {"of_linear": of_linear},
            by_task(found),
            training=model.training,
        )


def limits(suite: Suite) -> dict[str, Train]:
    samples = {f"{n} samples": partial(_penalised, most=n) for n in (16, 64, 256)}
    steps = {f"{n} steps": partial(_penalised, steps=n) for n in (25, 50, 100)}
    return {"all": _penalised, **samples, "half of the tasks": _half, **steps}


def strengths(suite: Suite) -> dict[str, Train]:
    """No penalty is the training without one."""
    return {
        f"strength {value:g}": partial(_penalised, strength=value) if value else linear
        for value in suite.strengths
    }


def repairs(suite: Suite) -> dict[str, Train]:
    steps = {f"{n} penalised steps": partial(_repaired, steps=n) for n in (10, 25, 50, 100)}
    return {"as it is": _as_linear, **steps}


def storages(suite: Suite) -> dict[str, Train]:
    return {storage: partial(_stored, storage=storage) for storage in get_args(Storage)}


def _stored(bench: Bench, task: str, storage: Storage) -> Vector:
    """The penalised vector as it comes back from a file of that kind."""
    vector = tau_jp(bench, task)
    if storage == "float32":
        return vector

    def make() -> Made:
        whole = vector.task_vector(bench.backbone.digest)
        small = whole.stored(storage)
        return {"bytes": {"float32": whole.nbytes, storage: small.nbytes}}, small.to_params()

    decides = {"vector": vector.key, "storage": storage}
    return replace(vector, cell=bench.cells.get("stored", decides, make, f"{task}, {storage}"))


def _as_linear(bench: Bench, task: str) -> Vector:
    """The ordinary vector, taken for a linearized one."""
    return replace(ordinary(bench, task), regime="linearized")


def _repaired(bench: Bench, task: str, steps: int) -> Vector:
    """From the ordinary vector on, in the linearized model and under the penalty."""
    public = ordinary(bench, task)
    found = trained(bench, task, others_of(bench, task), start=public, steps=steps)
    return replace(found, cost=together([public.cost, found.cost]))


def _penalised(bench: Bench, task: str, most: int | None = None, **changed: Any) -> Vector:
    return trained(bench, task, others_of(bench, task), most, **changed)


def _half(bench: Bench, task: str) -> Vector:
    """Generic sets, and a half of the other tasks chosen by seed."""
    others = [name for name in bench.pool if name != task]
    chosen = random.Random(f"half {bench.seed} {task}").sample(others, (len(others) + 1) // 2)
    kept = [name for name in others_of(bench, task) if name not in others or name in chosen]
    return trained(bench, task, kept)


def _spec(name: str, about: str, sweep: Sweep) -> Spec:
    return Spec(name, about, COLUMNS, sweep.variants, sweep.entry, plots.lines)


SPECS = (
    _spec("limited", LIMITED, Sweep(limits)),
    _spec("sensitivity", SENSITIVITY, Sweep(strengths)),
    _spec("storage", STORAGE, Sweep(storages)),
    _spec("public", PUBLIC, Sweep(repairs)),
)
