"""Unseen tasks: the effect of a model of some tasks of the pool on tasks that it has not seen."""

from __future__ import annotations

from dataclasses import replace

from jobs.experiments import plots
from jobs.experiments.context import Experiment
from jobs.experiments.methods import METHODS, Merging
from jobs.experiments.models import accuracies, task_accuracies, zero_shot
from jobs.experiments.table import Entry, Numbers, Spec, shares
from jobs.experiments.tables.addition import numbers
from tacl.evaluation.metrics import absolute

LEFT_OUT = 2  # the last tasks of the pool
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


def entry(experiment: Experiment, method: Merging) -> Entry:
    model = method.model(without_last(experiment))
    seen, left_out = numbers(accuracies(model)), experiment.pool[-LEFT_OUT:]
    merged = task_accuracies(
        experiment, {task: model.features(task, "test") for task in left_out}, "test"
    )
    unseen = {"unseen": merged, "unseen_zero_shot": zero_shot(experiment, left_out, "test")}
    tasks: dict[str, Numbers] = {t: {key: of[t] for key, of in unseen.items()} for t in left_out}
    means: Numbers = {key: absolute(of) for key, of in unseen.items()}
    means |= {"seen": seen["absolute"], "normalised": seen["normalised"]}
    means["class_incremental"] = seen["class_incremental"]
    return method.entry(experiment, means, tasks, model.facts, [model.training], [model.merging])


def without_last(experiment: Experiment) -> Experiment:
    """The same experiment with a smaller pool; the tasks that are left out are targets."""
    tasks = experiment.suite.tasks
    targets = experiment.suite.targets + tasks[-LEFT_OUT:]
    suite = replace(experiment.suite, tasks=tasks[:-LEFT_OUT], targets=targets)
    return experiment.of(suite, hidden=experiment.pool)


ROWS = [METHODS[name] for name in VARIANTS]
SPECS = (Spec("unseen", ABOUT, COLUMNS, lambda suite: ROWS, entry, plots.bars, ahead=False),)
