"""A learner: a process for one piece of work after the other."""

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
RECENT = 1.2 * LONGEST  # seconds; of trainings that go on, the last answer is younger

LOG = logging.getLogger(__name__)


def name_of(attempt: Attempt) -> str:
    """Of the actor that does this first; coordinators that come later find it by this."""
    return f"{PREFIX} {attempt.run_id} {attempt.number}"


def attempt_of(name: str) -> Attempt | None:
    """What a learner did first; None for an actor that is none."""
    prefix, *parts = name.split(" ")
    return Attempt(parts[0], int(parts[1])) if prefix == PREFIX and len(parts) == 2 else None


class LearnerProcess:
    """The class of the learner is imported here, not where it is named: only this process pays for
    torch. It outlives its coordinator, and ends by itself once nobody waits for what it does,
    `attempt` at first. Of one piece of work to the next it keeps what is imported, and the base."""

    def __init__(self, home: str, learner: str, attempt: Attempt | None = None) -> None:
        self._home, self._learner = home, learner
        self._attempt = attempt
        self._let_go: Attempt | None = None  # found to be awaited no more
        self._found: Future[Result] = Future()
        if attempt is not None:
            alone = threading.Thread(target=until_orphaned, args=(self._awaited, self._end))
            alone.daemon = True
            alone.start()

    def describe_base(self, spec: str) -> tuple[Base, Precision]:
        """And the number format in which it trains faster here."""
        learner = self._made()
        return learner.describe_base(spec), learner.faster_precision(spec)

    def work(self, work: Work) -> Result:
        """Asked again, as by the next coordinator, it answers the same."""
        attempt = Attempt(work.run_id, work.attempt)
        if attempt != self._attempt:
            self._attempt, self._found = attempt, Future()
            gc.collect()  # what the last one left
            gc.freeze()  # what stays: to look through what is imported takes a fifth of a second
        if not self._found.done():
            lower_priority()
            try:
                self._found.set_result(self._done(work))
            except Exception as error:
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
        """As the coordinator says, with the leases of a training or when it is asked: thousands of
        learners that ask for this too would be half of what it answers. One that has done its work,
        which is recorded, may be about to be given more: it is alone when that is still so at the
        next look."""
        attempt = self._attempt
        assert attempt is not None
        if time.monotonic() - CoordinatorClient.answered < RECENT:
            return True
        awaited = CoordinatorClient().awaits(*attempt)
        if attempt != self._attempt:
            return True  # it was asked about what is over
        if awaited is False and self._found.done() and attempt != self._let_go:
            self._let_go = attempt
            return True
        return awaited

    def _end(self) -> None:
        facts = {"run_id": self._attempt and self._attempt.run_id}
        LOG.warning("ends: no coordinator waits for it", extra=facts)
        os._exit(0)

    def _made(self) -> Any:
        """StorageUnavailable on a node that does not see the home, as one that came later."""
        if "://" not in self._home and not Path(self._home).is_dir():
            raise StorageUnavailable(
                f"the node {socket.gethostname()} has no directory {self._home}, where the home "
                "is; let it mount that, or take it out of the cluster"
            )
        module, _, name = self._learner.partition(":")
        return getattr(importlib.import_module(module), name)(self._home)
