"""Calls of every function that has a rule, and tensors to fill them with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from tacl.dual.tensor import named
from tests.support.forward_mode import Pair

PROPERTIES = ("T", "mT", "H", "mH")


@dataclass(frozen=True)
class T:
    """A placeholder for a floating point tensor with entries from low to high, plain or dual."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    plain: bool = False  # never a dual
    once: bool = False  # the same tensor for every occurrence of this placeholder
    rows: bool = False  # laid out row by row, as a view of another shape needs


@dataclass(frozen=True)
class Case:
    """One form of call for every function of some names; `keys` names its first arguments."""

    names: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    keys: tuple[str, ...]

    def functions(self) -> list[Any]:
        return [f for name in self.names.split() for f in functions_of(name)]


def case(names: str, *args: Any, keys: str = "", **kwargs: Any) -> Case:
    return Case(names, args, kwargs, tuple(keys.split()))


def functions_of(name: str) -> list[Any]:
    """All functions of torch with this name, or the one of `Tensor.f`, `torch.f` or `F.f`."""
    space, _, plain = name.rpartition(".")
    if space:
        return [getattr({"Tensor": torch.Tensor, "torch": torch, "F": F}[space], plain)]
    if name in PROPERTIES:
        return [getattr(torch.Tensor, name).__get__]
    return named(name)


def is_method(func: Any) -> bool:
    return getattr(torch.Tensor, getattr(func, "__name__", ""), None) is func


X = T((2, 3))
ROWS = T((2, 3), rows=True)
SQUARE = T((3, 3))
POSITIVE = T((2, 3), 0.5, 2.0)
PICTURE = T((2, 4, 5, 6))
FLAGS = torch.tensor([[True, False, True], [False, False, True]])
INDEX = torch.tensor([[0, 2, 1], [1, 1, 0]])
TOKENS = torch.tensor([[3, 1, 1], [0, 3, 2]])


def heads(length: int, count: int = 2) -> T:
    return T((2, count, length, 4))


