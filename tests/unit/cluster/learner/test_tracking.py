"""Trainings as MLflow and TensorBoard show them, by their own readers; and that neither matters."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cluster.domain.work import Trained
from cluster.learner import trackers, tracking, training
from cluster.learner.learner import Learner
from cluster.learner.tracked_run import TrackedRun
from cluster.learner.tracking import Tracked
from cluster.storage.home import Home
from tacl.errors import BadConfig
from tacl.training.loop import StepRecord
from tests.support import tiny

STEPS = 6
FACTS = TrackedRun("run", "task", 1, 0, {})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return tiny.home(tmp_path_factory.mktemp("home"))


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "TACL_TENSORBOARD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    """What asks the store that trainings write to."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr(tracking, "TIMEOUT", 120.0)  # to import it takes 10 s of a busy machine
    return MlflowClient((tmp_path / "mlflow").as_uri())


def trained(home: Home, number: int, attempt: int = 1, dies_at: int | None = None) -> Trained:
    task = tiny.submission(home, number, steps=STEPS, engine="plain")
    teller = tiny.LeaseClient(tiny.generic(home), dies_at=dies_at)
    found = Learner(str(home.path), teller).work(tiny.train_work(home, task, attempt))
    assert isinstance(found, Trained)
    return found


def test_a_training_is_a_run_of_mlflow(home: Home, mlflow: MlflowClient) -> None:
    found = trained(home, 1)
    experiment = mlflow.get_experiment_by_name("tacl")
    assert experiment is not None
    (run,) = mlflow.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("task1", "FINISHED")
    told = {"steps": str(STEPS), "penalty": "mixed", "owner": "ann", "rows": "96"}
    assert told.items() <= run.data.params.items()
    for key in ("loss", "penalty"):
        history = mlflow.get_metric_history(run.info.run_id, key)
        assert [one.step for one in history] == found.curves["step"]
        assert [one.value for one in history] == pytest.approx(found.curves[key])
    accuracy = found.metrics["validation_accuracy"]
    assert run.data.metrics["validation_accuracy"] == pytest.approx(accuracy)
    before = found.metrics["validation_zero_shot"]  # the tiny base has no text tower
    assert run.data.metrics["validation_class_means"] == pytest.approx(before)
    assert "validation_zero_shot" not in run.data.metrics


def test_only_a_head_of_class_names_is_called_zero_shot(home: Home) -> None:
    base, metrics = home.founded().base, {"validation_zero_shot": 0.5, "seconds": 2.0}
    names = base.model_copy(update={"head_kind": "text"})
    assert training.named(metrics, names) == metrics
    assert training.named(metrics, base) == {"validation_class_means": 0.5, "seconds": 2.0}


def test_a_training_that_died_goes_on_in_its_run(
    home: Home, mlflow: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.setattr(tiny.LeaseClient, "seconds", -1.0)  # every step is asked for
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)  # and is a checkpoint
    with pytest.raises(ConnectionError):
        trained(home, 2, dies_at=3)
    experiment = mlflow.get_experiment_by_name("mine")
    assert experiment is not None
    (run,) = mlflow.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"
    trained(home, 2, attempt=2)
    (run,) = mlflow.search_runs([experiment.experiment_id])
    assert (run.info.status, run.data.tags["tacl.attempt"]) == ("FINISHED", "2")
    history = mlflow.get_metric_history(run.info.run_id, "loss")
    values = {one.step: one.value for one in history}
    assert list(values) == list(range(STEPS))


def test_a_training_is_a_folder_of_tensorboard(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACL_TENSORBOARD", str(tmp_path / "events"))
    found = trained(home, 3)
    (folder,) = (tmp_path / "events" / "task3").iterdir()
    events = EventAccumulator(str(folder)).Reload()
    scalars = {"training/loss", "training/learning_rate", "result/validation_accuracy"}
    assert scalars <= set(events.Tags()["scalars"])
    shown = events.Scalars("training/loss")
    assert [one.step for one in shown] == found.curves["step"]
    assert [one.value for one in shown] == pytest.approx(found.curves["loss"])
    (text,) = events.Tensors("parameters/text_summary")
    assert b"| penalty | mixed |" in text.tensor_proto.string_val[0]


def record(step: int) -> StepRecord:
    return StepRecord(step, STEPS, 1.0, None, 0.5, 0.1)


class Heard:
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.end: Any = "not yet"

    def log(self, records: Sequence[StepRecord]) -> None:
        self.steps += [one.step for one in records]

    def ended(self, metrics: Mapping[str, float] | None) -> None:
        self.end = metrics


class Broken(Heard):
    def log(self, records: Sequence[StepRecord]) -> None:
        raise ConnectionError("no answer")


class Slow(Heard):
    def log(self, records: Sequence[StepRecord]) -> None:
        threading.Event().wait(3600)


def listening(monkeypatch: pytest.MonkeyPatch, *trackers: Callable[[], Heard]) -> None:
    monkeypatch.setattr(tracking, "asked_for", lambda facts: trackers)


def test_a_tracker_that_fails_or_hangs_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    monkeypatch.setattr(tracking, "TIMEOUT", 0.5)
    monkeypatch.setattr(tracking, "SECONDS", 0.05)
    listening(monkeypatch, lambda: heard, Broken, Slow)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING), tracking.tracked(FACTS) as told:
        for step in range(STEPS):
            told.step(record(step))
            time.sleep(0.02)
        told.metrics = {"validation_accuracy": 0.5}
    assert time.monotonic() - started < 5
    assert (heard.steps, heard.end) == (list(range(STEPS)), {"validation_accuracy": 0.5})
    assert "ConnectionError: no answer" in caplog.text
    assert "was not done" in caplog.text


def test_what_raised_has_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    listening(monkeypatch, lambda: heard)

    def train() -> None:
        with tracking.tracked(FACTS) as told:
            told.step(record(0))
            raise ValueError("the loss is no number")

    with pytest.raises(ValueError, match="no number"):
        train()
    assert (heard.steps, heard.end) == ([0], None)


def test_where_nobody_listens_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    with tracking.tracked(FACTS) as told:
        told.step(record(0))
        assert threading.active_count() == before
    monkeypatch.setenv("TACL_TENSORBOARD", "/nowhere")
    with tracking.tracked(None) as told:  # another rank
        assert isinstance(told, Tracked)
        assert threading.active_count() == before


@pytest.mark.parametrize(("library", "tracker"), [("mlflow", "MLFLOW"), ("tensorboard", "TACL_T")])
def test_a_library_that_is_missing_is_named(
    library: str, tracker: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(BadConfig, match=rf"{tracker}.*the extra {library}"):
        _ = (
            trackers.MLflowRun(FACTS)
            if library == "mlflow"
            else trackers.TensorBoard(FACTS, tmp_path)
        )
