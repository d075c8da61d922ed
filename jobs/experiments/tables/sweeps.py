"""Addition by tauJp under other settings: fewer samples, tasks or steps, and other strengths."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

from jobs.experiments import plots, saw
from jobs.experiments.cache import Made
from jobs.experiments.context import Bench
from jobs.experiments.cost import together
from jobs.experiments.directions import Vector, task_vectors
from jobs.experiments.methods import METHODS, Merging, linear, ordinary, others_of, tau_jp, total
from jobs.experiments.models import accuracies
from jobs.experiments.spec import Spec, Train
from jobs.experiments.suites import Suite
from jobs.experiments.table import Entry
from jobs.experiments.tables import addition
from jobs.experiments.training import trained
from tacl.evaluation.metrics import normalized
from tacl.vectors.blocks import Storage

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


def entry(bench: Bench, method: Merging) -> Entry:
    found = addition.entry(bench, method)
    plain = METHODS["individual"].model(bench)
    merged = {task: numbers["absolute"] or 0.0 for task, numbers in found.tasks.items()}
    found.numbers["of_linear"] = normalized(merged, accuracies(plain).individual)
    return found


def limits(suite: Suite) -> dict[str, Train]:
    samples = {f"{n} samples": partial(tau_jp, most=n) for n in (16, 64, 256)}
    steps = {f"{n} steps": partial(tau_jp, steps=n) for n in (25, 50, 100)}
    return {"all": tau_jp, **samples, "half of the tasks": _half, **steps}


def strengths(suite: Suite) -> dict[str, Train]:
    """No penalty is the training without one."""
    return {
        f"strength {value:g}": partial(tau_jp, strength=value) if value else linear
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
        (whole,) = task_vectors(bench, [vector])
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


def _half(bench: Bench, task: str) -> Vector:
    """Generic sets, and a half of the other tasks chosen by seed."""
    others = [name for name in bench.pool if name != task]
    chosen = random.Random(f"half {bench.seed} {task}").sample(others, (len(others) + 1) // 2)
    kept = [name for name in others_of(bench, task) if name not in others or name in chosen]
    return trained(bench, task, kept)


def _spec(name: str, about: str, trainings: Callable[[Suite], dict[str, Train]]) -> Spec:
    """Variants by name, each a training."""

    def methods(suite: Suite) -> list[Merging]:
        found = trainings(suite)
        plain = (linear, _as_linear)
        own = {n: saw.LABELS if train in plain else saw.PENALISED for n, train in found.items()}
        return [Merging(n, train, own[n], saw.NOTHING, total) for n, train in found.items()]

    return Spec(name, about, addition.COLUMNS, methods, entry, plots.lines)


SPECS = (
    _spec("limited", LIMITED, limits),
    _spec("sensitivity", SENSITIVITY, strengths),
    _spec("storage", STORAGE, storages),
    _spec("public", PUBLIC, repairs),
)