ARITHMETIC = [
    case("add sub subtract", X, T((3,)), keys="input other"),
    case("add sub subtract", X, X, alpha=0.5),
    case("add sub mul div", T((3,)), T((2, 1))),
    case("__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__", X, X),
    case("__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __pow__", X, 2.0),
    case("rsub", X, T((2, 1)), alpha=2),
    case("mul multiply", X, T((2, 1)), keys="input other"),
    case("div true_divide divide", T((3,)), POSITIVE, keys="input other"),
    case("__truediv__ __div__ __rtruediv__ __rdiv__", POSITIVE, T((2, 1), 0.5, 2.0)),
    case("__rtruediv__ __rdiv__", POSITIVE, 2),
    case("pow", X, 3, keys="input exponent"),
    case("pow __pow__", X, 1),
    case("pow __pow__", X, 0),
    case("pow __pow__", POSITIVE, -0.5),
    case("neg __neg__ negative exp abs __abs__ absolute sin cos erf square", X, keys="input"),
    case("log sqrt rsqrt reciprocal", POSITIVE),
    case("clamp clip", X, -0.5, 0.7, keys="input min max"),
    case("clamp clip", X, min=0.1),
    case("clamp clip", X, None, 0.1),
    case("masked_fill", X, FLAGS, 2.5, keys="input mask value"),
    case("masked_fill", T((3,)), FLAGS, torch.tensor(-1.0)),
    case("torch.where", FLAGS, X, T((3,))),
    case("torch.where", FLAGS, X, 0.0),
    case("Tensor.where", X, FLAGS, T((2, 1))),
]
ACTIVATIONS = [
    case("relu relu6 sigmoid tanh silu hardswish hardsigmoid gelu hardtanh leaky_relu", X),
    case("sigmoid tanh relu", T(()), keys="input"),
    case("relu6 silu hardtanh leaky_relu", T((3, 2), -8, 8), keys="input"),
    case("gelu", X, approximate="tanh"),
    case("hardtanh", X, -0.5, 0.25),
    case("leaky_relu", X, 0.3),
    case("glu", T((2, 4)), keys="input"),
    case("glu", PICTURE, 1),
    case("softmax log_softmax", X, -1, keys="input dim"),
    case("softmax log_softmax", PICTURE, 1),
    case("softmax log_softmax", X, dim=0, dtype=torch.float64),
    case("_softmax _log_softmax", X, 1, False),
    case("normalize", X, keys="input"),
    case("normalize", PICTURE, 2, 1, 1e-3),
    case("normalize", X, dim=0, eps=10.0),
    case("dropout alpha_dropout feature_dropout feature_alpha_dropout", X, 0.5, False),
    case("dropout1d", T((2, 3, 4)), 0.5, False),
    case("dropout2d", PICTURE, 0.5, False),
    case("dropout3d", T((1, 2, 2, 2, 2)), 0.5, False),
]
LAYERS = [
    case("linear", T((2, 4, 3)), T((5, 3)), T((5,)), keys="input weight bias"),
    case("linear", T((3,)), T((5, 3))),
    case("conv1d", T((2, 4, 7)), T((6, 2, 3)), T((6,)), padding=1, groups=2),
    case(
        "conv2d", PICTURE, T((6, 4, 3, 3)), T((6,)), 2, 1, keys="input weight bias stride padding"
    ),
    case("conv2d", PICTURE, T((4, 1, 3, 3)), T((4,)), 1, "same", 2, 4),
    case("conv2d", T((4, 5, 6)), T((6, 4, 1, 1)), None, padding="valid"),
    case("conv3d", T((1, 2, 3, 4, 4)), T((3, 2, 2, 2, 2)), T((3,))),
    case("matmul", T((2, 3, 4)), T((4, 5)), keys="input other"),
    case("matmul __matmul__", T((4,)), T((2, 4, 3))),
    case("__rmatmul__", T((4, 3)), T((2, 4))),
    case("bmm", T((2, 3, 4)), T((2, 4, 5))),
    case("mm", T((3, 4)), T((4, 5))),
    case("mv", T((3, 4)), T((4,))),
    case("dot", T((4,)), T((4,))),
    case("addmm", T((5,)), T((3, 4)), T((4, 5))),
    case("addmm", T((3, 5)), T((3, 4)), T((4, 5)), beta=0.5, alpha=2),
    case("baddbmm", T((2, 3, 5)), T((2, 3, 4)), T((2, 4, 5)), beta=0.5, alpha=2),
    case("F.embedding", TOKENS, T((4, 3)), keys="input weight"),
    case("F.embedding", TOKENS, T((4, 3)), padding_idx=1),
    case("torch.embedding", T((4, 3)), TOKENS, 1),
    case("layer_norm", T((2, 4, 3)), [3], T((3,)), T((3,)), 1e-3),
    case("layer_norm", T((2, 4, 3)), (4, 3), T((4, 3))),
    case("layer_norm", X, (3,), keys="input normalized_shape"),
    case("layer_norm", X, (3,), bias=T((3,))),
]
STATISTICS = (T((4,), plain=True), T((4,), 0.5, 2.0, plain=True))
NORMS_AND_POOLS = [
    case("F.batch_norm", T((1, 4, 6)), None, None, T((4,)), training=True, eps=1e-3),
    case("F.batch_norm", T((1, 4, 6)), None, None, training=True, eps=1e-3),
    case("F.batch_norm", PICTURE, *STATISTICS, T((4,)), T((4,))),
    case("F.batch_norm", T((3, 4)), *STATISTICS),
    case("F.batch_norm", PICTURE, *STATISTICS, bias=T((4,))),
    case("torch.batch_norm", PICTURE, T((4,)), T((4,)), *STATISTICS, False, 0.1, 1e-5, False),
    case("max_pool2d", PICTURE, 2, keys="input kernel_size"),
    case("max_pool2d", T((4, 5, 6)), 3, stride=2, padding=1, ceil_mode=True),
    case("avg_pool1d", T((2, 4, 7)), 3, 2, 1),
    case("avg_pool2d", PICTURE, 3, 2, 1, True, False),
    case("avg_pool2d", PICTURE, (2, 3), divisor_override=5),
    case("avg_pool3d", T((1, 2, 4, 4, 4)), 2),
    case("adaptive_avg_pool1d", T((2, 4, 7)), 3),
    case("adaptive_avg_pool2d", PICTURE, (1, 1)),
    case("adaptive_avg_pool3d", T((1, 2, 4, 4, 4)), 2),
    case("pad", PICTURE, (1, 2, 0, 1), "constant", 3.0),
    case("pad", PICTURE, (1, -1, 0, 0), keys="input pad"),
    case("pad", PICTURE, (0, 0)),
    case("pad", PICTURE, (1, 2, 0, 1), mode="reflect"),
    case("interpolate", PICTURE, scale_factor=2.0, mode="bilinear", keys="input"),
    case("interpolate upsample", PICTURE, (3, 9), mode="nearest"),
    case("pixel_shuffle", PICTURE, 2),
    case("pixel_unshuffle", T((1, 2, 4, 4)), 2),
    case("channel_shuffle", PICTURE, 2),
    case("F.fold", T((2, 12, 20)), (5, 6), 2),
    case("F.unfold", PICTURE, 3, padding=1),
    case("Tensor.unfold", PICTURE, 2, 3, 2),
]
ATTENTION = [
    case("scaled_dot_product_attention", heads(3), heads(5), heads(5), keys="query key value"),
    case("scaled_dot_product_attention", heads(3), heads(5), heads(5), is_causal=True),
    case("scaled_dot_product_attention", heads(5), heads(3), heads(3), is_causal=True, scale=0.3),
    case("scaled_dot_product_attention", T((3, 4)), T((2, 5, 4)), T((2, 5, 6))),
    case("scaled_dot_product_attention", heads(3), heads(5), heads(5), T((2, 2, 3, 5))),
    case("scaled_dot_product_attention", heads(3), heads(3), heads(3), T((3, 1)), 0.0, False),
    case(
        "scaled_dot_product_attention",
        *(heads(3), heads(5), heads(5)),
        torch.tensor([[True] * 5, [False] * 5, [True, False, True, True, False]]),
    ),
    case(
        "scaled_dot_product_attention",
        *(heads(3), heads(5), heads(5)),
        torch.tensor([0.0, -torch.inf, 0.0, -torch.inf, 1.0]).expand(2, 1, 3, 5),
    ),
    case(
        "scaled_dot_product_attention",
        *(heads(3, count=4), heads(5), heads(5)),
        enable_gqa=True,
    ),
]
EMBED = 4
PROJECTIONS = {
    "packed": (T((12, 4)), T((12,))),
    "no bias": (T((12, 4)), None),
}


