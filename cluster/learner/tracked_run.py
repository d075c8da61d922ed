"""What every tracker is told of a training, and by which names it shows a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tacl.training.loop import StepRecord


@dataclass(frozen=True)
class TrackedRun:
    """What is known of a training before its first step; after a death it starts again later."""

    run_id: str
    task: str
    attempt: int
    start_step: int
    parameters: Mapping[str, object]


def scalars(record: StepRecord) -> dict[str, float]:
    """Of one step, by the names that all trackers show; of the penalty where there was one."""
    found = {"loss": record.loss, "gradient_norm": record.gradient_norm}
    found["learning_rate"] = record.learning_rate
    return found if record.penalty is None else {**found, "penalty": record.penalty}
