"""tau_jp, its error, and what the report names."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from tacl.evaluation.interference import (
    HIGH_CHANGE,
    NORM_MISMATCH,
    Matrix,
    MeanSize,
    logit_change,
    relative,
    report,
    tau_jp,
)
from tacl.heads.head import Head


@given(st.integers(2, 40), st.integers(0, 99))
def test_tau_jp_against_a_loop(rows: int, seed: int) -> None:
    tangent = torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed))
    sizes = [math.sqrt(sum(x * x for x in row)) for row in tangent.tolist()]
    mean = sum(sizes) / rows
    variance = sum((s - mean) ** 2 for s in sizes) / (rows - 1)
    found = tau_jp(tangent)
    assert found.mean == pytest.approx(mean)
    assert found.standard_error == pytest.approx(math.sqrt(variance / rows))
    assert found.rows == rows


def test_the_change_of_logits_against_a_loop_and_what_all_classes_share_is_none() -> None:
    generator = torch.Generator().manual_seed(1)
    weight_CD, features_ND, tangent_ND = (
        torch.randn(rows, 6, generator=generator, dtype=torch.float64) for rows in (3, 9, 9)
    )
    head = Head(normalize(weight_CD, dim=-1), 20.0, ("a", "b", "c"))
    sizes = []
    for f, x in zip(features_ND, tangent_ND, strict=True):
        before, after = (20 * head.weight_CD @ (v / v.norm()) for v in (f, f + x))
        change = (after - before).tolist()
        sizes.append(math.sqrt(sum((c - sum(change) / 3) ** 2 for c in change)))
    found = logit_change(features_ND, tangent_ND, head)
    assert found.mean == pytest.approx(sum(sizes) / 9)
    assert found.rows == 9
    alike = Head(head.weight_CD[:1].expand(3, -1), 20.0, ("a", "b", "c"))
    assert logit_change(features_ND, tangent_ND, alike).mean == pytest.approx(0, abs=1e-9)


def test_too_few_rows() -> None:
    assert tau_jp(torch.ones(1, 4)) == MeanSize(2.0, math.inf, 1)
    with pytest.raises(ValueError, match="no rows"):
        tau_jp(torch.ones(0, 4))


def test_the_relative_error_is_that_of_a_ratio() -> None:
    """Against the spread of ratios of simulated means."""
    other, own = MeanSize(2.0, 0.1, 64), MeanSize(4.0, 0.3, 64)
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(200_000, 2, generator=generator, dtype=torch.float64)
    ratios = (2.0 + 0.1 * draws[:, 0]) / (4.0 + 0.3 * draws[:, 1])
    found = relative(other, own)
    assert found is not None
    assert found.value == 0.5
    assert found.standard_error == pytest.approx(ratios.std().item(), rel=0.05)
    assert relative(other, MeanSize(0.0, 0.0, 64)) is None


def pair(mean: float) -> MeanSize:
    return MeanSize(mean, 0.1, 64)


MATRIX = Matrix(
    {
        ("faces", "faces"): pair(4.0),
        ("faces", "digits"): pair(2.4),
        ("digits", "faces"): pair(0.4),
        ("digits", "digits"): pair(3.0),
        ("signs", "digits"): pair(2.9),
        ("signs", "signs"): pair(0.0),
        ("faces", "signs"): pair(9.0),
        ("faces", "generic"): pair(9.0),
    }
)


def test_the_matrix_raw_and_relative() -> None:
    assert MATRIX.raw("faces", "digits") == 2.4
    assert MATRIX.raw("signs", "faces") is None
    found = MATRIX.relative("faces", "digits")
    assert found is not None
    assert found.value == pytest.approx(0.8)
    assert MATRIX.relative("faces", "generic") is None  # nobody's own value to compare with
    assert MATRIX.relative("faces", "signs") is None  # the own vector does nothing


def test_the_report_names_high_pairs_with_figures_worst_first() -> None:
    found = report(MATRIX)
    assert [(f.kind, f.first, f.second) for f in found] == [
        ("interference", "signs", "digits"),
        ("interference", "faces", "digits"),
    ]
    assert "0.97 ± 0.05" in found[0].message
    assert "signs" in found[0].message
    assert "digits" in found[0].message


@pytest.mark.parametrize(("share", "warned"), [(-0.01, 0), (0.01, 1)])
def test_the_threshold(share: float, warned: int) -> None:
    pairs = {("a", "b"): pair(HIGH_CHANGE + share), ("b", "b"): pair(1.0)}
    assert len(report(Matrix(pairs))) == warned


@pytest.mark.parametrize(("factor", "warned"), [(0.99, 0), (1.01, 1)])
def test_norms_out_of_line(factor: float, warned: int) -> None:
    found = report(Matrix({}), {"short": 1.0, "long": factor * NORM_MISMATCH, "mid": 2.0})
    assert len(found) == warned
    if warned:
        assert (found[0].kind, found[0].first, found[0].second) == ("norm", "long", "short")
        assert "5.0 times" in found[0].message or "5.1 times" in found[0].message


def test_a_vector_of_no_length_is_out_of_line_and_two_of_them_are_not() -> None:
    assert [f.value for f in report(Matrix({}), {"none": 0.0, "some": 1.0})] == [math.inf]
    assert report(Matrix({}), {"none": 0.0, "nothing": 0.0}) == []