def multi_head(query: T, key: T, value: T, projections: Any, **kwargs: Any) -> Case:
    return case(
        "multi_head_attention_forward",
        *(query, key, value, EMBED, 2, *projections, None, None, False, 0.0),
        *(T((4, 4)), T((4,))),
        training=False,
        need_weights=False,
        **kwargs,
    )


SEQUENCE, CONTEXT = T((3, 2, 4), once=True), T((5, 2, 4), once=True)
CAUSAL = torch.ones(3, 3, dtype=torch.bool).triu(1)
PADDING = torch.tensor([[False, False, True], [False, False, False]])
ATTENTION += [
    multi_head(SEQUENCE, SEQUENCE, SEQUENCE, PROJECTIONS["packed"]),
    multi_head(SEQUENCE, CONTEXT, CONTEXT, PROJECTIONS["no bias"]),
    multi_head(SEQUENCE, SEQUENCE, SEQUENCE, PROJECTIONS["packed"], attn_mask=CAUSAL),
    multi_head(
        *(SEQUENCE, SEQUENCE, SEQUENCE, PROJECTIONS["packed"]),
        attn_mask=T((4, 3, 3)),
        key_padding_mask=PADDING,
    ),
    multi_head(
        *(SEQUENCE, SEQUENCE, SEQUENCE, PROJECTIONS["packed"]),
        attn_mask=CAUSAL,
        key_padding_mask=PADDING,
        is_causal=True,
    ),
    multi_head(
        *(SEQUENCE, T((5, 2, 3)), T((5, 2, 6)), (None, T((12,)))),
        use_separate_proj_weight=True,
        q_proj_weight=T((4, 4)),
        k_proj_weight=T((4, 3)),
        v_proj_weight=T((4, 6)),
    ),
]
SHAPES = [
    case("view", ROWS, 3, -1),
    case("view", ROWS, (6,)),
    case("reshape", X, (3, 2), keys="input shape"),
    case("view_as reshape_as", ROWS, T((3, 2))),
    case("expand_as", T((3,)), X),
    case("type_as", X, T((1,))),
    case("permute", T((2, 3, 4)), (2, 0, 1)),
    case("transpose swapaxes swapdims", T((2, 3, 4)), 0, -1),
    case("movedim", T((2, 3, 4)), 0, 2),
    case("flatten", T((2, 3, 4)), 1, keys="input start_dim"),
    case("unflatten", X, -1, (3, 1)),
    case("unsqueeze", X, 1, keys="input dim"),
    case("squeeze", T((2, 1, 3))),
    case("expand", T((2, 1)), -1, 3),
    case("broadcast_to", T((2, 1)), (4, 2, 3)),
    case("chunk", PICTURE, 2, keys="input chunks dim"),
    case("split tensor_split", PICTURE, 2, 1),
    case("split split_with_sizes", PICTURE, [1, 3], 1),
    case("unbind", X, 1),
    case("narrow", PICTURE, 3, 1, 4),
    case("select", PICTURE, 2, 3),
    case("index_select", X, 1, torch.tensor([2, 0, 0]), keys="input dim index"),
    case("gather", X, 1, INDEX),
    case("take_along_dim", X, INDEX, 1),
    case("roll", X, 1, 1),
    case("flip", X, (0, 1)),
    case("repeat tile", X, (2, 2)),
    case("repeat_interleave", X, 2, 1),
    case("contiguous clone float double half bfloat16 cpu ravel positive __pos__", X),
    case("to type", X, torch.float64),
    case("to", X, T((1,))),
    case("type", X),
    case("to", X, torch.int64),
    case("t tril triu diagonal diag", SQUARE),
    case("T mT H mH", SQUARE),
    case("sum mean", PICTURE),
    case("sum mean", PICTURE, (1, 2), True, keys="input dim keepdim"),
    case("sum mean", X, 1, dtype=torch.float64),
    case("cumsum", X, 1),
    case("__getitem__", PICTURE, 1),
    case("__getitem__", PICTURE, (..., slice(None, None, 2), None)),
    case("__getitem__", X, FLAGS),
    case("__getitem__", PICTURE, (torch.tensor([1, 0, 1]), slice(1, 3))),
    case("__getitem__", PICTURE, (..., torch.tensor([5, 0]))),
    case("concat concatenate", [X, T((2, 2)), X], 1),
    case("cat", [X, T((2, 2))], 1, keys="tensors dim"),
    case("vstack hstack stack", [X, X]),
    case("stack", [X, X], dim=-1),
]
CONSTANTS = [
    case("eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ equal allclose", X, X),
    case("eq gt __lt__ __ge__", X, 0.5),
    case("isnan isinf isfinite isneginf isposinf argmax argmin argsort argwhere nonzero", X),
    case("isclose is_same_size result_type", X, X),
    case("count_nonzero sign sgn floor ceil round trunc fix logical_not any all", X),
    case("long int short char byte bool", T((2, 3), 0, 3)),
    case("logical_and logical_or", X, X),
    case("__bool__ is_nonzero", T((1,))),
    case("zeros_like ones_like detach", X),
    case("full_like", X, 2.0),
    case("new_zeros new_ones", X, (2, 2)),
    case("new_full", X, (2, 2), 3.0),
    case("new_tensor", X, [1.0, 2.0]),
]
CASES = [
    *ARITHMETIC,
    *ACTIVATIONS,
    *LAYERS,
    *NORMS_AND_POOLS,
    *ATTENTION,
    *SHAPES,
    *CONSTANTS,
]
RANDOM = "empty_like rand_like randn_like new_empty"  # constants whose values are unknown


