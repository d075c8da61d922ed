"""A learner: a process that does one piece of work after the other."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import socket
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from cluster import tracing
from cluster.domain.base import Base
from cluster.domain.work import Result, Work
from cluster.runtime.connection import CoordinatorClient
from cluster.runtime.logs import log_to
from cluster.runtime.orphaned import until_orphaned
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.leases import LONGEST
from cluster.storage.home import Home
from cluster.storage.niceness import lower_priority
from tacl.errors import StorageUnavailable
from tacl.training.config import Precision

PREFIX = "learner"  # of the names of actors
RECENT = 1.2 * LONGEST  # seconds; the last answer of a training that continues is younger
PAUSE, LONGEST_PAUSE = 20.0, 60.0  # seconds before it is reported that the storage fails

LOG = logging.getLogger(__name__)


def name_of(attempt: Attempt) -> str:
    """Name of the actor that does this attempt first; later coordinators find it by this name."""
    return f"{PREFIX} {attempt.run_id} {attempt.number}"


def attempt_of(name: str) -> Attempt | None:
    """The attempt that a learner did first; None if the actor is no learner."""
    prefix, *parts = name.split(" ")
    return Attempt(parts[0], int(parts[1])) if prefix == PREFIX and len(parts) == 2 else None


class LearnerProcess:
    """The class of the learner is imported here, not where it is named: only this process pays for
    torch. It outlives its coordinator, and ends by itself once nobody waits for its work, at first
    `attempt`. From one piece of work to the next it keeps its imports and the base."""

    def __init__(self, home: str, learner: str, attempt: Attempt | None = None) -> None:
        self._home, self._learner = home, learner
        self._attempt = attempt
        self._let_go: Attempt | None = None  # found to be no longer awaited
        self._found: Future[Result] = Future()
        if attempt is not None:
            alone = threading.Thread(target=until_orphaned, args=(self._awaited, self._end))
            alone.daemon = True
            alone.start()

    def describe_base(self, spec: str) -> tuple[Base, Precision]:
        """The base, and the number format in which it trains faster here."""
        learner = self._made()
        return learner.describe_base(spec), learner.faster_precision(spec)

    def work(self, work: Work) -> Result:
        """Do the work. A repeated call, for example by the next coordinator, returns the same."""
        attempt = Attempt(work.run_id, work.attempt)
        if attempt != self._attempt:
            self._attempt, self._found = attempt, Future()
            gc.collect()  # garbage of the last work
            gc.freeze()  # the rest stays: to examine all that is imported takes a fifth of a second
        if not self._found.done():
            lower_priority()
            try:
                self._found.set_result(self._done(work))
            except Exception as error:
                if isinstance(error, StorageUnavailable):  # three tries at once would all fail
                    time.sleep(min(LONGEST_PAUSE, PAUSE * work.attempt))
                self._found.set_exception(error)
        return self._found.result()

    def _done(self, work: Work) -> Result:
        learner = self._made()
        log_to(Home.at(self._home).logs, "learners")
        facts = {"run_id": work.run_id, "kind": work.kind}
        LOG.info("started on %s", socket.gethostname(), extra=facts)
        try:
            with tracing.span(work.kind, tracing.of_run(work.run_id), **facts):
                found = learner.work(work)
        except Exception as error:
            LOG.info("raised", extra=facts | {"cause": f"{type(error).__name__}: {error}"})
            raise
        finally:
            tracing.flush()
        LOG.info("ended", extra=facts)
        return found

    def _awaited(self) -> bool | None:
        """Whether the coordinator waits for it, by the last leases of a training or by a request;
        if thousands of learners requested it, it would be half of the coordinator's answers. A
        learner whose work is done and recorded may be about to get more: it ends only if nobody
        waits at the next check either."""
        attempt = self._attempt
        assert attempt is not None
        if time.monotonic() - CoordinatorClient.answered < RECENT:
            return True
        awaited = CoordinatorClient().is_current(*attempt)
        if attempt != self._attempt:
            return True  # the request was about work that is over
        if awaited is False and self._found.done() and attempt != self._let_go:
            self._let_go = attempt
            return True
        return awaited

    def _end(self) -> None:
        facts = {"run_id": self._attempt and self._attempt.run_id}
        LOG.warning("ends: no coordinator waits for it", extra=facts)
        os._exit(0)

    def _made(self) -> Any:
        """Make the learner. StorageUnavailable if this node, perhaps a new one, lacks the home."""
        if "://" not in self._home and not Path(self._home).is_dir():
            raise StorageUnavailable(
                f"the node {socket.gethostname()} has no directory {self._home}, where the home "
                "is; let it mount that, or take it out of the cluster"
            )
        module, _, name = self._learner.partition(":")
        return getattr(importlib.import_module(module), name)(self._home)
