"""Temperatures and the calibration error against plain searches and loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from tacl.heads.calibration import calibration_error, fit_temperature
from tests.support.budget import budget


def scores(seed: int, rows: int = 60, sharp: float = 7.0) -> tuple[Tensor, Tensor]:
    """Logits that are `sharp` times those by which the labels were drawn."""
    random = torch.Generator().manual_seed(seed)
    true_NC = torch.randn(rows, 4, generator=random)
    labels = torch.multinomial(true_NC.softmax(-1), 1, generator=random).squeeze(1)
    return sharp * true_NC, labels


@given(st.integers(0, 100), st.floats(0.05, 40))
@settings(max_examples=budget(25), deadline=None)
def test_the_temperature_has_the_least_loss_of_all(seed: int, sharp: float) -> None:
    logits, labels = scores(seed, sharp=sharp)
    found, least = fit_temperature(logits, labels)
    assert least == pytest.approx(cross_entropy(found * logits.double(), labels).item())
    for factor in (0.5, 0.95, 1.05, 2.0, 1 / found):
        assert least <= cross_entropy(factor * found * logits.double(), labels) + 1e-9


def test_it_finds_the_temperature_that_labels_were_drawn_at() -> None:
    logits, labels = scores(0, rows=20_000, sharp=7.0)
    assert fit_temperature(logits, labels).inverse_temperature == pytest.approx(1 / 7, rel=0.05)


def test_a_row_of_weight_two_is_two_rows() -> None:
    logits, labels = scores(1)
    weight = torch.ones(60).index_fill_(0, torch.arange(20), 2.0)
    twice = fit_temperature(torch.cat([logits, logits[:20]]), torch.cat([labels, labels[:20]]))
    assert fit_temperature(logits, labels, weight) == pytest.approx(twice, rel=1e-6)
    assert fit_temperature(logits, labels) != pytest.approx(twice, rel=1e-3)


def test_the_calibration_error_by_hand() -> None:
    """30 rows make 15 bins of two: their mean confidence less their share of right rows."""
    random = torch.Generator().manual_seed(0)
    confidence = torch.rand(30, generator=random)
    right = torch.rand(30, generator=random) < 0.5
    order = confidence.argsort().tolist()
    pairs = [order[k : k + 2] for k in range(0, 30, 2)]
    expected = sum(
        abs(sum(confidence[i].item() - right[i].item() for i in pair)) / 30 for pair in pairs
    )
    found = calibration_error(confidence, right, torch.ones(30))
    assert found == pytest.approx(expected, abs=1e-6)


def test_sure_and_right_is_no_error_and_tasks_weigh_the_same() -> None:
    assert calibration_error(torch.ones(40), torch.ones(40), torch.ones(40)) == 0
    # One task of 10 rows is always wrong at confidence 1, one of 990 always right.
    wrong = torch.cat([torch.zeros(10), torch.ones(990)])
    weight = torch.cat([torch.full((10,), 1 / 10), torch.full((990,), 1 / 990)])
    assert calibration_error(torch.ones(1000), wrong, weight) == pytest.approx(0.5, abs=0.04)
