"""Every rule against torch.func.jvp, and the gradient back to the tangents against reverse mode."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from torch import Tensor

from tacl.dual import DualTensor, fallbacks
from tacl.dual.tensor import RULES, named
from tests.support.budget import budget
from tests.support.dual_cases import (
    CASES,
    EMBED,
    FLAGS,
    PICTURE,
    POSITIVE,
    PROJECTIONS,
    RANDOM,
    SEQUENCE,
    TOKENS,
    Case,
    T,
    X,
    case,
    filled,
    in_some_form,
    made,
)
from tests.support.forward_mode import Pair, check

TOLERANCE = {torch.float64: 1e-10, torch.float32: 3e-4, torch.bfloat16: 6e-2}

few = settings(max_examples=budget(5), deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.names.split()[0]}")
@given(data=st.data())
@few
def test_rule_agrees_with_jvp_and_its_transpose(case: Case, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32]))
    args, kwargs = filled((list(case.args), case.kwargs), data, dtype)
    fallbacks.clear()
    for func in case.functions():
        positional, named_args = in_some_form(case, func, args, data)
        check(func, positional, kwargs | named_args, tolerance=TOLERANCE[dtype])
    assert not fallbacks


def test_every_rule_has_a_case() -> None:
    tested = {func for case in CASES for func in case.functions()}
    untestable = {f for name in [*RANDOM.split(), "cuda"] for f in named(name)}
    tested |= {func for func, *_ in BY_FORMULA}
    assert set(RULES) - untestable - tested == set()


def length(v: Tensor, *axes: int) -> Tensor:
    return v.square().sum(axes, keepdim=True).sqrt()


TABLE = T((4, 3))
OFFSETS, SHARES = torch.tensor([0, 3]), torch.rand(2, 3, dtype=torch.float64)
# Functions without a forward derivative in torch, with a formula that has one.
BY_FORMULA: list[tuple[Any, Callable[..., Tensor], Callable[..., Tensor], tuple[T, ...]]] = [
    (F.embedding, lambda w: F.embedding(TOKENS, w, sparse=True), lambda w: w[TOKENS], (TABLE,)),
    (F.embedding_bag, lambda w: F.embedding_bag(TOKENS, w), lambda w: w[TOKENS].mean(1), (TABLE,)),
    (
        F.embedding_bag,
        lambda w: F.embedding_bag(TOKENS.flatten(), w, OFFSETS, mode="sum", sparse=True),
        lambda w: w[TOKENS].sum(1),
        (TABLE,),
    ),
    (
        F.embedding_bag,
        lambda w: F.embedding_bag(TOKENS, w, mode="sum", per_sample_weights=SHARES),
        lambda w: (w[TOKENS] * SHARES[..., None]).sum(1),
        (TABLE,),
    ),
    (
        torch._weight_norm,
        torch._weight_norm,
        lambda v, g: v * g / length(v, 1),
        (T((4, 3)), T((4, 1))),
    ),
    (
        torch._weight_norm,
        lambda v, g: torch._weight_norm(v, g, -1),
        lambda v, g: v * g / length(v, 0, 1),
        (T((4, 3)), T((1,))),
    ),
]


@pytest.mark.parametrize(("name", "call", "formula", "places"), BY_FORMULA)
def test_rule_agrees_with_a_formula(
    name: Any, call: Any, formula: Any, places: tuple[T, ...]
) -> None:
    def either(*values: Tensor) -> Tensor:
        dual = any(isinstance(value, DualTensor) for value in values)
        return (call if dual else formula)(*values)

    values = [made(place, torch.float64, rows=True) for place in places]
    for moved in itertools.product([True, False], repeat=len(places)):
        if any(moved):
            some = zip(values, moved, strict=True)
            args = [Pair(value, torch.randn_like(value)) if dual else value for value, dual in some]
            check(either, args, tolerance=1e-10)


BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, torch.maximum]
BINARY += [lambda a, b: torch.where(a > b, a, b), lambda a, b: 2 * a - b / 3 + (1 - a) ** 2]


@given(
    shapes=mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3, min_side=0),
    func=st.sampled_from(BINARY),
    dtypes=st.tuples(*[st.sampled_from([torch.float32, torch.float64])] * 2),
    duals=st.sampled_from([(True, True), (True, False), (False, True)]),
)
@settings(few, max_examples=budget(80))
def test_broadcasts_and_mixed_precision(
    shapes: Any, func: Callable[..., Tensor], dtypes: Any, duals: tuple[bool, bool]
) -> None:
    args: list[Any] = []
    for shape, dtype, is_dual in zip(shapes.input_shapes, dtypes, duals, strict=True):
        value = made(T(shape, 0.5, 2.0), dtype, rows=True)
        args.append(Pair(value, torch.randn(shape, dtype=dtype)) if is_dual else value)
    check(func, args, tolerance=TOLERANCE[torch.float32])


BFLOAT = "linear conv2d addmm matmul embedding layer_norm batch_norm gelu silu relu softmax add mul"
BFLOAT += " scaled_dot_product_attention multi_head_attention_forward mean avg_pool2d"


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if {n.split(".")[-1] for n in c.names.split()} & set(BFLOAT.split())],
    ids=lambda case: case.names.split()[0],
)
@given(data=st.data())
@settings(few, max_examples=budget(3))
def test_rule_in_bfloat16_is_near_float32(case: Case, data: st.DataObject) -> None:
    if "dtype" in case.kwargs:
        return
    args, kwargs = filled((list(case.args), case.kwargs), data, torch.bfloat16)
    for func in case.functions():
        tolerance = TOLERANCE[torch.bfloat16]
        check(func, args, kwargs, tolerance=tolerance, reference=torch.float32)


@pytest.mark.parametrize(
    "func",
    [
        lambda x: x**0.5,
        lambda x: x**2,
        lambda x: x**1,
        lambda x: x**-1,
        torch.sqrt,
        torch.abs,
        torch.relu,
        F.relu6,
        lambda x: x.clamp(min=0),
        lambda x: x.clamp(max=0.0),
        lambda x: F.normalize(x, dim=-1),
        lambda x: F.layer_norm(x, (3,)),
        lambda x: x.masked_fill(x == 0, 1.0).log(),
        lambda x: F.softmax(x - torch.tensor([0.0, torch.inf, torch.inf]), -1),
    ],
)
def test_derivative_at_zero(func: Callable[[Tensor], Tensor]) -> None:
    x = torch.zeros(2, 3, dtype=torch.float64)
    check(func, [Pair(x, torch.ones_like(x))], tolerance=1e-10)


FALLBACKS = [
    case("var std", PICTURE, 1, correction=0),
    case("norm amax logsumexp", PICTURE, dim=1),
    case("max min median sort", X, 1),
    case("max min", X),
    case("topk", PICTURE, 2),
    case("torch.einsum", "ij,kj->ik", X, X),
    case("F.elu F.mish F.softplus F.logsigmoid F.softsign", X),
    case("F.group_norm", PICTURE, 2, T((4,)), T((4,))),
    case("F.conv_transpose2d", PICTURE, T((4, 2, 3, 3))),
    case("F.max_pool2d", PICTURE, 2, return_indices=True),
    case("F.prelu", X, T((1,))),
    case("Tensor.__rpow__", X, 2.0),
    case("remainder", X, 0.7),
    case("div", X, POSITIVE, rounding_mode="floor"),
    case("torch.pow", POSITIVE, X),
    case("Tensor.__pow__", POSITIVE, T((1,))),  # as in a pooling by generalised means
    case("torch.clamp", X, T((2, 1), -0.5, 0.0)),
    case("torch.where", condition=FLAGS, input=X, other=X),
    case("torch.bmm", T((2, 3, 4)), mat2=T((2, 4, 5))),
    case("torch.atleast_2d", X, T((3,))),
    case("torch.broadcast_tensors", X, T((3,))),
    case("torch.masked_fill", torch.ones(2, 3), FLAGS, T(())),
    case("torch.index_add", X, 0, torch.tensor([0, 1]), X),
    case("F.normalize", X, 3.0),
    case(
        "F.multi_head_attention_forward",
        *(SEQUENCE, SEQUENCE, SEQUENCE, EMBED, 2, *PROJECTIONS["packed"]),
        *(None, None, False, 0.0, T((4, 4)), T((4,)), False),
    ),
]


@pytest.mark.parametrize("case", FALLBACKS, ids=lambda case: case.names.split()[0])
@given(data=st.data())
@settings(few, max_examples=budget(3))
def test_function_without_a_rule_falls_back_and_is_counted(case: Case, data: st.DataObject) -> None:
    args, kwargs = filled((list(case.args), case.kwargs), data, torch.float64)
    for func in case.functions():
        fallbacks.clear()
        check(func, args, kwargs, tolerance=1e-10)
        assert fallbacks.total() == 1


def dual(*shape: int) -> DualTensor:
    return DualTensor(torch.rand(shape), torch.rand(shape))


REFUSED = {
    "dropout": lambda: F.dropout(dual(2, 3)),
    "torch.dropout": lambda: torch.dropout(dual(2, 3), 0.5, True),
    "batch norm": lambda: F.batch_norm(dual(2, 3), torch.ones(3), torch.ones(3), training=True),
    "batch norm without statistics": lambda: F.batch_norm(dual(2, 3), None, None, training=False),
    "attention dropout": lambda: F.scaled_dot_product_attention(
        *[dual(2, 2, 3)] * 3, dropout_p=0.1
    ),
    "embedding with max_norm": lambda: F.embedding(TOKENS, dual(4, 3), max_norm=1.0),
    "bag with max_norm": lambda: F.embedding_bag(TOKENS, dual(4, 3), max_norm=1.0),
    "out": lambda: torch.add(dual(2), dual(2), out=torch.zeros(2)),
    "item": lambda: dual(1).item(),
    "float": lambda: float(dual(1)),
    "tolist": lambda: dual(2).tolist(),
    "numpy": lambda: dual(2).numpy(),
    "data": lambda: dual(2).data,
    "storage": lambda: dual(2).storage_offset(),
    "format": lambda: f"{dual(1)}",
    "view of bits": lambda: dual(2).view(torch.int32),
    "as_strided": lambda: dual(4).as_strided((2,), (2,)),
    "complex": lambda: dual(2).to(torch.complex64),
    "fft": lambda: torch.fft.rfft(dual(4)).real,
    "tensor": lambda: torch.tensor([dual(1), dual(1)]),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_what_would_lose_the_derivative_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(NotImplementedError):
        call()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cdist", lambda: torch.cdist(dual(3, 2), dual(3, 2))),
        ("embedding_bag", lambda: F.embedding_bag(TOKENS, dual(4, 3), mode="max")),
    ],
)
def test_what_torch_cannot_differentiate_forward_is_refused_by_name(
    name: str, call: Callable[[], Any]
) -> None:
    with pytest.raises(NotImplementedError, match=f"^{name} has no forward derivative"):
        call()


def test_attention_with_mask_and_is_causal_is_refused_as_torch_does() -> None:
    q, mask = dual(2, 2, 3), torch.ones(2, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="is_causal"):
        F.scaled_dot_product_attention(q, q, q, mask, is_causal=True)


def test_dual_of_two_forms_is_refused() -> None:
    with pytest.raises(ValueError, match="differ"):
        DualTensor(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="differ"):
        DualTensor(torch.zeros(2), torch.zeros(2, dtype=torch.float64))


def test_form_is_that_of_the_primal() -> None:
    x = dual(2, 3)
    assert (x.shape, x.dtype, x.ndim, x.numel(), len(x)) == ((2, 3), torch.float32, 2, 6, 2)
    assert torch.is_floating_point(x)
    assert x.is_contiguous()
    assert [row.shape for row in x] == [(3,), (3,)]
    assert "tangent" in repr(x)


def test_a_layer_keeps_the_primal_and_the_weight_alone() -> None:
    """Not the tangent that came in: of W0 x' + tau x the backward pass needs x and W0."""
    layers = (
        (F.linear, torch.randn(3, 4), torch.randn(5, 4)),
        (F.conv2d, torch.randn(2, 4, 6, 6), torch.randn(5, 4, 3, 3)),
    )
    for layer, x, weight in layers:
        kept: list[torch.Tensor] = []
        before = torch.randn_like(x, requires_grad=True)
        tau = torch.randn_like(weight, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, k=kept: k.append(t) or t, lambda t: t
        ):
            layer(DualTensor(x, before * 1), DualTensor(weight, tau))
        memory = {t.untyped_storage().data_ptr() for t in kept}
        assert memory == {t.untyped_storage().data_ptr() for t in (x, weight)}
