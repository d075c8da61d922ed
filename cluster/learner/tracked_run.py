"""What every tracker receives of a training, and the names under which it shows a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tacl.training.loop import StepRecord


@dataclass(frozen=True)
class TrackedRun:
    """Facts of a training before its first step; `start_step` is later in a resumed attempt."""

    run_id: str
    task: str
    attempt: int
    start_step: int
    parameters: Mapping[str, object]


def scalars(record: StepRecord) -> dict[str, float]:
    """Figures of one step by the names that all trackers show; `penalty` only if there was one."""
    found = {"loss": record.loss, "gradient_norm": record.gradient_norm}
    found["learning_rate"] = record.learning_rate
    return found if record.penalty is None else {**found, "penalty": record.penalty}
