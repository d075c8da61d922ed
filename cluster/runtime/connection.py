"""The connection to a coordinator: join a Ray cluster, call it, and retry while nobody answers.

Importing this file imports Ray but not torch, so that learners that compute nothing can use it.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

# A home's cluster is on the loopback interface; Ray reads this when it is imported.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

import ray
from ray._private import ray_constants
from ray.exceptions import RayActorError, RayError, RayTaskError

from cluster.domain.loopback import on_loopback
from cluster.domain.outcomes import Lost
from cluster.domain.work import Lease, Leave, Progress
from cluster.runtime.access import authenticate
from cluster.runtime.served import running
from cluster.storage.home import Home, Running
from tacl.errors import BadConfig, ClusterNotRunning, StorageUnavailable, TaclError

NAMESPACE = "tacl"  # of all named actors: one cluster serves one home
COORDINATOR = "coordinator"
CLIENT_SECONDS = 30.0  # for a lost coordinator to come back
RUN_SECONDS = 600.0  # that a run waits: its work is worth a longer wait
ANSWER_SECONDS = 30.0  # of a coordinator that runs but is busy
PAUSE = 0.3  # seconds between two tries


class RetryPolicy:
    """How long a call to a lost actor is repeated: every call is idempotent by its arguments.

    A run also waits while the coordinator cannot write, and gets errors as they were raised.
    """

    def __init__(
        self, seconds: float, gone: Callable[[str], Exception], of_run: bool = False
    ) -> None:
        self._until, self._gone, self._of_run = time.monotonic() + seconds, gone, of_run

    def after(self, error: Exception) -> float:
        """Seconds until the next try. Raises an error that is an answer, or `gone` when late."""
        if not isinstance(error, RayTaskError):
            if not isinstance(error, RayActorError | ValueError):  # ValueError: no such name
                raise error
        elif not self._of_run:
            raise unwrapped(error) from None
        elif not isinstance(error.cause, StorageUnavailable):
            raise error.cause from None
        if time.monotonic() > self._until:
            raise self._gone(str(error)) from error
        return PAUSE


def has_gpu() -> bool:
    """Whether Ray gave this process a GPU; processes without one can see those of the node, too."""
    return ray.is_initialized() and bool(ray.get_gpu_ids())


def unwrapped(error: RayTaskError) -> BaseException:
    """The error as it was raised if it is a TaclError; else Ray's error, which says where."""
    return error.cause if isinstance(error.cause, TaclError) else error


def coordinator() -> Any:
    """The coordinator of the connected cluster. Raises ValueError if there is none now."""
    return ray.get_actor(COORDINATOR, namespace=NAMESPACE)


def call_actor(
    find: Callable[[], Any], method: str, arguments: Sequence[object], most: RetryPolicy
) -> Any:
    """Return what an actor's method returns; the actor is looked up again for every try."""
    while True:
        try:
            return ray.get(getattr(find(), method).remote(*arguments))
        except (RayError, ValueError) as error:
            time.sleep(most.after(error))


def call_with_retries(
    home: Home, find: Callable[[], Any], method: str, arguments: Sequence[object]
) -> Any:
    """Call a method of an actor of a home's cluster. Raises what the method raises, or
    ClusterNotRunning."""

    def found() -> Any:
        connect(home)
        return find()

    return call_actor(
        found, method, arguments, RetryPolicy(CLIENT_SECONDS, lambda why: _silent(home, why))
    )


class CoordinatorClient:
    """Requests of a run to the coordinator: its next steps, and reports of its progress and of the
    statistics that it shares. It waits for a coordinator that is being restarted.

    Picklable, because it travels to the workers of a run; the actor handle is left out.
    """

    answered = -math.inf  # when a run of this process was last confirmed as the current one

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(self, asked: Lease) -> Leave:
        return self._ask("lease", asked)

    def publish_statistics(self, run_id: str, statistics: str, attempt: int) -> None:
        self._ask("publish_statistics", run_id, statistics, attempt)

    def report_progress(self, run_id: str, progress: Progress, attempt: int) -> bool:
        return self._ask("report_progress", run_id, progress, attempt)

    def is_current(self, run_id: str, attempt: int) -> bool | None:
        """Whether the coordinator waits for this attempt; None if no coordinator answers, perhaps
        because it cannot read its registry now."""
        try:
            asked = coordinator().is_current.remote(run_id, attempt)
            return ray.get(asked, timeout=ANSWER_SECONDS)
        except RayTaskError:
            return True
        except (RayError, ValueError):
            return None

    def _ask(self, method: str, *arguments: object) -> Any:
        kept = iter([self._handle] if self._handle else [])

        def find() -> Any:  # looked up again only if the cached one does not answer
            self._handle = next(kept, None) or coordinator()
            return self._handle

        answer = call_actor(find, method, arguments, RetryPolicy(RUN_SECONDS, _lost, of_run=True))
        CoordinatorClient.answered = time.monotonic()
        return answer

    def __reduce__(self) -> tuple[type[CoordinatorClient], tuple[()]]:
        return CoordinatorClient, ()


def _lost(why: str) -> Lost:
    return Lost(f"no coordinator answered for {RUN_SECONDS:g} s: {why}")


def connect(home: Home) -> None:
    """Become a client of the home's cluster, once per process. Raises ClusterNotRunning."""
    served = running(home)
    if not ray.is_initialized():
        _join(home, served)
    elif (connected := ray.get_runtime_context().gcs_address) != served.address:
        raise BadConfig(
            f"this process is connected to the cluster at {connected}, and {home.path} is served "
            f"at {served.address}: one process talks to one cluster; call ray.shutdown() first"
        )


def leave(home: Home) -> None:
    """Disconnect from the home's cluster before it ends: Ray ends processes that lose theirs."""
    served = home.running()
    if served is None or not ray.is_initialized():
        return
    if ray.get_runtime_context().gcs_address == served.address:
        ray.shutdown()


def _join(home: Home, served: Running) -> None:
    ray_constants.ENABLE_RAY_CLUSTER = not on_loopback(served.address)  # which host we are
    authenticate("disabled" if served.insecure else "token", served.token)
    try:
        dial(served.address)
    except (RayError, OSError, RuntimeError) as error:
        raise _silent(home, f"{error} (process {served.pid}, {served.address})") from error


def _silent(home: Home, why: str) -> ClusterNotRunning:
    return ClusterNotRunning(
        f"the cluster of {home.path} runs and does not answer: {why}. "
        f"See {home.logs}, then {home.command('down')}, and {home.command('up')}."
    )


def dial(address: str) -> None:
    """Become a driver of the Ray cluster at HOST:PORT. Raises OSError at once if nothing listens
    there; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()
    atexit.register(ray.shutdown)  # before Ray's own, which waits half a second for log lines
    ray.init(address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
