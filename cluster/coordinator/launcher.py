"""How the coordinator gets work done elsewhere: start it, ask what became of it, stop it.

A protocol, so that the coordinator is tested without processes; the one on Ray is in `actors`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from cluster.domain.outcomes import Outcome
from cluster.domain.work import Work
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.state import Needs, Node

H = TypeVar("H")  # a handle: what a launcher knows a piece of work by, and nobody looks into


class Launcher(Protocol[H]):
    """A piece of work is done by a process, a learner, and by one that did another before only
    where that ended well. It outlives the coordinator, and keeps what became of the work until it
    is ended or let go."""

    def nodes(self) -> tuple[Node, ...]:
        """What the cluster has now, free or not, and what of it actors hold that stay."""
        ...

    def free(self) -> tuple[Node, ...]:
        """What each of these nodes has left; () where nothing says it but counting."""
        ...

    def start(self, work: Work, needs: Needs) -> H:
        """Returns at once, also when no node has room yet. A learner that does this
        attempt already is the one, whoever started it."""
        ...

    def learners(self) -> Collection[Attempt]:
        """Those that are there, whoever started them."""
        ...

    def end(self, attempt: Attempt) -> None:
        """End a learner that this process did not start; harmless when it has ended."""
        ...

    def ended(self, handles: Mapping[str, H]) -> Collection[str]:
        """Of the runs with these handles those whose work may have ended, at one look at all:
        `poll` tells."""
        ...

    def poll(self, handle: H) -> Outcome | None:
        """None while it works; afterwards the same again, until it is ended."""
        ...

    def let_go(self, handle: H) -> None:
        """What it found is recorded: the learner may do something else now, or it ends."""
        ...

    def cancel(self, handle: H) -> None:
        """End the learner, whatever it does; harmless when it has ended."""
        ...
