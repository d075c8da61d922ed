"""Which heads are fitted again when a task arrives in a home of many.

The cost of one regression over the classes of all tasks grows with the square of their number. It
is convex, so a step of block coordinate descent goes towards the same minimum: it fits the columns
of new tasks and of the tasks that they are most often mistaken for; all others stay, and some of
their rows take part (results/heads-choice.md has the effect). The cost of a fit then does not grow
with the number of tasks, except for one evaluation of every column. Source: arXiv 1107.2848.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from tacl.heads.columns import Columns
from tacl.heads.head import Head

WHOLE = 16  # up to this many tasks are all fitted together
BLOCK = 8  # tasks of a block
NEAR = 4  # at least this many of them are older tasks
ROWS = 8192  # rows, of one part, of all tasks that stay
PART = 1024  # rows that all heads evaluate at once
LEAST = 64  # fewest rows of each of these, so that only some of many tasks take part


def taken_for(features_NE: Tensor, heads: Mapping[str, Head], count: int) -> list[str]:
    """The `count` tasks that heads at theta0 give the most probability on these rows."""
    columns, mass = Columns(heads), dict.fromkeys(heads, 0.0)
    for some_NE in features_NE.split(PART):
        for task, share_NC in columns.joint(some_NE).items():
            mass[task] += share_NC.sum().item()
    return sorted(mass, key=lambda task: (-mass[task], task))[:count]


def near_count(new: int) -> int:
    """How many older tasks are in a block with `new` new ones."""
    return max(NEAR, BLOCK - new)


def rows_beside(stay: Collection[str], new: Sequence[str]) -> dict[str, int]:
    """Tasks, of those that stay, whose rows take part in the fit, and how many rows of each; drawn
    with the names of the `new` ones as seed."""
    some = min(len(stay), ROWS // LEAST)
    drawn = random.Random(" ".join(sorted(new))).sample(sorted(stay), some)
    return dict.fromkeys(drawn, ROWS // some) if some else {}
