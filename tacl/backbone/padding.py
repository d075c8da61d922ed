"""Cuts a padded batch into passes that contain little padding.

Texts of one batch are padded to the longest of them: with sixteen rows of a usual task, half of all
tokens are padding. Rows of similar length go through the encoder together instead. The features are
the same but for rounding, because padding does not affect any row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Batch = Tensor | dict[str, Tensor]

# Fixed cost of one more pass, forward and backward, in tokens. On a CPU it was measured with MiniLM
# (0.03 to 0.04 s, where a token takes 0.6 ms). On an accelerator it was not measured: a pass of
# fewer tokens than that does not fill one.
CPU_LAUNCH = 64
DEVICE_LAUNCH = 4096


def passes(batch: Batch) -> list[tuple[list[int], Batch]]:
    """Passes as (row numbers, their part of the batch), each row once; images in a single pass.

    The attention mask says where texts are padded: a pass leaves out the columns after the last
    token of its rows. Rows padded on the left reach to the last column, and stay whole.
    """
    if not isinstance(batch, dict) or "attention_mask" not in batch:
        return [(list(range(_rows(batch))), batch)]
    mask_BL = batch["attention_mask"]
    rows, longest = mask_BL.shape
    launch = CPU_LAUNCH if mask_BL.device.type == "cpu" else DEVICE_LAUNCH
    if rows * longest <= launch:  # nothing to gain, and reading lengths would wait for the device
        return [(list(range(rows)), batch)]
    lengths_B = ends(mask_BL).tolist()
    groups = cut(lengths_B, launch)
    if len(groups) == 1:
        return [(list(range(rows)), batch)]
    sizes = [max(lengths_B[row] for row in group) for group in groups]
    return [
        (group, {name: value_BL[group, :size] for name, value_BL in batch.items()})
        for group, size in zip(groups, sizes, strict=True)
    ]


def cast(batch: Batch, dtype: torch.dtype) -> Batch:
    """The batch, with floating point inputs in this precision."""

    def of(x: Tensor) -> Tensor:
        return x.to(dtype) if x.is_floating_point() else x

    if isinstance(batch, dict):
        return {key: of(value) for key, value in batch.items()}
    return of(batch)


def ends(mask_BL: Tensor) -> Tensor:
    """One past the last unmasked column of each row, [B]."""
    return ((mask_BL != 0) * torch.arange(1, mask_BL.shape[1] + 1, device=mask_BL.device)).amax(1)


def cut(lengths_B: Sequence[int], launch: int) -> list[list[int]]:
    """Groups of rows that minimise the sum of (rows x longest row + launch) over groups.

    The best groups are neighbours in the order of length, so the best cuts of the first n rows
    follow from those of fewer.
    """
    order = sorted(range(len(lengths_B)), key=lambda row: lengths_B[row])
    least, start = [0], [0]  # of the first n rows: the cost, and where the last group starts
    for n in range(1, len(order) + 1):
        longest = lengths_B[order[n - 1]]
        costs = [least[first] + (n - first) * longest for first in range(n)]
        start.append(min(range(n), key=lambda first: costs[first]))
        least.append(costs[start[n]] + launch)
    groups, n = [], len(order)
    while n:
        groups.append(order[start[n] : n])
        n = start[n]
    return groups[::-1]


def _rows(batch: Batch) -> int:
    return len(batch) if isinstance(batch, Tensor) else len(next(iter(batch.values())))
