"""How the coordinator gets work done elsewhere: start it, ask what became of it, stop it.

A protocol, so that the coordinator is tested without processes; the one on Ray is in `actors`.
"""

from __future__ import annotations

import importlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cluster.messages import Base, Result, Work
from cluster.state import Needs, Node
from tacl.errors import StorageUnavailable


class Lost(Exception):
    """A process that the work needs is gone, as when a worker of a group was killed.

    A learner raises it when the same work may succeed in other processes. Any other exception is
    taken as one that the work would meet again.
    """


@dataclass(frozen=True)
class Finished:
    result: Result


@dataclass(frozen=True)
class Raised:
    """The work ended with an error. `trace` is for those who look for the defect."""

    cause: str
    trace: str = ""


@dataclass(frozen=True)
class Gone:
    """The process is gone, or one that it needs."""

    cause: str


Outcome = Finished | Raised | Gone


class Launcher(Protocol):
    """Every piece of work gets a process of its own, which ends with it."""

    def nodes(self) -> tuple[Node, ...]:
        """What the cluster has now, free or not."""
        ...

    def free(self) -> tuple[Node, ...]:
        """What each of several nodes has left; () for one node, where counting says it."""
        ...

    def start(self, work: Work, needs: Needs) -> Any:
        """A handle; returns at once, also when no node has room yet."""
        ...

    def poll(self, handle: Any) -> Outcome | None:
        """None while it works. The process of an outcome has ended, or ends soon."""
        ...

    def cancel(self, handle: Any) -> None:
        """End it, whatever it does; harmless when it has ended."""
        ...


class LearnerProcess:
    """One process for one piece of work. The class is imported here, not where it is named: only
    this process pays for torch."""

    def __init__(self, home: str, learner: str) -> None:
        self._home, self._learner = home, learner

    def describe_base(self, spec: str) -> Base:
        return self._made().describe_base(spec)

    def work(self, work: Work) -> Result:
        return self._made().work(work)

    def _made(self) -> Any:
        """StorageUnavailable on a node that does not see the home, as one that came later."""
        if "://" not in self._home and not Path(self._home).is_dir():
            raise StorageUnavailable(
                f"the node {socket.gethostname()} has no directory {self._home}, where the home "
                "is; let it mount that, or take it out of the cluster"
            )
        module, _, name = self._learner.partition(":")
        return getattr(importlib.import_module(module), name)(self._home)
