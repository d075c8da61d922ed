"""The algebra of named tensors, against loops over entries."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacl.vectors import params

SHAPES = {"a.weight": (3, 4), "a.bias": (3,), "scale": ()}


def draw(seed: int) -> params.Params:
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(s, generator=generator) for n, s in SHAPES.items()}


def equal(left: params.Params, right: params.Params) -> None:
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name])


seeds = st.integers(0, 10_000)
factors = st.floats(-3, 3, width=32)


@given(seeds, seeds, factors, factors)
def test_combine_is_linear_by_name_and_commutes(i: int, j: int, a: float, b: float) -> None:
    left, right = draw(i), draw(j)
    backwards = dict(reversed(right.items()))
    found = params.combine([(a, left), (b, backwards)])
    equal(found, {n: a * left[n] + b * right[n] for n in SHAPES})
    equal(found, params.combine([(b, right), (a, left)]))


def test_combine_leaves_its_arguments_alone() -> None:
    left, right = draw(0), draw(1)
    params.combine([(1.0, left), (2.0, right)])
    equal(left, draw(0))
    equal(right, draw(1))


@given(seeds)
def test_the_norm_against_a_loop(i: int) -> None:
    params_of = draw(i)
    total = sum(x * x for name in SHAPES for x in params_of[name].flatten().tolist())
    assert params.norm(params_of) == pytest.approx(math.sqrt(total))


def test_names_and_shapes_that_differ_are_named() -> None:
    left, right = draw(0), draw(1)
    del right["a.bias"]
    with pytest.raises(ValueError, match=r"a\.bias"):
        params.combine([(1.0, left), (1.0, right)])
    right = draw(1) | {"scale": torch.zeros(2)}
    with pytest.raises(ValueError, match=r"scale.*\(2,\)"):
        params.combine([(1.0, left), (1.0, right)])
    with pytest.raises(ValueError, match="at least one"):
        params.combine([])


def test_digest_depends_on_names_types_shapes_and_bytes_but_not_on_order() -> None:
    one = draw(0)
    variants = [
        one,
        {n.upper(): v for n, v in one.items()},
        {n: v.double() for n, v in one.items()},
        {n: v.reshape(-1) for n, v in one.items()},
        one | {"scale": torch.nextafter(one["scale"], torch.tensor(9.0))},
    ]
    assert len({params.digest(v) for v in variants}) == len(variants)
    assert params.digest(dict(reversed(one.items()))) == params.digest(one)
    strided = {n: v.t().contiguous().t() if v.ndim == 2 else v for n, v in one.items()}
    assert params.digest(strided) == params.digest(one)


def test_digest_reads_bfloat16_and_empty_tensors() -> None:
    halves = {"x": torch.ones(2, dtype=torch.bfloat16), "none": torch.zeros(0)}
    assert len(params.digest(halves)) == 64
