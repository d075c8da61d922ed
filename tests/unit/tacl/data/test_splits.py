"""Splits, samples and batches: exact shares, disjoint, and functions of the seed alone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacl.data.splits import batch_rows, sample_rows, split_rows
from tacl.errors import EmptySplit

label_lists = st.lists(st.integers(0, 4), min_size=1, max_size=200)


@given(label_lists, st.integers(0, 99), st.booleans())
def test_parts_are_disjoint_and_complete(labels: list[int], seed: int, has_test: bool) -> None:
    labels = [*labels, 0, 0, 0]
    train, validation, test = split_rows(labels, seed, has_test)
    assert sorted(train + validation + test) == list(range(len(labels)))
    assert all(part == sorted(part) for part in (train, validation, test))
    assert {labels[row] for row in train} == set(labels)  # no class loses all its rows


@pytest.mark.parametrize(
    ("rows", "has_test", "expected"),
    [
        (100, True, (90, 10, 0)),
        (100, False, (80, 10, 10)),
        (4, True, (3, 1, 0)),
        (2, True, (1, 1, 0)),
        (3, False, (1, 1, 1)),
        (2000, True, (1950, 50, 0)),
        (2000, False, (1750, 50, 200)),
    ],
)
def test_shares_of_one_class(rows: int, has_test: bool, expected: tuple[int, ...]) -> None:
    assert tuple(len(part) for part in split_rows([0] * rows, 0, has_test)) == expected


def test_every_class_is_cut_by_itself() -> None:
    labels = [0] * 100 + [1] * 20 + [2] * 3
    splits = split_rows(labels, 0, has_test=False)
    assert Counter(labels[row] for row in splits.validation) == {0: 10, 1: 2, 2: 1}
    assert Counter(labels[row] for row in splits.test) == {0: 10, 1: 2, 2: 1}


def test_the_seed_decides_the_rows() -> None:
    labels = [0, 1] * 50
    assert split_rows(labels, 0, True) == split_rows(labels, 0, True)
    assert split_rows(labels, 0, True) != split_rows(labels, 1, True)
    # recorded once: another order would silently change every vector made before
    assert split_rows([0] * 20, 0, True).validation == [2, 5]


@pytest.mark.parametrize(("labels", "has_test"), [([], True), ([0, 1], True), ([0, 0], False)])
def test_an_empty_part_is_refused(labels: list[int], has_test: bool) -> None:
    with pytest.raises(EmptySplit, match="rows"):
        split_rows(labels, 0, has_test)


@given(st.integers(0, 50), st.integers(0, 60), st.integers(0, 9))
def test_samples_are_without_replacement(total: int, count: int, seed: int) -> None:
    rows = [10 * row for row in range(total)]
    sample = sample_rows(rows, count, seed)
    assert len(sample) == len(set(sample)) == min(total, count)
    assert set(sample) <= set(rows)
    assert sample == sorted(sample) == sample_rows(rows, count, seed)


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(0, 60), st.integers(0, 9))
def test_samples_with_classes_have_one_of_each(labels: list[int], count: int, seed: int) -> None:
    rows = range(len(labels))
    sample = sample_rows(rows, count, seed, labels)
    assert sample == sorted({*sample})
    assert len(sample) == min(len(rows), count)
    assert len({labels[row] for row in sample}) == min(len({*labels}), count)
    plain = sample_rows(rows, count, seed)
    assert sample == plain or {labels[row] for row in plain} < {*labels}
    assert {*sample} <= {*sample_rows(rows, count + 1, seed, labels)}


def test_samples_differ_by_seed() -> None:
    assert sample_rows(range(100), 10, 0) != sample_rows(range(100), 10, 1)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 9))
def test_an_epoch_meets_no_row_twice(rows: int, batch: int, seed: int) -> None:
    per_epoch = max(1, rows // batch)
    for epoch in range(2):
        steps = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        batches = [batch_rows(rows, batch, seed, step) for step in steps]
        assert all(len(b) == min(batch, rows) for b in batches)
        seen = [row for b in batches for row in b]
        assert len(seen) == len(set(seen))
        assert set(seen) <= set(range(rows))


def test_epochs_and_seeds_have_their_own_order() -> None:
    first, second = batch_rows(32, 32, 0, 0), batch_rows(32, 32, 0, 1)
    assert first != second
    assert first != batch_rows(32, 32, 1, 0)
    assert first == batch_rows(32, 32, 0, 0)


def test_no_rows_no_batch() -> None:
    with pytest.raises(EmptySplit):
        batch_rows(0, 4, 0, 0)
