"""Unseen tasks: what a model of some tasks of the pool does to those that it has not met."""

from __future__ import annotations

from dataclasses import replace

from jobs.experiments import plots
from jobs.experiments.context import Bench
from jobs.experiments.methods import METHODS
from jobs.experiments.models import accuracies, right
from jobs.experiments.spec import Spec
from jobs.experiments.table import Column, Entry
from jobs.experiments.tables.addition import numbers
from tacl.evaluation.metrics import absolute

LEFT_OUT = 2  # the last ones of the pool
ABOUT = (
    "A model of all tasks of the pool but the last two, on the test rows of those two (*unseen*) "
    "and of its own tasks (*seen*). Neither labels nor inputs of the two were seen by any training "
    "or merge; where the base has no text tower, their heads are means of their labelled rows."
)
COLUMNS = (
    Column("unseen", "unseen"),
    Column("unseen_zero_shot", "unseen, pre-trained"),
    Column("seen", "seen"),
    Column("normalised", "seen, normalised"),
    Column("class_incremental", "seen, class-incremental"),
)
VARIANTS = ("linear", "taujp", "taujp+refresh", "ordinary", "ties", "adamerging", "mtl")


def entry(bench: Bench, variant: str) -> Entry:
    method, smaller = METHODS[variant], without_last(bench)
    model = method.model(smaller)
    unseen = bench.pool[-LEFT_OUT:]
    merged = {task: model.features(task, "test") for task in unseen}
    plain = {task: bench.features(task, "test") for task in unseen}
    seen = numbers(accuracies(model), method.train is not None)
    found, before = right(bench, merged, "test"), right(bench, plain, "test")
    return Entry(
        variant,
        bench.seed,
        method.saw_training,
        method.saw_merging,
        {
            "unseen": absolute({task: found[task] for task in unseen}),
            "unseen_zero_shot": absolute(before),
            "seen": seen["absolute"],
            "normalised": seen["normalised"],
            "class_incremental": seen["class_incremental"],
        },
        {task: {"unseen": found[task], "unseen_zero_shot": before[task]} for task in unseen},
        model.facts,
        model.training,
        model.merging,
    )


def without_last(bench: Bench) -> Bench:
    """The same bench with a smaller pool; what was left out is a target."""
    tasks = bench.suite.tasks
    targets = bench.suite.targets + tasks[-LEFT_OUT:]
    return bench.of(replace(bench.suite, tasks=tasks[:-LEFT_OUT], targets=targets))


SPEC = Spec("unseen", ABOUT, COLUMNS, lambda suite: VARIANTS, entry, plots.bars)
