"""Recipes: the grammar of their terms, and the algebra of their sums."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacl.compose import arithmetic
from tacl.compose.arithmetic import composed
from tacl.compose.terms import Term, parse_recipe, parse_term
from tacl.errors import BadRecipe, BaseMismatch, MixedRegimes
from tacl.vectors.blocks import Block, Dense, EightBit, FourBit, LowRank
from tacl.vectors.vector import TaskVector


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("+ag_news", Term(1.0, "ag_news")),
        ("ag_news", Term(1.0, "ag_news")),
        ("-faces", Term(-1.0, "faces")),
        ("0.5*digits@v2", Term(0.5, "digits", version=2)),
        ("-0.3*x@champion", Term(-0.3, "x", alias="champion")),
        ("+1e-3*x", Term(0.001, "x")),
        ("-.5*20_newsgroups.v1", Term(-0.5, "20_newsgroups.v1")),
        (" 2*a-b ", Term(2.0, "a-b")),
        ("x@v10", Term(1.0, "x", version=10)),
        ("x@very", Term(1.0, "x", alias="very")),
    ],
)
def test_terms_are_read(text: str, term: Term) -> None:
    assert parse_term(text) == term


@pytest.mark.parametrize(
    "text",
    ["", "+", "--x", "0.5x*", "*x", "0.5*", "x@", "x@v0", "x@v02", "x y", "x@a@b", "nan*x", "0*x",
     "1e999*x", "1e39*x", "-1000001*x", "caf\u00e9", "+ x", "x/y", "x@2"],
)  # fmt: skip
def test_what_is_no_term_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(BadRecipe) as caught:
        parse_term(text)
    assert repr(text) in str(caught.value)


names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}", fullmatch=True)
coefficients = st.floats(1e-6, 1e6).flatmap(lambda x: st.sampled_from([x, -x]))
aliases = st.from_regex(r"[a-uw-z_][a-z0-9_.-]{0,6}", fullmatch=True)
terms = st.one_of(
    st.builds(Term, coefficients, names),
    st.builds(Term, coefficients, names, version=st.integers(1, 999)),
    st.builds(Term, coefficients, names, alias=aliases),
)


@given(terms)
def test_terms_survive_writing_and_reading(term: Term) -> None:
    assert parse_term(str(term)) == term


def test_a_recipe_is_not_empty_and_names_no_vector_twice() -> None:
    assert [str(t) for t in parse_recipe(["+a", "-a@v1", "2*b"])] == ["+a", "-a@v1", "+2.0*b"]
    with pytest.raises(BadRecipe, match="at least one term"):
        parse_recipe([])
    with pytest.raises(BadRecipe, match="a more than once"):
        parse_recipe(["+a", "-a", "b"])


def vector(seed: int, base: str = "b", regime: str = "linearized", **shapes: int) -> TaskVector:
    generator = torch.Generator().manual_seed(seed)
    sizes = shapes or {"w": 4, "v": 3}
    tau = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    return TaskVector.of_params(f"task{seed}", base, regime, tau)  # pyright: ignore[reportArgumentType]


def close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-5, atol=1e-5)


weights = st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=5)


@given(weights)
def test_a_sum_is_the_sum(cs: list[float]) -> None:
    vectors = [vector(i) for i in range(len(cs))]
    total = {name: torch.zeros(size) for name, size in (("w", 4), ("v", 3))}
    for c, one in zip(cs, vectors, strict=True):
        for name, value in one.to_params().items():
            for entry in range(len(value)):
                total[name][entry] += c * value[entry]
    close(composed(vectors, cs), total)


@given(weights, st.randoms(use_true_random=False))
def test_the_order_of_a_recipe_does_not_change_a_single_bit(cs: list[float], random) -> None:
    pairs = [(vector(i), c) for i, c in enumerate(cs)]
    mixed = random.sample(pairs, len(pairs))
    one = composed([v for v, _ in pairs], [c for _, c in pairs])
    two = composed([v for v, _ in mixed], [c for _, c in mixed])
    assert all(torch.equal(one[name], two[name]) for name in one)


@given(weights, st.floats(-2, 2, width=32))
def test_scaling_a_recipe_scales_its_sum(cs: list[float], factor: float) -> None:
    vectors = [vector(i) for i in range(len(cs))]
    scaled = {n: factor * v for n, v in composed(vectors, cs).items()}
    close(composed(vectors, [factor * c for c in cs]), scaled)


@given(weights)
def test_negation_undoes_addition(cs: list[float]) -> None:
    vectors = [vector(i) for i in range(len(cs))]
    plus, minus = composed(vectors, cs), composed(vectors, [-c for c in cs])
    close({n: plus[n] + minus[n] for n in plus}, {n: torch.zeros_like(v) for n, v in plus.items()})


@given(weights, st.integers(0, 5))
def test_disjoint_subsets_add_up(cs: list[float], cut: int) -> None:
    vectors = [vector(i) for i in range(len(cs))]
    cut = min(cut, len(cs))
    parts = [(vectors[:cut], cs[:cut]), (vectors[cut:], cs[cut:])]
    sums = [composed(vs, c) for vs, c in parts if vs]
    close({n: sum(s[n] for s in sums) for n in ("w", "v")}, composed(vectors, cs))  # pyright: ignore[reportArgumentType]


def test_a_block_that_a_vector_does_not_have_is_zero_in_it() -> None:
    one, two = vector(1, w=4), vector(2, w=4, extra=2)
    total = composed([one, two], [1.0, 3.0])
    torch.testing.assert_close(total["extra"], 3 * two.to_params()["extra"])


def test_a_sum_by_pieces_is_the_plain_sum_for_every_kind_of_block(monkeypatch) -> None:
    monkeypatch.setattr(arithmetic, "PIECE", 10)  # two rows of five, and a last one alone
    kinds = (
        Dense,
        lambda x: Dense(x.bfloat16()),
        EightBit.of,
        FourBit.of,
        lambda x: LowRank.of(x, 2),
    )
    for shape in ((7, 5), (3, 5, 1, 2), (23,), ()):
        blocks: list[Block] = [kind(torch.randn(shape)) for kind in kinds if shape or kind is Dense]
        vectors = [TaskVector(f"t{i}", "b", "linearized", {"w": b}) for i, b in enumerate(blocks)]
        cs = [1.0, -0.5, 0.25, 3.0, -2.0][: len(vectors)]
        expected = sum(c * b.dense() for c, b in zip(cs, blocks, strict=True))
        reused = {"w": torch.full(shape, torch.nan)}
        again = composed(vectors, cs, out=reused)
        assert again["w"] is reused["w"]
        close(again, {"w": expected})  # pyright: ignore[reportArgumentType]
        assert torch.equal(again["w"], composed(vectors, cs)["w"])


def test_the_vectors_themselves_are_not_changed() -> None:
    one = vector(1)
    before = {n: v.clone() for n, v in one.to_params().items()}
    composed([one, vector(2)], [1.0, 1.0])
    assert all(torch.equal(before[n], v) for n, v in one.to_params().items())


def test_other_bases_regimes_shapes_and_nothing_are_refused() -> None:
    with pytest.raises(BaseMismatch, match=r"task1.*task2"):
        composed([vector(1), vector(2, base="c")], [1.0, 1.0])
    with pytest.raises(MixedRegimes, match=r"task1 is linearized and task2 is ordinary"):
        composed([vector(1), vector(2, regime="ordinary")], [1.0, 1.0])
    with pytest.raises(BadRecipe, match="block w"):
        composed([vector(1, w=4), vector(2, w=5)], [1.0, 1.0])
    with pytest.raises(BadRecipe, match="at least one"):
        composed([], [])
