"""Merges against their definitions written as loops over entries and singular triples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tacl.compose import grid
from tacl.compose.arithmetic import block_terms, composed
from tacl.compose.merges import iso_c, magmax, opcm, ties, tsv_m
from tacl.compose.terms import require_additions
from tacl.errors import BadRecipe, BaseMismatch, MixedRegimes
from tacl.vectors.params import Params, norm
from tacl.vectors.vector import Regime, TaskVector

SHAPES = {"w": (4, 6), "conv": (3, 2, 2, 2), "depthwise": (3, 1, 2, 2), "b": (4,)}
Merge = Callable[[Sequence[TaskVector], Sequence[float]], Params]
MERGES: list[Merge] = [ties, magmax, tsv_m, iso_c]


def vector(seed: int, base: str = "base", regime: Regime = "ordinary") -> TaskVector:
    random = torch.Generator().manual_seed(seed)
    tau = {name: torch.randn(shape, generator=random) for name, shape in SHAPES.items()}
    return TaskVector.of_params(f"task{seed}", base, regime, tau)


VECTORS = [vector(seed) for seed in range(3)]
SIGNS = [1.0, -0.5, 1.0]


def entries(vector: TaskVector, coefficient: float = 1.0) -> list[float]:
    blocks = (vector.to_params()[name] for name in SHAPES)
    return [coefficient * value for block in blocks for value in block.flatten().tolist()]


def flat(tau: Params) -> list[float]:
    return [value for name in SHAPES for value in tau[name].flatten().tolist()]


@pytest.mark.parametrize("coefficient", [1.0, 0.7, 0.3, -0.7])
def test_ties_keeps_entries_of_one_size_whatever_the_coefficient(coefficient: float) -> None:
    signs = torch.randn(50, generator=torch.Generator().manual_seed(0)).sign()
    alike = TaskVector.of_params("task", "base", "ordinary", {"w": 0.1234567 * signs})
    found = ties([alike], [coefficient])["w"]
    assert torch.equal(found, coefficient * (0.1234567 * signs))


def test_ties_by_hand() -> None:
    rows = [entries(v, c) for v, c in zip(VECTORS, SIGNS, strict=True)]
    stay = round(0.2 * len(rows[0]))
    trimmed = []
    for row in rows:
        kept = sorted(range(len(row)), key=lambda i: -abs(row[i]))[:stay]
        trimmed.append([value if i in kept else 0.0 for i, value in enumerate(row)])
    expected = []
    for column in zip(*trimmed, strict=True):
        elected = 1 if sum(column) > 0 else -1
        agreeing = [value for value in column if value * elected > 0]
        expected.append(sum(agreeing) / len(agreeing) if agreeing else 0.0)
    assert flat(ties(VECTORS, SIGNS)) == pytest.approx(expected)
    assert any(expected)


def test_magmax_by_hand() -> None:
    rows = [entries(v, c) for v, c in zip(VECTORS, SIGNS, strict=True)]
    expected = [max(column, key=abs) for column in zip(*rows, strict=True)]
    assert flat(magmax(VECTORS, SIGNS)) == pytest.approx(expected)


def matrix(tau: Params, name: str) -> Tensor:
    return tau[name].flatten(1)


@pytest.mark.parametrize("name", ["w", "conv"])
def test_tsv_m_by_hand(name: str) -> None:
    """The polar factors of the kept triples, from eigenvectors of their Gram matrices."""
    lefts, rights, sizes = [], [], []
    for v, c in zip(VECTORS, SIGNS, strict=True):
        delta = c * matrix(v.to_params(), name)
        values, vectors = torch.linalg.eigh(delta.T @ delta)
        rank = min(delta.shape) // len(VECTORS)
        for k in range(1, rank + 1):
            size, right = values[-k].sqrt(), vectors[:, -k]
            lefts.append(delta @ right / size)
            rights.append(right)
            sizes.append(size)

    def polar(columns: list[Tensor]) -> Tensor:
        x = torch.stack(columns, 1)
        values, vectors = torch.linalg.eigh(x.T @ x)
        return x @ vectors @ torch.diag(values.rsqrt()) @ vectors.T

    left, right = polar(lefts), polar(rights)
    expected = sum(size * torch.outer(left[:, k], right[:, k]) for k, size in enumerate(sizes))
    found = tsv_m(VECTORS, SIGNS)
    torch.testing.assert_close(matrix(found, name), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["w", "conv"])
def test_iso_c_has_the_sums_directions_and_one_size(name: str) -> None:
    total = matrix(composed(VECTORS, SIGNS), name)
    values, vectors = torch.linalg.eigh(total @ total.T)
    root = vectors @ torch.diag(values.rsqrt()) @ vectors.T  # (total total')^(-1/2)
    expected = values.sqrt().mean() * root @ total
    torch.testing.assert_close(matrix(iso_c(VECTORS, SIGNS), name), expected, rtol=1e-3, atol=1e-4)


def test_directions_without_size_are_in_nobodys_way() -> None:
    """Vectors that lack a block, or are zero in it, and adapters of low rank."""
    random = torch.Generator().manual_seed(0)
    u, v = torch.eye(24)[:, :2], torch.randn(2, 24, generator=random)
    v = torch.linalg.svd(v, full_matrices=False)[2]
    taus: list[Params] = [{"w": u @ v}, {"w": torch.zeros(24, 24)}, {"b": torch.ones(3)}]
    some = [TaskVector.of_params(f"t{i}", "base", "ordinary", tau) for i, tau in enumerate(taus)]
    for merge in (tsv_m, iso_c):
        torch.testing.assert_close(merge(some, [1.0] * 3)["w"], u @ v)
        assert not merge(some[1:2], [1.0])["w"].any()


@pytest.mark.parametrize("merge", [tsv_m, iso_c])
def test_what_is_no_matrix_is_averaged(merge: Merge) -> None:
    found, total = merge(VECTORS, SIGNS), composed(VECTORS, SIGNS)
    for name in ("depthwise", "b"):
        torch.testing.assert_close(found[name], total[name] / len(VECTORS))


def test_opcm_by_hand() -> None:
    """Coordinates of the newcomer in the merged tau's singular directions, one by one."""
    first, second, third = (v.to_params() for v in VECTORS)
    norms, divisor, merged = [norm(first)], 1.0, first
    for count, tau in enumerate((second, third), start=2):
        total = {}
        for name in SHAPES:
            old, new = merged[name], tau[name]
            if name in ("w", "conv"):
                u, s, v = torch.linalg.svd(old.flatten(1), full_matrices=True)
                larger, running = 0, 0.0
                for size in s.tolist():  # how many directions hold at most half of the sum
                    running += size
                    if running > 0.5 * s.sum().item():
                        break
                    larger += 1
                kept = torch.zeros_like(old.flatten(1))
                for i in range(u.shape[0]):
                    for j in range(v.shape[0]):
                        if i == j or (i < larger and j < larger):
                            continue
                        pair = torch.outer(u[:, i], v[j])
                        kept += (pair * new.flatten(1)).sum() * pair
                new = kept.view_as(new)
            total[name] = divisor * old + new
        norms.append(norm(tau))
        target = sum(norms) / len(norms)
        divisor = norm(total) / target
        merged = {name: value / divisor for name, value in total.items()}
        found = opcm(VECTORS[:count], [1.0] * count)
        for name in SHAPES:
            torch.testing.assert_close(found[name], merged[name], rtol=1e-3, atol=1e-4)
        assert norm(found) == pytest.approx(target, rel=1e-4)


