"""Which shards a run is told of, and from which step on."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cluster.domain.tasks import Arrival, Shard
from cluster.domain.visibility import ALL, Visibility


def known(
    shards: Iterable[Shard], own: str, visibility: Visibility = ALL, withheld: Collection[str] = ()
) -> tuple[Shard, ...]:
    """The shards a run of task `own` trains against: all others that its owner sees, by arrival,
    generic first. Of tasks that withhold their samples, those whose statistics are there."""
    others = (shard for shard in shards if shard.task != own and visibility.sees(shard.task))
    given = (shard for shard in others if shard.statistics or shard.task not in withheld)
    return tuple(sorted(given, key=lambda shard: shard.ordinal))


class Arrivals:
    """Which shards a run was told of, and from which step on: recorded once, replayed for ever.

    Args:
        reached: the highest step that was told, -1 for none.
        log: in the order in which they were recorded.
    """

    def __init__(self, reached: int, log: Iterable[Arrival]) -> None:
        self.reached = reached
        self._log = list(log)
        self._settle()

    def newcomers(self, step: int, current: Iterable[Shard]) -> list[Shard]:
        """Of the current shards, those that join at `step`; none at a step told before."""
        if step <= self.reached:
            return []
        told = {(shard.task, shard.version) for shard in self.at(step)}
        return [shard for shard in current if (shard.task, shard.version) not in told]

    def leavers(self, step: int, current: Iterable[Shard]) -> set[str]:
        """Tasks whose samples were withdrawn, and that `step` is the first not to see."""
        if step <= self.reached:
            return set()
        return {shard.task for shard in self.at(step)} - {shard.task for shard in current}

    def record(
        self, step: int, newcomers: Collection[Shard], leavers: Collection[str] = ()
    ) -> None:
        for number, one in enumerate(self._log):
            if one.shard.task in leavers and one.left is None:
                self._log[number] = one.model_copy(update={"left": step})
        self._log.extend(Arrival(step=step, shard=shard) for shard in newcomers)
        self.reached = max(self.reached, step)
        if newcomers or leavers:
            self._settle()

    def at(self, step: int) -> tuple[Shard, ...]:
        """What `step` was told: of every task the latest version then, by arrival of the task."""
        return self._last if step >= self._settled else self._at(step)

    def _settle(self) -> None:
        """Most steps are told what the one before was: that is worked out once."""
        self._settled = max((one.left or one.step for one in self._log), default=0)
        self._last = self._at(self._settled)

    def _at(self, step: int) -> tuple[Shard, ...]:
        there = (one for one in self._log if one.step <= step)
        there = (one.shard for one in there if one.left is None or step < one.left)
        latest = {shard.task: shard for shard in there}
        return tuple(sorted(latest.values(), key=lambda shard: shard.ordinal))
