"""Which shards a run is told of, and from which step on.

A run requests a *lease*: leave to do its next steps without asking again. It is told what changed
since the previous lease. What arrives meanwhile joins at the first step of the next lease. If very
many tasks arrive, some join at each lease: never more than a page, however many tasks there are.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter

from cluster.domain.base import PAGE
from cluster.domain.tasks import Arrival, Shard
from cluster.domain.visibility import ALL, Visibility
from cluster.scheduler.state import PlannedTask


def is_met(shard: Shard, own: str, visibility: Visibility = ALL, withheld: bool = False) -> bool:
    """Whether a run of task `own` trains against this shard: that of any other task that its owner
    sees. The shard of a task that withholds its samples is met only if it has statistics."""
    others = shard.task != own and visibility.sees(shard.task)
    return others and (not withheld or bool(shard.statistics))


@dataclass(frozen=True)
class ShardChange:
    """From `step` on, the `newcomers` join and the tasks in `left` are no longer seen."""

    step: int
    newcomers: tuple[Shard, ...] = ()
    left: frozenset[str] = frozenset()


def still_there(
    near: Sequence[str], met: Iterable[Arrival], tasks: Mapping[str, PlannedTask]
) -> tuple[str, ...]:
    """The tasks in `near` that are still the ones that the training met: a name may have become
    another task's."""
    ordinals = {one.shard.task: one.shard.ordinal for one in met if one.left is None}
    return tuple(one for one in near if one in tasks and tasks[one].ordinal == ordinals.get(one))


class Arrivals:
    """Which shards a run was told of, and from which step on: recorded once, replayed for ever.

    The coordinator and the run hold equal copies; only `tasks` and `at` take longer than what
    changed.

    Args:
        reached: the last step of all leases so far, -1 for none.
        log: what was recorded.
    """

    def __init__(self, reached: int = -1, log: Iterable[Arrival] = ()) -> None:
        self.reached = reached
        self._log: dict[str, dict[int, Arrival]] = {}  # task -> version of its shard -> arrival
        self._changes: list[tuple[int, str]] = []  # (step, task), by step
        self._last: tuple[Shard, ...] | None = ()  # what steps after the last change see
        self.apply(log)

    @property
    def tasks(self) -> set[str]:
        """The tasks whose shards the last step sees."""
        return {task for task in self._log if self._version(task)}

    def is_replayed(self, last: int) -> bool:
        """Whether all steps up to `last` were leased before: nothing joins at them."""
        return last <= self.reached

    def change(
        self, first: int, current: Collection[Shard], looked_at: Collection[str]
    ) -> ShardChange:
        """What changes at the first step, of a lease from step `first`, that was never leased
        before. `current`: the shards that exist now of the tasks in `looked_at`."""
        new = sorted(filter(self.is_news, current), key=attrgetter("ordinal"))
        gone = {*looked_at} - {shard.task for shard in current}
        left = frozenset(task for task in gone if self._version(task))
        return ShardChange(max(first, self.reached + 1), tuple(new), left)

    def record(self, change: ShardChange, last: int) -> None:
        """Take in the change of a lease up to step `last`, once it is in the registry."""
        self.apply(Arrival(step=change.step, shard=shard) for shard in change.newcomers)
        told = [one for task in change.left for one in self._log[task].values()]
        left = {"left": change.step}
        self.apply(one.model_copy(update=left) for one in told if one.left is None)
        self.reached = max(self.reached, last)

    def apply(self, arrivals: Iterable[Arrival]) -> None:
        """Take in arrivals; some may be known already."""
        for one in arrivals:
            self._log.setdefault(one.shard.task, {})[one.shard.version] = one
            for step in {one.step, one.step if one.left is None else one.left}:
                insort(self._changes, (step, one.shard.task))
            self._last = None

    def is_news(self, shard: Shard) -> bool:
        return shard.version > self._version(shard.task)

    def after(self, step: int) -> tuple[Arrival, ...]:
        """What changed at steps after this one, the earliest first: about a page, and always
        everything that changed at the same step."""
        changes = self._changes[bisect_right(self._changes, step, key=itemgetter(0)) :]
        tasks = dict.fromkeys(task for _, task in changes)
        log = (one for task in tasks for one in self._log[task].values())
        found = sorted((one for one in log if one.changed > step), key=lambda one: one.changed)
        last = found[PAGE - 1].changed if len(found) >= PAGE else None
        return tuple(one for one in found if last is None or one.changed <= last)

    def at(self, step: int) -> tuple[Shard, ...]:
        """The shards that `step` sees, each in its latest version then, by arrival of the task."""
        if self._changes and step < self._changes[-1][0]:
            return self._at(step)
        if self._last is None:  # most steps see what the one before saw: computed once
            self._last = self._at(step)
        return self._last

    def _at(self, step: int) -> tuple[Shard, ...]:
        latest: list[Shard] = []
        for versions in self._log.values():
            there = (one for one in versions.values() if one.step <= step)
            seen = [one.shard for one in there if one.left is None or step < one.left]
            latest += [max(seen, key=lambda shard: shard.version)] if seen else []
        return tuple(sorted(latest, key=lambda shard: shard.ordinal))

    def _version(self, task: str) -> int:
        """The version of the task's shard that the last step sees; 0 for none."""
        told = self._log.get(task, {})
        return max((version for version, one in told.items() if one.left is None), default=0)
