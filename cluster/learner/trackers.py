"""MLflow and TensorBoard as trackers of a training. Both are optional: BadConfig if missing."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.learner.tracked_run import TrackedRun, scalars
from tacl.errors import BadConfig
from tacl.training.loop import StepRecord

AT_ONCE = 200  # steps; MLflow takes 1,000 metrics in a request
OF_RUN = "tacl.run_id"  # the tag by which an attempt finds the run of earlier attempts


class MLflowRun:
    """One run for all attempts of a training; steps that are repeated have the same numbers."""

    def __init__(self, facts: TrackedRun) -> None:
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param
        except ImportError as error:
            raise BadConfig(
                "MLFLOW_TRACKING_URI is set and mlflow is missing: "
                "install the extra mlflow (docs/how-to/integrations.md)"
            ) from error
        self._metric, self._client, self._last = Metric, MlflowClient(), facts.start_step
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME") or "tacl")
        tags = {OF_RUN: facts.run_id, "tacl.task": facts.task}
        before = self._client.search_runs([experiment], f"tags.`{OF_RUN}` = '{facts.run_id}'")
        run = before[0] if before else self._client.create_run(experiment, None, tags, facts.task)
        self._id = run.info.run_id
        self._client.update_run(self._id, status="RUNNING")
        self._client.set_tag(self._id, "tacl.attempt", facts.attempt)
        given = [Param(key, str(value)) for key, value in facts.parameters.items()]
        self._client.log_batch(self._id, params=given)

    def _experiment(self, name: str) -> str:
        """The experiment's id; created if missing, perhaps by another training meanwhile."""
        from mlflow.exceptions import MlflowException

        if (found := self._client.get_experiment_by_name(name)) is None:
            with contextlib.suppress(MlflowException):
                return self._client.create_experiment(name)
            found = self._client.get_experiment_by_name(name)
        if found is None:
            raise BadConfig(f"MLflow neither has nor makes the experiment {name}")
        return found.experiment_id

    def log(self, records: Sequence[StepRecord]) -> None:
        for first in range(0, len(records), AT_ONCE):
            some = records[first : first + AT_ONCE]
            self._log([(r.step, key, value) for r in some for key, value in scalars(r).items()])
        self._last = records[-1].step

    def ended(self, metrics: Mapping[str, float] | None) -> None:
        self._log([(self._last, key, value) for key, value in (metrics or {}).items()])
        self._client.set_terminated(self._id, "FAILED" if metrics is None else "FINISHED")

    def _log(self, values: list[tuple[int, str, float]]) -> None:
        now = int(1000 * time.time())
        self._client.log_batch(self._id, [self._metric(k, v, now, step) for step, k, v in values])


class TensorBoard:
    """Event files in DIRECTORY/TASK/RUN; steps from `start_step` on are written again."""

    def __init__(self, facts: TrackedRun, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise BadConfig(
                "TACL_TENSORBOARD is set and tensorboard is missing: "
                "install the extra tensorboard (docs/how-to/integrations.md)"
            ) from error
        folder = directory.expanduser() / facts.task / facts.run_id[:16]
        self._writer = SummaryWriter(str(folder), purge_step=facts.start_step)
        rows = "\n".join(f"| {key} | {value} |" for key, value in facts.parameters.items())
        self._writer.add_text("parameters", f"| | |\n|---|---|\n{rows}", facts.start_step)
        self._last = facts.start_step

    def log(self, records: Sequence[StepRecord]) -> None:
        for record in records:
            for key, value in scalars(record).items():
                self._writer.add_scalar(f"training/{key}", value, record.step)
        self._last = records[-1].step
        self._writer.flush()

    def ended(self, metrics: Mapping[str, float] | None) -> None:
        for key, value in (metrics or {}).items():
            self._writer.add_scalar(f"result/{key}", value, self._last)
        self._writer.close()
