"""Compositions whose coefficients are learned: aTLAS on validation labels, AdaMerging on inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jobs.experiments.cache import Made
from jobs.experiments.context import Bench
from jobs.experiments.directions import Kept, Vector
from jobs.experiments.models import Model, Vectors, apart, right
from tacl.compose.adamerging import adamerging
from tacl.compose.learning import Learned, learn, learning_config
from tacl.compose.scaled import ScaledEncoder
from tacl.evaluation import metrics
from tacl.heads.joint import JointHead, joint_data
from tacl.training.loop import StepRecord
from tacl.vectors.vector import TaskVector

PART = "validation:100"  # of each task
ROWS = 16  # of each task in a batch
TOLD = 20


def adamerged(bench: Bench, first: Vectors) -> Model:
    """Layer-wise AdaMerging (arXiv 2310.02575) on unlabelled validation inputs."""

    def make() -> Made:
        inputs = [bench.rows(task).items(PART) for task in bench.pool]
        heads = [bench.head(task) for task in bench.pool]
        ones = [1.0] * len(heads)
        module, learned = adamerging(
            bench.backbone,
            _vectors(bench, first),
            ones,
            inputs,
            heads,
            seed=bench.seed,
            on_step=_teller(bench),
        )
        return _facts(learned), module.tau_dict()

    return _learned(bench, first, "adamerging", make)


def atlas(bench: Bench, first: Vectors) -> Model:
    """One coefficient for each (vector, block) on labelled validation rows (arXiv 2407.02880).

    On linearized vectors the deviation from 1 is learned: their sum works already.
    """
    linear = next(iter(first.values())).regime == "linearized"

    def make() -> Made:
        heads = [bench.head(task) for task in bench.pool]
        start = [1.0 if linear else 0.0] * len(heads)
        module = ScaledEncoder(bench.backbone, _vectors(bench, first), start)
        data = joint_data([bench.rows(task).labelled(PART) for task in bench.pool], heads)
        config = learning_config("addition", len(data), bench.seed, ROWS * len(heads))
        learned = learn(
            module,
            bench.backbone,
            JointHead.of(heads),
            data,
            config,
            score=_score(bench),
            on_step=_teller(bench),
        )
        return _facts(learned), module.tau_dict()

    return _learned(bench, first, "atlas", make)


def _score(bench: Bench) -> Callable[[ScaledEncoder], float]:
    def score(module: ScaledEncoder) -> float:
        found = {t: module.features(bench.backbone, bench.rows(t).items(PART)) for t in bench.pool}
        return metrics.absolute(right(bench, found, PART))

    return score


def _learned(bench: Bench, first: Vectors, name: str, make: Callable[[], Made]) -> Model:
    vectors: Sequence[Vector] = list(first.values())
    decides = bench.decided_by(
        learned=name,
        vectors=[vector.key for vector in vectors],
        rows=[bench.content(task, PART) for task in bench.pool],
        seed=bench.seed,
    )
    cell = bench.cells.get("learned", decides, make, f"{name}, seed {bench.seed}")
    facts = {"score": cell.facts["score"], "step": cell.facts["step"]}
    direction = Kept(cell, vectors[0].regime)
    return replace(apart(bench, first), direction=direction, merging=cell.cost, facts=facts)


def _vectors(bench: Bench, first: Vectors) -> list[TaskVector]:
    return [vector.task_vector(bench.backbone.digest) for vector in first.values()]


def _facts(learned: Learned) -> dict[str, Any]:
    return {
        "score": learned.score,
        "step": learned.step,
        "blocks": list(learned.blocks),
        "coefficients": learned.coefficients.squeeze(-1).tolist(),
    }


def _teller(bench: Bench) -> Callable[[StepRecord], None]:
    def say(record: StepRecord) -> None:
        if (record.step + 1) % TOLD == 0:
            bench.cells.say(f"  step {record.step + 1}, loss {record.loss:.3f}")

    return say
