"""Unseen tasks: what a model of some tasks of the pool does to those that it has not met."""

from __future__ import annotations

from dataclasses import replace

from jobs.experiments import plots
from jobs.experiments.context import Bench
from jobs.experiments.methods import METHODS, Merging
from jobs.experiments.models import accuracies, right, zero_shot
from jobs.experiments.table import Entry, Numbers, Spec, shares
from jobs.experiments.tables.addition import numbers
from tacl.evaluation.metrics import absolute

LEFT_OUT = 2  # the last ones of the pool
ABOUT = (
    "A model of all tasks of the pool but the last two, on the test rows of those two (*unseen*) "
    "and of its own tasks (*seen*). Neither labels nor inputs of the two were seen by any training "
    "or merge; where the base has no text tower, their heads are means of their labelled rows."
)
COLUMNS = (
    *shares(unseen="unseen", unseen_zero_shot="unseen, pre-trained", seen="seen"),
    *shares(normalised="seen, normalised", class_incremental="seen, class-incremental"),
)
VARIANTS = ("linear", "taujp", "taujp+refresh", "ordinary", "ties", "adamerging", "mtl")


def entry(bench: Bench, method: Merging) -> Entry:
    model = method.model(without_last(bench))
    seen, left_out = numbers(accuracies(model)), bench.pool[-LEFT_OUT:]
    merged = right(bench, {task: model.features(task, "test") for task in left_out}, "test")
    unseen = {"unseen": merged, "unseen_zero_shot": zero_shot(bench, left_out, "test")}
    tasks: dict[str, Numbers] = {t: {key: of[t] for key, of in unseen.items()} for t in left_out}
    means: Numbers = {key: absolute(of) for key, of in unseen.items()}
    means |= {"seen": seen["absolute"], "normalised": seen["normalised"]}
    means["class_incremental"] = seen["class_incremental"]
    return method.entry(bench, means, tasks, model.facts, [model.training], [model.merging])


def without_last(bench: Bench) -> Bench:
    """The same bench with a smaller pool; what was left out is a target."""
    tasks = bench.suite.tasks
    targets = bench.suite.targets + tasks[-LEFT_OUT:]
    suite = replace(bench.suite, tasks=tasks[:-LEFT_OUT], targets=targets)
    return bench.of(suite, hidden=bench.pool)


ROWS = [METHODS[name] for name in VARIANTS]
SPECS = (Spec("unseen", ABOUT, COLUMNS, lambda suite: ROWS, entry, plots.bars, ahead=False),)
