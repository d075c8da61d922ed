"""Which heads are fitted again when a task arrives in a home of many.

One regression over the classes of all tasks grows with the square of their number. It is convex, so
a step of block coordinate descent goes towards the same minimum: the columns of what is new and of
the tasks that it is most taken for are found, those of all others stay, with some of their rows
(results/heads-choice.md has what that gives). What a fit costs grows no more with the number of
tasks, but for one look at every column. Source: arXiv 1107.2848.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from tacl.heads.columns import Columns
from tacl.heads.head import Head

WHOLE = 16  # as many tasks are fitted together
BLOCK = 8  # tasks of a block
NEAR = 4  # of them at least were there before
ROWS = 8192  # of one part of all tasks that stay
PART = 1024  # rows that all heads see at once
LEAST = 64  # of each of these, so that of many only some take part


def taken_for(features_NE: Tensor, heads: Mapping[str, Head], count: int) -> list[str]:
    """The tasks that these rows, at theta0, are most likely of by the heads there."""
    columns, mass = Columns(heads), dict.fromkeys(heads, 0.0)
    for some_NE in features_NE.split(PART):
        for task, share_NC in columns.joint(some_NE).items():
            mass[task] += share_NC.sum().item()
    return sorted(mass, key=lambda task: (-mass[task], task))[:count]


def near_count(new: int) -> int:
    """How many tasks that were there before are in the block of so many new ones."""
    return max(NEAR, BLOCK - new)


def rows_beside(stay: Collection[str], new: Sequence[str]) -> dict[str, int]:
    """Of the tasks that stay those whose rows take part, and how many of each; drawn by the names
    of the `new` ones."""
    some = min(len(stay), ROWS // LEAST)
    drawn = random.Random(" ".join(sorted(new))).sample(sorted(stay), some)
    return dict.fromkeys(drawn, ROWS // some) if some else {}
