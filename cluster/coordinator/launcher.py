"""How the coordinator gets work done elsewhere: start it, ask what became of it, stop it.

A protocol, so that the coordinator is tested without processes; the one on Ray is in `actors`.
"""

from __future__ import annotations

from typing import Any, Protocol

from cluster.domain.outcomes import Outcome
from cluster.domain.work import Work
from cluster.scheduler.state import Needs, Node


class Launcher(Protocol):
    """Every piece of work gets a process of its own, which ends with it."""

    def nodes(self) -> tuple[Node, ...]:
        """What the cluster has now, free or not, and what of it actors hold that stay."""
        ...

    def free(self) -> tuple[Node, ...]:
        """What each of these nodes has left; () where nothing says it but counting."""
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
