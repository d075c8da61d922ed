"""Models that are more than a sum, as cells: merges, one delta for all vectors, and coefficients
that are learned, by aTLAS on validation labels and by AdaMerging on inputs.

Each result is a direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from jobs.experiments.cache import Made
from jobs.experiments.context import Experiment
from jobs.experiments.models import (
    KeptDirection,
    Model,
    TrainedVector,
    Vectors,
    individual_models,
    summed,
    task_vectors,
)
from tacl.compose import negation
from tacl.compose.adamerging import adamerging
from tacl.compose.learning import Learned
from tacl.compose.refreshed import refresh_composition
from tacl.compose.scaled import ScaledEncoder
from tacl.training.loop import StepRecord, Store
from tacl.vectors import Params, TaskVector

Merge = Callable[[Sequence[TaskVector], Sequence[float]], Params]


def merged(experiment: Experiment, first: Vectors, merge: Merge) -> Model:
    """The model of a merge: TIES, TSV-M, Iso-C ..."""
    kept = merge_of(experiment, merge, list(first.values()))
    return replace(individual_models(experiment, first), direction=kept, merging=kept.cell.cost)


def merge_of(
    experiment: Experiment, merge: Merge, vectors: Sequence[TrainedVector]
) -> KeptDirection:
    """The merge of all vectors, each with coefficient 1."""
    name, count, keys = merge.__name__, len(vectors), [vector.key for vector in vectors]

    def make() -> Made:
        return {}, merge(task_vectors(experiment, vectors), [1.0] * count)

    cell = experiment.cell("merge", make, f"{name} of {count}", merge=name, vectors=keys)
    return KeptDirection(cell, vectors[0].regime)


def one_delta(experiment: Experiment, first: Vectors) -> Model:
    """The sum, refreshed as a whole by one delta, in as many steps as refreshes of all vectors.

    If the delta is not accepted, the result is the sum itself.
    """
    config = replace(
        experiment.suite.refresh,
        seed=experiment.seed,
        steps=len(first) * experiment.suite.refresh.steps,
    )
    plain = summed(experiment, first, first)

    def make() -> Made:
        taus = {task: vector.tau() for task, vector in first.items()}
        ones = dict.fromkeys(taus, 1.0)
        stores = [Store(task, experiment.store(task).items, math.nan) for task in taus]
        module = experiment.base.linearized()
        found = refresh_composition(module, experiment.backbone, taus, ones, stores, config)
        facts = {"accepted": found.accepted, "reason": found.reason}
        return facts | {"before": found.before, "after": found.after}, found.tau

    cell = experiment.cell(
        "delta",
        make,
        "of the sum",
        vectors=[vector.key for vector in first.values()],
        config=config.as_dict(),
        stores=[experiment.rows(task).digest("shard") for task in first],
    )
    accepted = cell.facts["accepted"]
    direction = KeptDirection(cell, "linearized") if accepted else plain.direction
    return replace(plain, direction=direction, merging=cell.cost, facts={"accepted": accepted})


PART = "validation:100"  # of each task
TOLD = 20


def adamerged(experiment: Experiment, first: Vectors) -> Model:
    """Layer-wise AdaMerging (arXiv 2310.02575) on unlabelled validation inputs."""

    def run() -> tuple[ScaledEncoder, Learned]:
        inputs = [experiment.rows(task).items(PART) for task in experiment.pool]
        heads = [experiment.head(task) for task in experiment.pool]
        vectors, say = task_vectors(experiment, first.values()), _teller(experiment)
        return adamerging(
            experiment.backbone, vectors, inputs, heads, seed=experiment.seed, on_step=say
        )

    return _learned(experiment, first, "adamerging, 16 rows of each task", run)


def atlas(experiment: Experiment, first: Vectors) -> Model:
    """One coefficient for each (vector, block) on labelled validation rows (arXiv 2407.02880).

    On linearized vectors, deviations from 1 are learned, as their sum is already a good model.
    """
    vectors = list(first.values())
    start = 1.0 if vectors[0].regime == "linearized" else 0.0
    return _learned(
        experiment,
        first,
        "atlas",
        lambda: supervised_atlas(experiment, vectors, experiment.pool, start),
    )


def supervised_atlas(
    experiment: Experiment,
    vectors: Sequence[TrainedVector],
    tasks: Sequence[str],
    start: float,
    unlearned: str = "",
) -> tuple[ScaledEncoder, Learned]:
    """aTLAS on labelled validation rows of `tasks`, one of which may be a task to unlearn."""
    rows = {task: (experiment.head(task), experiment.rows(task).labelled(PART)) for task in tasks}
    backbone, say = experiment.backbone, _teller(experiment)
    module = ScaledEncoder(backbone, task_vectors(experiment, vectors), [start] * len(vectors))
    gone = [unlearned] if unlearned else []
    return module, negation.supervised_atlas(
        module, backbone, rows, gone, seed=experiment.seed, on_step=say
    )


def _learned(
    experiment: Experiment,
    first: Vectors,
    name: str,
    run: Callable[[], tuple[ScaledEncoder, Learned]],
) -> Model:
    def make() -> Made:
        module, found = run()
        chosen = {"score": found.score, "step": found.step, "blocks": list(found.blocks)}
        coefficients = found.coefficients.squeeze(-1).tolist()
        return {**chosen, "coefficients": coefficients}, module.tau_dict()

    vectors = list(first.values())
    cell = experiment.cell(
        "learned",
        make,
        name,
        learned=name,
        vectors=[vector.key for vector in vectors],
        rows=[experiment.content(task, PART) for task in experiment.pool],
        seed=experiment.seed,
    )
    facts = {"score": cell.facts["score"], "step": cell.facts["step"]}
    direction = KeptDirection(cell, vectors[0].regime)
    return replace(
        individual_models(experiment, first), direction=direction, merging=cell.cost, facts=facts
    )


def _teller(experiment: Experiment) -> Callable[[StepRecord], None]:
    def say(record: StepRecord) -> None:
        if (record.step + 1) % TOLD == 0:
            experiment.cells.say(f"  step {record.step + 1}, loss {record.loss:.3f}")

    return say
