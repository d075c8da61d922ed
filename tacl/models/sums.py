"""Labelled rows of a task, dealt over sums of vectors that all contain the task's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tacl.backbone import Item
from tacl.evaluation.tangents import DualForward, Moved, Watches, moved_rows
from tacl.heads.fitting import drawn_sums
from tacl.models.mixed import summed
from tacl.vectors.params import Params

TauOf = Callable[[str], Params]  # the vector of a task


class Sums:
    """Sums of vectors, drawn once for some tasks. Each vector is read once, and again for rows of
    its task: if `tau_of` reads files, only few vectors are in memory at a time."""

    def __init__(
        self, module: DualForward, backbone: Watches, tasks: Sequence[str], tau_of: TauOf
    ) -> None:
        self._module, self._backbone, self._tau_of = module, backbone, tau_of
        self.tasks = frozenset(tasks)
        drawn = drawn_sums(tasks)
        totals: dict[frozenset[str], Params] = {names: {} for names in drawn}
        for task in sorted(tasks):
            tau = tau_of(task)
            for total in (totals[names] for names in totals if task in names):
                for block, value in tau.items():
                    total[block] = total[block].add_(value) if block in total else value.clone()
        self._sums = [(names, totals[names]) for names in drawn]

    def rows(self, task: str, items: Sequence[Item], first: int = 0) -> Moved:
        """Rows of a task at theta0, and under tau_t + sum of others: each under one of the sums, in
        turn, starting with number `first`. Each row passes once, in a dual pass."""
        order: list[int] = []
        found: list[Moved] = []
        own: Params | None = None
        for place, (names, total) in enumerate(self._sums):
            if some := list(range((place - first) % len(self._sums), len(items), len(self._sums))):
                if task not in names and own is None:
                    own = self._tau_of(task)
                tau = total if own is None or task in names else _plus(total, own)
                dealt = [items[row] for row in some]
                found.append(moved_rows(self._module, self._backbone, dealt, tau))
                order += some
        back = torch.tensor(order).argsort()
        return Moved(*(torch.cat(part)[back] for part in zip(*found, strict=True)))


def _plus(total: Params, own: Params) -> Params:
    """The sum of both, which may have different blocks."""
    return summed({"total": 1.0, "own": 1.0}, {"total": total, "own": own})
