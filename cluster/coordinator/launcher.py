"""How the coordinator has work done elsewhere: starts it, polls its outcome, stops it.

A protocol, so that the coordinator is tested without processes; the one on Ray is in `actors`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from cluster.domain.outcomes import Outcome
from cluster.domain.work import Work
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.state import Needs, Node

H = TypeVar("H")  # a handle: how a launcher knows a piece of work; opaque to others


class Launcher(Protocol[H]):
    """Has each piece of work done by a process, a learner; one that did other work before is used
    only if that ended well. A learner outlives the coordinator, and keeps the outcome of its work
    until it is ended or let go."""

    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the cluster, free or not, and what of each is held by actors that stay."""
        ...

    def free(self) -> tuple[Node, ...]:
        """What each of these nodes has left; () if only counting the runs can tell."""
        ...

    def start(self, work: Work, needs: Needs) -> H:
        """Returns at once, also when no node has room yet. A learner that is doing this attempt
        already is used, whoever started it."""
        ...

    def learners(self) -> Collection[Attempt]:
        """The attempts of all learners, whoever started them."""
        ...

    def end(self, attempt: Attempt) -> None:
        """End a learner that this process did not start; harmless when it has ended."""
        ...

    def ended(self, handles: Mapping[str, H]) -> Collection[str]:
        """The runs of these handles whose work may have ended, found by one query for all; `poll`
        says whether it has."""
        ...

    def poll(self, handle: H) -> Outcome | None:
        """None while it works; afterwards its outcome, again and again until it is ended."""
        ...

    def let_go(self, handle: H) -> None:
        """Release a learner whose result is recorded: it may do other work now, or it ends."""
        ...

    def cancel(self, handle: H) -> None:
        """End the learner, whatever it is doing; harmless when it has ended."""
        ...
