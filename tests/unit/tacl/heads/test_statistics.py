"""Head statistics against loops over the rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacl.errors import EmptySplit
from tacl.heads.expansion import Expansion
from tacl.heads.statistics import measured

D, C = 6, 3


def rows(seed: int, count: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """f, J tau and labels; every class has some rows."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(C).repeat_interleave(5)
    more = torch.randint(C, (count,), generator=random)
    labels = torch.cat([labels, more])[torch.randperm(C * 5 + count, generator=random)]
    f = torch.randn(len(labels), D, generator=random) + 2 * labels[:, None]
    return f, 0.3 * torch.randn(len(labels), D, generator=random), labels


def by_hand(z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Class sums and the scatter around class means, row by row."""
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
    return sums, scatter


@given(st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_they_are_of_the_model(seed: int) -> None:
    f, j, labels = rows(seed)
    found = measured("a", "base", "a@1", ("x", "y", "z"), f, j, labels)
    sums, scatter = by_hand(f.double() + j.double(), labels)
    torch.testing.assert_close(found.sums_CD, sums)
    torch.testing.assert_close(found.scatter_DD, scatter)
    assert found.counts_C.tolist() == [int((labels == c).sum()) for c in range(C)]


def test_an_expansion_is_measured_as_a_loop_expands() -> None:
    f, j, labels = rows(3)
    found = measured("a", "base", "a@1", ("x", "y", "z"), f, j, labels, Expansion(9, seed=4))
    random = torch.Generator().manual_seed(4)
    directions = torch.randn(D, 9, generator=random, dtype=torch.float64)
    z = f.double() + j.double()
    expanded = torch.stack([(row / row.norm() @ directions).clamp_min(0) for row in z])
    sums, scatter = by_hand(expanded, labels)
    torch.testing.assert_close(found.sums_CD, sums)
    torch.testing.assert_close(found.scatter_DD, scatter)


def test_a_class_without_rows_is_refused() -> None:
    f, j, labels = rows(0)
    kept = labels != 2
    with pytest.raises(EmptySplit, match=r"a: the classes \['z'\] have no labelled rows"):
        measured("a", "b", "v", ("x", "y", "z"), f[kept], j[kept], labels[kept])
