"""What became of a piece of work."""

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
    """What somebody waits for needs the place of this work, which goes on later from what it keeps.
    Raised by a learner."""


@dataclass(frozen=True)
class Finished:
    result: Result

    @cached_property
    def written(self) -> str:
        """As it is kept. The heads of ten thousand tasks take a while to write, once."""
        return self.result.model_dump_json()


@dataclass(frozen=True)
class Raised:
    """The work ended with an error. `trace` is for those who look for the defect."""

    cause: str
    trace: str = ""


@dataclass(frozen=True)
class Gone:
    """The process is gone, or one that it needs."""

    cause: str


@dataclass(frozen=True)
class GaveWay:
    """The work is not done: its place was needed."""


Outcome = Finished | Raised | Gone | GaveWay
