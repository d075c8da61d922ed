"""Addition under other settings: tauJp with fewer samples, tasks or steps, other penalty weights
and fewer bits; and label-free refreshes with other samples and weights, one delta or many."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

from jobs.experiments import plots, saw
from jobs.experiments.cache import Made, together
from jobs.experiments.context import Experiment
from jobs.experiments.merging import one_delta
from jobs.experiments.methods import Merging, RefreshedTotal, linear, ordinary, tau_jp, total
from jobs.experiments.models import TrainedVector, Vectors, accuracies, task_vectors
from jobs.experiments.suites import Suite
from jobs.experiments.table import Entry, Numbers, Spec, Train, figures, shares
from jobs.experiments.tables import addition
from jobs.experiments.training import trained
from tacl.evaluation.metrics import normalized
from tacl.training.config import RefreshConfig
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
REFRESH = (
    "Vectors of linear fine-tuning without a penalty, each refreshed against the samples of all "
    "other tasks, and summed at 1.0. *Left*: interference on held-out samples after the refresh "
    "over before it; *own change*: of the vector's own function there (mean squares), both means "
    "over the tasks. *Accepted*: the share of refreshes that the held-out samples let pass. "
    "*Of training*: CPU seconds of a refresh over those of the vector's training, the largest of "
    "all tasks."
)
REFRESH_COLUMNS = (
    *shares(absolute="absolute", normalised="normalised", individual="individual"),
    *shares(class_incremental="class-incremental", left="left", own_change="own change"),
    *shares(accepted="accepted"),
    *figures(of_training="of training"),
)


def entry(experiment: Experiment, method: Merging) -> Entry:
    found = addition.entry(experiment, method)
    plain = addition.ROWS["individual"].model(experiment)
    merged = {task: numbers["absolute"] or 0.0 for task, numbers in found.tasks.items()}
    found.numbers["of_linear"] = normalized(merged, accuracies(plain).individual)
    return found


def limits(suite: Suite) -> dict[str, Train]:
    samples = {f"{n} samples": partial(tau_jp, most=n) for n in (16, 64, 256)}
    steps = {f"{n} steps": partial(tau_jp, steps=n) for n in (25, 50, 100)}
    return {"all": tau_jp, **samples, "half of the tasks": _half, **steps}


def strengths(suite: Suite) -> dict[str, Train]:
    """Trainings by penalty weight; 0 is the training without a penalty."""
    return {
        f"strength {value:g}": partial(tau_jp, strength=value) if value else linear
        for value in suite.strengths
    }


def repairs(suite: Suite) -> dict[str, Train]:
    steps = {f"{n} penalised steps": partial(_repaired, steps=n) for n in (10, 25, 50, 100)}
    return {"as it is": _as_linear, **steps}


def storages(suite: Suite) -> dict[str, Train]:
    return {storage: partial(_stored, storage=storage) for storage in get_args(Storage)}


def _stored(experiment: Experiment, task: str, storage: Storage) -> TrainedVector:
    """The penalised vector after it was written to, and read from, a file of that kind."""
    vector = tau_jp(experiment, task)
    if storage == "float32":
        return vector

    def make() -> Made:
        (whole,) = task_vectors(experiment, [vector])
        small = whole.stored(storage)
        return {"bytes": {"float32": whole.nbytes, storage: small.nbytes}}, small.to_params()

    decides = {"vector": vector.key, "storage": storage}
    return replace(vector, cell=experiment.cells.get("stored", decides, make, f"{task}, {storage}"))


def _as_linear(experiment: Experiment, task: str) -> TrainedVector:
    """The ordinary vector, used as if it were linearized."""
    return replace(ordinary(experiment, task), regime="linearized")


def _repaired(experiment: Experiment, task: str, steps: int) -> TrainedVector:
    """The ordinary vector, trained further in the linearized model and under the penalty."""
    public = ordinary(experiment, task)
    found = tau_jp(experiment, task, start=public, steps=steps)
    return replace(found, cost=together([public.cost, found.cost]))


def _half(experiment: Experiment, task: str) -> TrainedVector:
    """Train against the generic sets, and half of the other tasks, chosen by seed."""
    others = [name for name in experiment.pool if name != task]
    chosen = random.Random(f"half {experiment.seed} {task}").sample(others, (len(others) + 1) // 2)
    kept = [*experiment.suite.generics, *(name for name in others if name in chosen)]
    return trained(experiment, task, kept)


def _spec(name: str, about: str, trainings: Callable[[Suite], dict[str, Train]]) -> Spec:
    """A table with a variant for each training."""

    def methods(suite: Suite) -> list[Merging]:
        found = trainings(suite)
        plain = (linear, _as_linear)
        own = {n: saw.LABELS if train in plain else saw.PENALISED for n, train in found.items()}
        return [Merging(n, train, own[n], saw.NOTHING, total) for n, train in found.items()]

    return Spec(name, about, addition.COLUMNS, methods, entry, plots.lines)


# -- the label-free refresh

SAMPLES = (16, 64, 960)
STRENGTHS = (0.3, 1.0, 10.0)


def refreshings(suite: Suite) -> list[Merging]:
    """The suite's own settings, and variations of them."""
    own, plain = suite.refresh, Merging("none", linear, saw.LABELS, saw.NOTHING, total)
    configs = {
        "refreshed": own,
        **{f"{n} samples": replace(own, samples=n) for n in SAMPLES},
        **{f"strength {x:g}": replace(own, strength=x) for x in STRENGTHS},
        "twice the steps": replace(own, steps=2 * own.steps),
        "closed form and 8 steps": RefreshConfig(seed=0),
        "closed form alone": RefreshConfig(seed=0, steps=0),
    }
    inputs = replace(plain, saw_merging=saw.INPUTS)
    each = [replace(inputs, name=n, make=RefreshedTotal(config)) for n, config in configs.items()]
    return [plain, *each, replace(inputs, name="one delta", make=one_delta)]


def refresh_entry(experiment: Experiment, method: Merging) -> Entry:
    model, now = method.model(experiment), method.added(experiment)
    found = addition.of_model(experiment, method, replace(model, facts={}))
    return replace(found, numbers=found.numbers | _judged(model.first, now))


def _judged(first: Vectors, now: Vectors) -> Numbers:
    """Numbers about the refreshes, if there are any."""
    facts = [vector.refresh.facts for vector in now.values() if vector.refresh is not None]
    if not facts:
        return {}
    left = [f["after"]["interference"] / f["before"]["interference"] for f in facts]
    costs = ((vector.later.cpu_seconds, first[t].cost.cpu_seconds) for t, vector in now.items())
    return {
        "left": statistics.fmean(left),
        "own_change": statistics.fmean(f["after"]["own"] for f in facts),
        "accepted": statistics.fmean(f["accepted"] for f in facts),
        "of_training": max(later / training for later, training in costs),
    }


SPECS = (
    _spec("limited", LIMITED, limits),
    _spec("sensitivity", SENSITIVITY, strengths),
    _spec("storage", STORAGE, storages),
    _spec("public", PUBLIC, repairs),
    Spec("refresh", REFRESH, REFRESH_COLUMNS, refreshings, refresh_entry, plots.bars),
)