def made(place: T, dtype: torch.dtype, rows: bool) -> Tensor:
    """A random tensor, laid out row by row or column by column."""
    x = torch.empty(place.shape, dtype=dtype).uniform_(place.low, place.high)
    return x if rows or x.dim() < 2 else x.transpose(-1, -2).contiguous().transpose(-1, -2)


def direction(place: T, dtype: torch.dtype, layout: str) -> Tensor:
    """A random tangent, laid out as a primal may be, or one row for all."""
    if layout == "one row" and len(place.shape) > 1:
        return torch.randn(place.shape[-1], dtype=dtype).expand(place.shape)
    return made(T(place.shape), dtype, layout == "rows")


def filled(args: Any, data: st.DataObject, dtype: torch.dtype) -> Any:
    """The arguments with tensors for the placeholders, at least one of them a dual."""
    leaves, form = tree_flatten(args)
    keys = [leaf if leaf.once else i for i, leaf in enumerate(leaves) if isinstance(leaf, T)]
    places = [leaf for leaf in leaves if isinstance(leaf, T)]
    candidates = list(dict.fromkeys(k for k, p in zip(keys, places, strict=True) if not p.plain))
    duals = data.draw(st.sets(st.sampled_from(candidates), min_size=1), label="duals")
    rows = data.draw(st.booleans(), label="rows")
    layout = data.draw(st.sampled_from(["rows", "columns", "one row"]), label="tangent")
    torch.manual_seed(data.draw(st.integers(0, 99), label="seed"))
    tensors: dict[Any, Any] = {}
    for key, place in zip(keys, places, strict=True):
        value: Any = made(place, dtype, rows or place.rows)
        if key in duals:
            value = Pair(value, direction(place, dtype, layout))
        tensors.setdefault(key, value)
    values = iter(tensors[key] for key in keys)
    for i, leaf in enumerate(leaves):
        leaves[i] = next(values) if isinstance(leaf, T) else _as(leaf, dtype)
    return tree_unflatten(leaves, form)


def _as(leaf: Any, dtype: torch.dtype) -> Any:
    return leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def in_some_form(
    case: Case, func: Any, args: list[Any], data: st.DataObject
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments, with the last of the named ones passed by keyword."""
    lowest = 1 if is_method(func) else 0
    split = data.draw(st.integers(lowest, len(case.keys)), label="split") if case.keys else None
    if split is None or len(case.keys) < len(args):
        return args, {}
    return args[:split], dict(zip(case.keys[split:], args[split:], strict=False))
