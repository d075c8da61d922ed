"""Which rows train, validate, test, are sampled, and in which batch: functions of a seed alone.

Pure Python on purpose, so that rows can be split where the data are, without torch. Python's seeded
generator gives the same order on every platform and version.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from tacl.errors import EmptySplit

SHARE = 0.1
MOST_VALIDATION = 50


class Splits(NamedTuple):
    """Row numbers, ascending; `test` is empty when the data set brings its own."""

    train: list[int]
    validation: list[int]
    test: list[int]


def split_rows(labels: Sequence[int], seed: int, has_test: bool) -> Splits:
    """Splits each class 80/10/10, or 90/10 if a test split is given.

    Validation has 1 to 50 rows of a class, but never its only row: a class with one row only
    trains, one with two has none to test. Raises EmptySplit when a part is empty.
    """
    splits = Splits([], [], [])
    by_class: defaultdict[int, list[int]] = defaultdict(list)
    for row, label in enumerate(labels):
        by_class[int(label)].append(row)
    for _, rows in sorted(by_class.items()):
        _shuffle(rows, f"split {seed} {labels[rows[0]]}")
        tenth = max(1, round(SHARE * len(rows)))
        validation = min(tenth, MOST_VALIDATION, len(rows) - 1)
        test = 0 if has_test else min(tenth, len(rows) - 1 - validation)
        splits.validation.extend(rows[:validation])
        splits.test.extend(rows[validation : validation + test])
        splits.train.extend(rows[validation + test :])
    _require_rows(splits, len(labels), has_test)
    return Splits(*(sorted(part) for part in splits))


def sample_rows(
    rows: Sequence[int], count: int, seed: int, labels: Sequence[int] | None = None
) -> list[int]:
    """`count` of the rows without replacement, ascending; all of them when there are fewer. With
    `labels` (by row), no class is drawn twice before each is drawn once."""
    shuffled = list(rows)
    _shuffle(shuffled, f"sample {seed}")
    if labels is not None:
        firsts = {*{labels[row]: row for row in reversed(shuffled)}.values()}
        shuffled.sort(key=lambda row: row not in firsts)
    return sorted(shuffled[:count])


def batch_rows(rows: int, batch: int, seed: int, step: int) -> list[int]:
    """The rows of one step: epochs of seeded permutations, each cut into whole batches.

    The rows left over at the end of an epoch are skipped until the next permutation; with fewer
    rows than `batch`, every batch is all rows. Any step is computed without the ones before.
    """
    if rows < 1:
        raise EmptySplit("no rows to make a batch of")
    per_epoch = max(1, rows // batch)
    epoch, place = divmod(step, per_epoch)
    return list(_permutation(rows, seed, epoch)[place * batch : (place + 1) * batch])


def _require_rows(splits: Splits, total: int, has_test: bool) -> None:
    for name, rows in splits._asdict().items():
        if not rows and not (name == "test" and has_test):
            raise EmptySplit(f"{total} rows leave no {name} rows; give more rows of each class")


def _shuffle(rows: list[int], seed: str) -> None:
    random.Random(seed).shuffle(rows)


@lru_cache(maxsize=16)  # a few stores cycle at once; the steps of an epoch need the same order
def _permutation(rows: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(rows))
    _shuffle(order, f"epoch {seed} {epoch}")
    return tuple(order)
