"""The outcomes of a piece of work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cluster.domain.work import Result


class Lost(Exception):
    """A process that the work needs is gone, as when a worker of a group was killed.

    A learner raises it when the same work may succeed in other processes. Any other exception is
    taken as one that the work would meet again.
    """


class GivesWay(Exception):
    """Raised by a learner: what somebody waits for needs the place of this work, which continues
    later from what it keeps."""


@dataclass(frozen=True)
class Finished:
    result: Result

    @cached_property
    def written(self) -> str:
        """The result as JSON, as it is kept; cached: ten thousand heads take a while to write."""
        return self.result.model_dump_json()


@dataclass(frozen=True)
class Raised:
    """The work ended with an error. `trace` is for those who look for the bug."""

    cause: str
    trace: str = ""


@dataclass(frozen=True)
class Gone:
    """The process of the work is gone, or one that it needs."""

    cause: str


@dataclass(frozen=True)
class GaveWay:
    """The work is not done: its place was needed."""


Outcome = Finished | Raised | Gone | GaveWay