# -- what all of them keep


@pytest.mark.parametrize("merge", MERGES)
def test_signs_survive(merge: Merge) -> None:
    """All vectors subtracted is the merge subtracted; one vector subtracted is not one added."""
    negated = merge(VECTORS, [-1.0] * 3)
    added = merge(VECTORS, [1.0] * 3)
    for name in SHAPES:
        torch.testing.assert_close(negated[name], -added[name], rtol=1e-4, atol=1e-5)
    one = merge(VECTORS, [1.0, 1.0, -1.0])
    assert any((one[name] - added[name]).norm() > 0.1 for name in SHAPES)


@pytest.mark.parametrize("merge", MERGES)
@given(order=st.permutations(range(3)))
def test_the_order_of_the_recipe_does_not_matter(merge: Merge, order: list[int]) -> None:
    found = merge([VECTORS[i] for i in order], [SIGNS[i] for i in order])
    expected = merge(VECTORS, SIGNS)
    assert all(torch.equal(found[name], expected[name]) for name in SHAPES)


@pytest.mark.parametrize("merge", MERGES)
def test_vectors_of_other_models_are_refused(merge: Merge) -> None:
    with pytest.raises(BaseMismatch):
        merge([VECTORS[0], vector(1, base="other")], [1.0, 1.0])
    with pytest.raises(MixedRegimes):
        merge([VECTORS[0], vector(1, regime="linearized")], [1.0, 1.0])


def test_a_missing_block_is_zero() -> None:
    without = TaskVector.of_params("small", "base", "ordinary", {"w": VECTORS[0].to_params()["w"]})
    terms = dict(block_terms([without, VECTORS[1]], [1.0, 2.0]))
    assert sorted(float(term.norm()) for term in terms["b"])[0] == 0
    assert composed([without, VECTORS[1]], [1.0, 2.0])["b"].equal(torch.stack(terms["b"]).sum(0))


def test_coefficients_are_refused_where_they_would_be_lost() -> None:
    require_additions([1.0, 1.0], "adamerging")
    with pytest.raises(BadRecipe, match=r"adamerging .* \[-1.0\]"):
        require_additions([1.0, -1.0], "adamerging")


def test_the_grid_finds_the_best_point_and_the_smallest_of_equals() -> None:
    assert grid.best(lambda alpha: -abs(2 * alpha - 0.72)) == pytest.approx(0.35)
    assert grid.best(lambda alpha: 1.0) == 0
