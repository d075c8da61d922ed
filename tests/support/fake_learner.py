"""The learner class that Ray actors run in tests of the head: it works without an encoder."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable

from cluster.coordinator.arrivals import Arrivals
from cluster.domain.base import Base
from cluster.domain.tasks import Shard
from cluster.domain.work import Lease, Progress, Result, TrainWork, Work
from cluster.storage.home import Home
from tacl.training.config import Precision
from tests.support.fakes import BASE, calm, result_of


class FakeLearner:
    """Trains for STEPS short steps, with a lease of this Ray cluster's coordinator for each."""

    STEPS = 30
    SECONDS = 0.1  # a step

    def __init__(self, home: str) -> None:
        self._home = Home.at(home)

    def describe_base(self, spec: str) -> Base:
        digest = hashlib.sha256(spec.encode()).hexdigest()
        return BASE.model_copy(update={"spec": spec, "digest": digest})

    def faster_precision(self, spec: str) -> Precision:
        return "float32"

    def work(self, work: Work) -> Result:
        told = self._train(work) if isinstance(work, TrainWork) else ()
        return result_of(work, self._home.blobs(), calm, told)

    def _train(self, work: TrainWork) -> Iterable[Shard]:
        from cluster.runtime.connection import CoordinatorClient

        known, arrivals = CoordinatorClient(), Arrivals()
        for step in range(self.STEPS):
            progress = Progress(step=step, steps=self.STEPS, loss=1 / (1 + step))
            asked = Lease(
                run_id=work.run_id,
                first=step,
                last=step,
                since=step - 1,
                progress=progress,
                attempt=work.attempt,
            )
            arrivals.apply(known(asked).arrivals)
            time.sleep(self.SECONDS)
        return arrivals.at(self.STEPS)
