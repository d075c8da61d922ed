"""The way to a home's coordinator: connect to its Ray cluster, ask, and unwrap what went wrong.

Importing this file imports Ray.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any, cast

# A home's cluster is on the loopback interface; Ray reads this when it is imported.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

import ray
from ray._private import ray_constants
from ray._raylet import AuthenticationTokenLoader, Config  # pyright: ignore
from ray.exceptions import RayActorError, RayError, RayTaskError

from cluster.domain.api import CoordinatorAPI
from cluster.storage.home import Home, Running, on_loopback
from tacl.errors import BadConfig, ClusterNotRunning, TaclError

NAMESPACE = "tacl"
COORDINATOR = "coordinator"
PATIENCE = 30.0  # seconds for a coordinator that was lost to be back


def ask(home: Home, method: str, *arguments: object) -> Any:
    """Call a coordinator's method. Raises what the method raises, or ClusterNotRunning."""
    return patiently(
        home, lambda: ray.get_actor(COORDINATOR, namespace=NAMESPACE), method, arguments
    )


def patiently(
    home: Home, find: Callable[[], Any], method: str, arguments: tuple[object, ...]
) -> Any:
    """Repeat a call whose actor is lost meanwhile: every method is idempotent by its arguments."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connect(home)
            return ray.get(getattr(find(), method).remote(*arguments))
        except RayTaskError as error:
            raise unwrapped(error) from None
        except (RayActorError, ValueError) as error:  # ValueError: no actor of that name, for now
            if time.monotonic() > deadline:
                raise ClusterNotRunning(
                    f"the cluster of {home.path} runs and does not answer: {error}. "
                    f"See {home.logs}, then `tacl down` and `tacl up`."
                ) from error
            time.sleep(0.3)


def unwrapped(error: RayTaskError) -> BaseException:
    """The error as it was raised, when it is an answer; else with Ray's account of where."""
    return error.cause if isinstance(error.cause, TaclError) else error


def connect(home: Home) -> None:
    """Become a client of the home's cluster, once per process. Raises ClusterNotRunning."""
    running = home.running()
    if running is None:
        raise ClusterNotRunning(
            f"no cluster serves {home.path}; start it: tacl up --home {home.path}"
        )
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if connected == running.address:
            return
        raise BadConfig(
            f"this process is connected to the cluster at {connected}, and {home.path} is served "
            f"at {running.address}: one process talks to one cluster; call ray.shutdown() first"
        )
    _join(home, running)


def leave(home: Home) -> None:
    """Disconnect from the home's cluster before it ends: Ray ends processes that lost theirs."""
    running = home.running()
    if running is None or not ray.is_initialized():
        return
    if ray.get_runtime_context().gcs_address == running.address:
        ray.shutdown()


def _join(home: Home, running: Running) -> None:
    _require_listening(home, running)
    ray_constants.ENABLE_RAY_CLUSTER = not on_loopback(running.address)  # which host we are
    if running.joined:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    else:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.pop("RAY_AUTH_TOKEN", None)  # would come first
    if running.token is not None:
        os.environ["RAY_AUTH_TOKEN_PATH"] = running.token
    Config.initialize("")  # Ray read its environment when it was imported,
    AuthenticationTokenLoader.instance().reset_cache()  # and keeps the token of another home
    try:
        ray.init(
            address=running.address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (RayError, ConnectionError, RuntimeError) as error:
        raise ClusterNotRunning(
            f"the cluster of {home.path} at {running.address} does not answer: {error}. "
            f"See {home.logs}, then `tacl down` and `tacl up`."
        ) from error


def _require_listening(home: Home, running: Running) -> None:
    """Ray itself would try for minutes."""
    host, _, port = running.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise ClusterNotRunning(
            f"the cluster of {home.path} runs as process {running.pid} and does not listen at "
            f"{running.address}: {error}. See {home.logs}, then `tacl down` and `tacl up`."
        ) from error


class _Coordinator:
    def __init__(self, home: Home) -> None:
        self._home = home

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments: ask(self._home, method, *arguments)


def coordinator_of(home: Home) -> CoordinatorAPI:
    """A home's coordinator. Its methods raise ClusterNotRunning too; arguments go by position."""
    return cast(CoordinatorAPI, _Coordinator(home))
