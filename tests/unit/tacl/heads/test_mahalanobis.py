"""The relative Mahalanobis distance, as its definition says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from tacl.heads.mahalanobis import SHRINKAGE, Mahalanobis

SIZES = {"a": 2, "b": 3, "": 1}
WIDTH = 5


def drawn(classes: int, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    labels_N = torch.arange(rows) % classes
    features_NE = torch.randn(rows, WIDTH, generator=random)
    return features_NE + 2 * labels_N.unsqueeze(-1), labels_N


ROWS = {"a": drawn(2, 40, 0), "b": drawn(2, 30, 1)}  # of the third class of b there is no row


def inverse(rows_NE: Tensor) -> Tensor:
    covariance_EE = rows_NE.T @ rows_NE / len(rows_NE)
    return torch.linalg.inv(
        covariance_EE + SHRINKAGE * covariance_EE.diagonal().mean() * torch.eye(WIDTH).double()
    )


def test_it_is_the_distance_to_the_nearest_class_less_that_to_all_rows() -> None:
    unit = {task: normalize(x_NE.double(), dim=-1) for task, (x_NE, _) in ROWS.items()}
    every_NE = torch.cat(list(unit.values()))
    means = {
        (task, c): unit[task][labels_N == c].mean(0)
        for task, (_, labels_N) in ROWS.items()
        for c in range(2)
    }
    within_NE = torch.cat([unit[t][ROWS[t][1] == c] - mean_E for (t, c), mean_E in means.items()])
    inner_EE, outer_EE = inverse(within_NE), inverse(every_NE - every_NE.mean(0))
    asked_NE = drawn(3, 20, 2)[0]
    found_NT = Mahalanobis.of(ROWS, SIZES).distances(asked_NE, [*SIZES.values()])  # type: ignore[union-attr]
    for row, x_E in enumerate(normalize(asked_NE.double(), dim=-1)):
        away_E = x_E - every_NE.mean(0)
        for place, task in enumerate(("a", "b")):
            far = [(x_E - means[task, c]) @ inner_EE @ (x_E - means[task, c]) for c in range(2)]
            expected = float(min(far) - away_E @ outer_EE @ away_E)
            assert found_NT[row, place].item() == pytest.approx(expected, rel=1e-4, abs=1e-3)
    assert found_NT[:, 2].isinf().all()


def test_it_is_the_same_after_a_file() -> None:
    found, asked_NE = Mahalanobis.of(ROWS, SIZES), drawn(2, 9, 3)[0]
    assert found is not None
    again = Mahalanobis.from_params(found.to_params())
    sizes = [*SIZES.values()]
    assert torch.equal(again.distances(asked_NE, sizes), found.distances(asked_NE, sizes))


def test_rows_that_are_all_alike_are_near_to_themselves() -> None:
    same = torch.ones(20, WIDTH), torch.zeros(20, dtype=torch.long)
    found = Mahalanobis.of({"a": same}, {"a": 1})
    assert found is not None
    far_NT = found.distances(torch.stack([torch.ones(WIDTH), torch.eye(WIDTH)[0]]), [1])
    assert far_NT.isfinite().all()


def test_without_rows_there_is_none() -> None:
    assert Mahalanobis.of({}, SIZES) is None
