"""Clusters without processes, whose work the real learner does in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from cluster.client.client import Client
from cluster.coordinator.core import Coordinator
from cluster.domain.api import CoordinatorAPI
from cluster.domain.operations import StartedCluster
from cluster.domain.outcomes import Finished, Outcome, Raised
from cluster.domain.work import Lease, Leave, Progress
from cluster.learner.learner import Learner
from cluster.runtime.head import generic_shard
from cluster.serving.predictor import Predictor
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home, Settings, write
from tests.support import tiny
from tests.support.fakes import FakeLauncher, FakeProcess
from tests.support.instant import InProcess


@dataclass
class Inline(FakeLauncher):
    """Work is done when it is polled; steps see only the generic samples."""

    home: Home = field(kw_only=True)

    def poll(self, handle: FakeProcess) -> Outcome | None:
        learner = Learner(str(self.home.path), tiny.LeaseClient(tiny.generic(self.home)))
        return outcome_of(learner, handle)


def outcome_of(learner: Learner, handle: FakeProcess) -> Outcome:
    try:
        return Finished(learner.work(handle.work))
    except Exception as error:
        return Raised(f"{type(error).__name__}: {error}")


class Asking:
    """A run's connection to the coordinator, without Ray."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, asked: Lease) -> Leave:
        return self._coordinator.lease(asked)

    def publish_statistics(self, run_id: str, statistics: str, attempt: int) -> None:
        self._coordinator.publish_statistics(run_id, statistics, attempt)

    def report_progress(self, run_id: str, progress: Progress, attempt: int) -> bool:
        return self._coordinator.report_progress(run_id, progress, attempt)


class Working(InProcess):
    """A coordinator whose every tick does all work with the real learner."""

    def __init__(self, home: Home) -> None:
        self._home, self._launcher_here = home, FakeLauncher()
        super().__init__(home.path, self._launcher_here)

    def tick(self) -> None:
        super().tick()
        while running := self._launcher_here.running():
            learner = Learner(str(self._home.path), Asking(self))
            running[0].outcome = outcome_of(learner, running[0])
            super().tick()


class Here(Client):
    """A client of a cluster in this process, which `up` founds like the real one."""

    running: ClassVar[dict[Path, Working]] = {}

    def up(
        self, base: str | None = None, generic: Any = None, *given: Any, **named: Any
    ) -> StartedCluster:
        self.home.path.mkdir(parents=True, exist_ok=True)
        described = Learner(str(self.home.path), tiny.LeaseClient()).describe_base(base or "")
        blobs = Blobs(self.home.path / "blobs")
        samples = generic_shard(blobs, described.modality, generic and str(generic))
        settings = Settings(base=described, generic=samples, blobs=str(self.home.path / "blobs"))
        write(self.home.settings_file, settings)
        self.running[self.home.path] = Working(self.home)
        return StartedCluster(
            home=str(self.home.path),
            base=described.spec,
            digest=described.digest,
            modality=described.modality,
            generic_rows=samples.rows,
            address="",
            pid=0,
            started=True,
        )

    @cached_property
    def coordinator(self) -> CoordinatorAPI:
        return self.running[self.home.path]

    @cached_property
    def predictor(self) -> Any:
        return Predictor(str(self.home.path))

    def down(self) -> bool:
        self.running.pop(self.home.path).close()
        return True
