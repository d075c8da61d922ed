"""One process for one piece of work."""

from __future__ import annotations

import importlib
import logging
import socket
from pathlib import Path
from typing import Any

from cluster.domain.base import Base
from cluster.domain.work import Result, Work
from cluster.runtime.logs import log_to
from cluster.storage.home import Home
from tacl.errors import StorageUnavailable

LOG = logging.getLogger(__name__)


class LearnerProcess:
    """One process for one piece of work. The class is imported here, not where it is named: only
    this process pays for torch."""

    def __init__(self, home: str, learner: str) -> None:
        self._home, self._learner = home, learner

    def describe_base(self, spec: str) -> Base:
        return self._made().describe_base(spec)

    def work(self, work: Work) -> Result:
        learner = self._made()
        log_to(Home.at(self._home).logs, "learners")
        facts = {"run_id": work.run_id, "kind": work.kind}
        LOG.info("started on %s", socket.gethostname(), extra=facts)
        try:
            found = learner.work(work)
        except Exception as error:
            LOG.info("raised", extra=facts | {"cause": f"{type(error).__name__}: {error}"})
            raise
        LOG.info("ended", extra=facts)
        return found

    def _made(self) -> Any:
        """StorageUnavailable on a node that does not see the home, as one that came later."""
        if "://" not in self._home and not Path(self._home).is_dir():
            raise StorageUnavailable(
                f"the node {socket.gethostname()} has no directory {self._home}, where the home "
                "is; let it mount that, or take it out of the cluster"
            )
        module, _, name = self._learner.partition(":")
        return getattr(importlib.import_module(module), name)(self._home)
