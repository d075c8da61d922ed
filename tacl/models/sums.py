"""Labelled rows of a task, dealt over sums of vectors that all hold the task's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tacl.backbone import Item
from tacl.evaluation.tangents import Collates, DualForward, cached_tangents
from tacl.heads.fitting import Rows, drawn_sums
from tacl.models.mixed import summed
from tacl.vectors.params import Params

BATCH = 64


class Sums:
    """Drawn once for the vectors `taus` of some tasks."""

    def __init__(
        self, module: DualForward, backbone: Collates, taus: Mapping[str, Params], seed: int = 0
    ) -> None:
        self._module, self._backbone, self._taus = module, backbone, taus
        drawn = drawn_sums(list(taus), seed)
        totals = {names: summed(dict.fromkeys(names, 1.0), taus) for names in set(drawn)}
        self._sums = [(names, totals[names]) for names in drawn]

    def rows(
        self, task: str, items: Sequence[Item], labels_N: Tensor, chosen: Sequence[int]
    ) -> tuple[Rows, Rows]:
        """The `chosen` ones at theta0, and each under one of the sums; one dual pass a row."""
        order: list[int] = []
        plain, moved = [], []
        for place, (names, total) in enumerate(self._sums):
            if dealt := chosen[place :: len(self._sums)]:
                tau = total if task in names else _plus(total, self._taus[task])
                some = [items[row] for row in dealt]
                cached = cached_tangents(self._module, self._backbone, some, {"sum": tau}, BATCH)
                order += dealt
                plain.append(cached.features_ND)
                moved.append(cached.linearized({"sum": 1.0}))
        labels_N = labels_N[order]
        return Rows(torch.cat(plain), labels_N), Rows(torch.cat(moved), labels_N)


def _plus(total: Params, own: Params) -> Params:
    """Vectors may have different blocks."""
    return summed({"total": 1.0, "own": 1.0}, {"total": total, "own": own})
