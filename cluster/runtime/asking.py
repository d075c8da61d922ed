"""How a run asks the coordinator, before every step, whose samples it sees, and tells it what
others see of its own.

Knows no torch: a learner that computes nothing can use it too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from cluster.domain.outcomes import Lost
from cluster.domain.tasks import Shard
from cluster.domain.work import Progress
from tacl.errors import StorageUnavailable

PATIENCE = 60.0  # seconds that a run waits for a coordinator that is being restarted


class Coordinators:
    """Asks the coordinator that runs now; one that is being restarted is waited for.

    Picklable, because it travels to the workers of a run.
    """

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(
        self, run_id: str, step: int, progress: Progress | None, attempt: int
    ) -> Sequence[Shard]:
        return self._ask("known", run_id, step, progress, attempt)

    def stated(self, run_id: str, statistics: str, attempt: int) -> None:
        self._ask("stated", run_id, statistics, attempt)

    def progressed(self, run_id: str, progress: Progress, attempt: int) -> None:
        self._ask("progressed", run_id, progress, attempt)

    def _ask(self, method: str, *arguments: Any) -> Any:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                if self._handle is None:
                    self._handle = ray.get_actor("coordinator", namespace="tacl")
                return ray.get(getattr(self._handle, method).remote(*arguments))
            except RayTaskError as error:
                if not isinstance(error.cause, StorageUnavailable):
                    raise error.cause from None  # the coordinator's own answer
                self._wait(until, f"the coordinator cannot write: {error.cause}")
            except (RayActorError, ActorUnavailableError, ValueError):
                self._handle = None
                self._wait(until, "no coordinator answered")

    def _wait(self, until: float, what: str) -> None:
        if time.monotonic() > until:
            raise Lost(f"{what}, for {PATIENCE:g} s")
        time.sleep(0.5)

    def __reduce__(self) -> tuple[type[Coordinators], tuple[()]]:
        return Coordinators, ()
