"""None of these: distances by hand, the threshold's promise, AUROC by counting pairs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacl.heads.novelty import Distance, auroc, threshold
from tacl.heads.solve import Moments
from tacl.heads.statistics import measured

D = 5


def moments() -> Moments:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat(20)
    f = 4 * torch.randn(3, D, generator=random)[labels] + torch.randn(60, D, generator=random)
    return Moments.of([(1.0, measured("a", "b", "v", tuple("xyz"), f, 0 * f, labels))])


def test_the_distance_by_hand() -> None:
    found = moments()
    within = found.covariance(0.1)
    whole = within.clone()
    mean = found.mean_CD.mean(0)
    for c in range(3):
        whole += torch.outer(found.mean_CD[c] - mean, found.mean_CD[c] - mean) / 3
    z = 3 * torch.randn(7, D, generator=torch.Generator().manual_seed(1))
    distance = Distance.of(found, 0.1)(z)
    for b in range(7):
        row = z[b].double()
        near = min(float((row - m) @ torch.linalg.inv(within) @ (row - m)) for m in found.mean_CD)
        far = float((row - mean) @ torch.linalg.inv(whole) @ (row - mean))
        assert distance[b].item() == pytest.approx(near - far, rel=1e-3, abs=1e-3)


def test_rows_of_no_class_are_further_than_those_of_one() -> None:
    found = moments()
    random = torch.Generator().manual_seed(2)
    own = found.mean_CD.float().repeat(30, 1) + torch.randn(90, D, generator=random)
    foreign = found.mean_CD.mean(0).float() + 2 * torch.randn(90, D, generator=random)
    distance = Distance.of(found, 1e-3)
    assert auroc(distance(own), distance(foreign)) > 0.85


@given(st.integers(0, 100), st.integers(20, 60), st.integers(200, 400))
@settings(max_examples=20, deadline=None)
def test_the_threshold_keeps_its_share_of_equal_tasks(seed: int, few: int, many: int) -> None:
    random = torch.Generator().manual_seed(seed)
    own = {
        "a": torch.randn(few, generator=random),
        "b": 1 + torch.randn(many, generator=random),
    }
    line = threshold(own, 0.95)
    kept = sum((values.double() <= line).double().mean().item() for values in own.values()) / 2
    assert 0.95 - 1e-9 <= kept <= 0.95 + 1 / few


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=12),
    st.lists(st.integers(0, 8), min_size=1, max_size=12),
)
@settings(max_examples=50, deadline=None)
def test_auroc_counts_pairs(own: list[int], foreign: list[int]) -> None:
    pairs = [(f > o) + 0.5 * (f == o) for o in own for f in foreign]
    found = auroc(torch.tensor(own).float(), torch.tensor(foreign).float())
    assert found == pytest.approx(sum(pairs) / len(pairs))


def test_auroc_of_no_rows_is_undefined() -> None:
    with pytest.raises(ValueError, match="no pair"):
        auroc(torch.zeros(0), torch.zeros(3))
