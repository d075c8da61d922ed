"""Label-free refresh under other settings: how many samples, what strength, one delta or many."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from jobs.experiments import plots
from jobs.experiments.context import Bench
from jobs.experiments.directions import Vector
from jobs.experiments.merging import one_delta
from jobs.experiments.methods import INPUTS, LABELS, NOTHING, linear, total
from jobs.experiments.models import Model, Vectors, accuracies, summed
from jobs.experiments.spec import Spec
from jobs.experiments.suites import Suite
from jobs.experiments.table import Column, Entry, Numbers
from jobs.experiments.tables.addition import by_task, numbers
from jobs.experiments.training import refreshed
from tacl.training.config import RefreshConfig

ABOUT = (
    "Vectors of linear fine-tuning without a penalty, each refreshed against the samples of all "
    "other tasks, and summed at 1.0. *Left*: interference on held-out samples after the refresh "
    "over before it; *own change*: of the vector's own function there (mean squares), both means "
    "over the tasks. *Accepted*: the share of refreshes that the held-out samples let pass. "
    "*Of training*: CPU seconds of a refresh over those of the vector's training, the largest of "
    "all tasks."
)
COLUMNS = (
    Column("absolute", "absolute"),
    Column("normalised", "normalised"),
    Column("individual", "individual"),
    Column("class_incremental", "class-incremental"),
    Column("left", "left"),
    Column("own_change", "own change"),
    Column("accepted", "accepted"),
    Column("of_training", "of training", percent=False),
)
SAMPLES = (16, 64, 960)
STRENGTHS = (0.3, 1.0, 10.0)


def settings(suite: Suite) -> dict[str, RefreshConfig]:
    """By variant: the suite's own, and what differs from it."""
    samples = {f"{n} samples": replace(suite.refresh, samples=n) for n in SAMPLES}
    strengths = {f"strength {x:g}": replace(suite.refresh, strength=x) for x in STRENGTHS}
    longer = {"twice the steps": replace(suite.refresh, steps=2 * suite.refresh.steps)}
    return {"refreshed": suite.refresh, **samples, **strengths, **longer}


def variants(suite: Suite) -> list[str]:
    return ["none", *settings(suite), "one delta"]


def entry(bench: Bench, variant: str) -> Entry:
    first: Vectors = {task: linear(bench, task) for task in bench.pool}
    now = dict(first)
    make: Callable[[Bench, Vectors], Model] = total
    if variant == "one delta":
        make = one_delta
    elif variant != "none":
        config = settings(bench.suite)[variant]
        now = {task: _refreshed(bench, first, task, config) for task in first}
        make = partial(summed, now=now)
    model = make(bench, first)
    found = accuracies(model)
    return Entry(
        variant,
        bench.seed,
        LABELS,
        NOTHING if variant == "none" else INPUTS,
        numbers(found) | _judged(first, now),
        by_task(found),
        training=model.training,
        merging=model.merging,
    )


def _refreshed(bench: Bench, first: Vectors, task: str, config: RefreshConfig) -> Vector:
    return refreshed(bench, first[task], [name for name in first if name != task], config)


def _judged(first: Vectors, now: Vectors) -> Numbers:
    """Of the refreshes, where there are some."""
    facts = [vector.refresh.facts for vector in now.values() if vector.refresh is not None]
    if not facts:
        return {}
    return {
        "left": statistics.fmean(
            f["after"]["interference"] / f["before"]["interference"] for f in facts
        ),
        "own_change": statistics.fmean(f["after"]["own"] for f in facts),
        "accepted": statistics.fmean(f["accepted"] for f in facts),
        "of_training": max(
            vector.later.cpu_seconds / first[task].cost.cpu_seconds for task, vector in now.items()
        ),
    }


SPEC = Spec("refresh", ABOUT, COLUMNS, variants, entry, plots.bars, trainings=lambda v: [linear])
