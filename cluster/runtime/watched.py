"""The class of the coordinator's actor: a process that looks it up imports this file, not the code
behind it (SQL, the scheduler), which takes longer to import than most requests to answer."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from cluster import tracing
from cluster.domain.api import READS, CoordinatorAPI, RunAPI
from cluster.domain.base import RequestContext
from cluster.runtime import local_socket
from cluster.storage.home import Home
from tacl.errors import NotAllowed

DECLARED = (*READS, *vars(CoordinatorAPI), *vars(RunAPI))
METHODS = frozenset(name for name in DECLARED if not name.startswith("_")) | {"serves"}  # for heads
LONG = ("collect", "references")  # they read everything, and must not hold up others
RETRY = 1.0  # seconds before a start that failed is retried
LOG = logging.getLogger(__name__)


class WatchedCoordinator:
    """Passes calls on to `cluster.runtime.actors.TickingCoordinator`, one at a time except LONG
    ones. They come through Ray, or from its own machine through the socket.

    If a start fails, for example because the disk is full, the process ends, so that Ray starts it
    again; an exception would end the actor for ever.
    """

    def __init__(self, home: str, learner: str, runs: int) -> None:
        from cluster.runtime.actors import TickingCoordinator

        self._turn = threading.Lock()
        try:
            self._coordinator = TickingCoordinator(home, learner, runs)
            local_socket.listen(Home.at(home).path, self._call)
        except Exception:
            LOG.exception("the coordinator cannot start; it is tried again")
            time.sleep(RETRY)
            os._exit(1)

    def _call(self, method: str, arguments: Sequence[object]) -> Any:
        if method not in METHODS:
            raise NotAllowed(f"a coordinator has no method {method}")
        return getattr(self, method)(*arguments)


def _passing_on(method: str) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any, traceparent: str | None = None, **named: Any) -> Any:
        run_id = _of_run(method, arguments)
        parent = traceparent or (run_id and tracing.of_run(run_id))
        ids = {"run_id": run_id, "request_id": _request_id(arguments)}
        turn = nullcontext() if method in LONG else self._turn
        with turn, tracing.span(method, parent, **ids):
            answer = getattr(self._coordinator, method)(*arguments, **named)
            tracing.set_attributes(run_id=getattr(answer, "run_id", None))
            return answer

    return call


def _of_run(method: str, arguments: Sequence[Any]) -> str | None:
    """The run that makes this request, from its lease or its id; None if none does."""
    if not arguments or not hasattr(RunAPI, method):
        return None
    return getattr(arguments[0], "run_id", arguments[0])


def _request_id(arguments: Sequence[Any]) -> str | None:
    first = arguments[0] if arguments else None
    return first.request_id if isinstance(first, RequestContext) else None


for name in METHODS:
    setattr(WatchedCoordinator, name, _passing_on(name))
