"""Reports a training to trackers while it runs: MLflow, TensorBoard, or, by default, none.

| variable | a training is |
|---|---|
| MLFLOW_TRACKING_URI | a run of the experiment MLFLOW_EXPERIMENT_NAME, `tacl` when unset |
| TACL_TENSORBOARD | a folder of event files below this directory |

The variables are read where rank 0 of the training runs. Each tracker has its own thread, and its
errors are logged: no training fails because of a tracker, or waits for one longer than TIMEOUT.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from cluster.domain.outcomes import GivesWay
from cluster.learner.tracked_run import TrackedRun
from cluster.learner.trackers import MLflowRun, TensorBoard
from tacl.training.loop import StepRecord

SECONDS = 1.0  # of steps that a tracker receives at once
TIMEOUT = 10.0  # to send the remaining steps when the training ends or gives way
LOG = logging.getLogger(__name__)


class Tracker(Protocol):
    def log(self, records: Sequence[StepRecord]) -> None: ...

    def ended(self, metrics: Mapping[str, float] | None) -> None:
        """Takes the metrics of the result; None if the training raised."""
        ...


def asked_for(facts: TrackedRun) -> list[Callable[[], Tracker]]:
    """The trackers that the environment names, to be created, with imports, in their threads."""
    found: list[Callable[[], Tracker]] = []
    if os.environ.get("MLFLOW_TRACKING_URI"):
        found.append(partial(MLflowRun, facts))
    if folder := os.environ.get("TACL_TENSORBOARD"):
        found.append(partial(TensorBoard, facts, Path(folder)))
    return found


class Tracked:
    """Passes a training's steps and its result to trackers."""

    def __init__(self, trackers: Sequence[Callable[[], Tracker]]) -> None:
        self._told = [_Beside(make) for make in trackers]
        self.metrics: Mapping[str, float] | None = None

    def step(self, record: StepRecord) -> None:
        for one in self._told:
            one.queue.put(record)

    def end(self, goes_on: bool = False) -> None:
        for one in self._told:
            one.queue.put(_End(self.metrics, goes_on))
        until = time.monotonic() + TIMEOUT
        for one in self._told:
            one.join(max(0.0, until - time.monotonic()))
            if one.is_alive():
                LOG.warning("a tracker was not done %g s after the training", TIMEOUT)


@contextmanager
def tracked(facts: TrackedRun | None) -> Iterator[Tracked]:
    """Tracks a training within the context; set the yielded object's `metrics` to those of the
    result. `facts` are None on ranks that do not report. A training that gives way has not ended:
    another attempt continues it."""
    told = Tracked([] if facts is None else asked_for(facts))
    try:
        yield told
    except GivesWay:
        told.end(goes_on=True)
        raise
    except BaseException:
        told.end()
        raise
    told.end()


@dataclass(frozen=True)
class _End:
    metrics: Mapping[str, float] | None
    goes_on: bool  # in another attempt


class _Beside(threading.Thread):
    """The thread of one tracker."""

    def __init__(self, make: Callable[[], Tracker]) -> None:
        super().__init__(daemon=True)
        self.queue: SimpleQueue[StepRecord | _End] = SimpleQueue()
        self._make = make
        self.start()

    def run(self) -> None:
        try:
            tracker, end = self._make(), None
            while end is None:
                records, end = self._heard()
                if records:
                    tracker.log(records)
            if not end.goes_on:
                tracker.ended(end.metrics)
        except Exception as error:  # of its library, or of its server; the training goes on
            LOG.warning(
                "a tracker failed and gets no more records: %s: %s", type(error).__name__, error
            )

    def _heard(self) -> tuple[list[StepRecord], _End | None]:
        records: list[StepRecord] = []
        until = time.monotonic() + SECONDS
        while True:
            try:
                one = self.queue.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return records, None
            if isinstance(one, _End):
                return records, one
            records.append(one)
