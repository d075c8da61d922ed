"""Moments of labelled rows against loops over them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacl.errors import EmptySplit
from tacl.heads.solve import Moments, expanded
from tests.support.budget import budget

D, C = 6, 3


CLASSES = {"a": ("x", "y", "z")}


def rows(seed: int, count: int = 12) -> tuple[Tensor, Tensor]:
    """Features and labels; every class has some rows."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(C).repeat_interleave(5)
    more = torch.randint(C, (count,), generator=random)
    labels = torch.cat([labels, more])[torch.randperm(C * 5 + count, generator=random)]
    return torch.randn(len(labels), D, generator=random) + 2 * labels[:, None], labels


def by_hand(z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Class means and the scatter around class means, row by row."""
    sums, scatter = (
        torch.zeros(C, z.shape[1]).double(),
        torch.zeros(z.shape[1], z.shape[1]).double(),
    )
    for c in range(C):
        mine = [row.double() for row, label in zip(z, labels, strict=True) if label == c]
        mean = sum(mine, torch.zeros(z.shape[1]).double()) / len(mine)
        for row in mine:
            sums[c] += row
            scatter += torch.outer(row - mean, row - mean)
    return sums / torch.bincount(labels)[:, None], scatter / len(labels)


@given(st.integers(0, 50))
@settings(max_examples=budget(25), deadline=None)
def test_they_are_of_the_rows(seed: int) -> None:
    f, labels = rows(seed)
    found = Moments.of([("a", (f, labels))], CLASSES)
    means, scatter = by_hand(f, labels)
    torch.testing.assert_close(found.mean_CD, means)
    torch.testing.assert_close(found.within_DD, scatter)
    torch.testing.assert_close(found.share_C, torch.bincount(labels).double() / len(labels))


def test_an_expansion_is_measured_as_a_loop_expands() -> None:
    f, labels = rows(3)
    found = Moments.of([("a", (expanded(f.double(), 9, seed=4), labels))], CLASSES)
    random = torch.Generator().manual_seed(4)
    directions = torch.randn(D, 9, generator=random, dtype=torch.float64)
    by_loop = torch.stack([(r / r.norm() @ directions).clamp_min(0) for r in f.double()])
    means, scatter = by_hand(by_loop, labels)
    torch.testing.assert_close(found.mean_CD, means)
    torch.testing.assert_close(found.within_DD, scatter)


def test_a_class_without_rows_is_refused() -> None:
    f, labels = rows(0)
    kept = labels != 2
    with pytest.raises(EmptySplit, match=r"a: the classes \['z'\] have no labelled rows"):
        Moments.of([("a", (f[kept], labels[kept]))], CLASSES)
