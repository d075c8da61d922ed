"""The reference of the dual tests: torch.func.jvp for tangents, reverse mode for gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten, tree_unflatten

from tacl.dual import DualTensor, primal, tangent
from tacl.dual.tensor import same_memory

Call = Callable[[Sequence[Any]], list[Any]]  # values of the duals -> flat outputs


@dataclass(frozen=True)
class Pair:
    """An argument that becomes a dual."""

    primal: Tensor
    tangent: Tensor


def check(
    func: Callable[..., Any],
    args: Any,
    kwargs: dict[str, Any] | None = None,
    *,
    tolerance: float,
    reference: torch.dtype | None = None,
) -> None:
    """func on duals gives func, J t as `torch.func.jvp` does, and J^T g as reverse mode does.

    `reference` computes the expected values in another precision.
    """
    leaves, form = tree_flatten((args, kwargs or {}))
    pairs = list({id(leaf): leaf for leaf in leaves if isinstance(leaf, Pair)}.values())

    def call(values: Sequence[Any], dtype: torch.dtype | None = None) -> list[Any]:
        value_of = {id(pair): value for pair, value in zip(pairs, values, strict=True)}
        filled = [value_of.get(id(leaf), _cast(leaf, dtype)) for leaf in leaves]
        inner_args, inner_kwargs = tree_unflatten(filled, form)
        outputs = func(*inner_args, **inner_kwargs)
        return tree_flatten(outputs, is_leaf=lambda x: isinstance(x, DualTensor))[0]

    tangents = [pair.tangent.clone().requires_grad_() for pair in pairs]
    duals = [DualTensor(p.primal, t, shared=False) for p, t in zip(pairs, tangents, strict=True)]
    got = call(duals)
    _check_aliases(got, duals)
    exact = [Pair(_cast(p.primal, reference), _cast(p.tangent, reference)) for p in pairs]
    expected, expected_tangents = forward(lambda v: call(v, reference), exact)
    _compare(got, expected, expected_tangents, tolerance, reference is None)
    if len(expected_tangents) > 0:
        gradients = [torch.randn_like(t) for t in expected_tangents]
        wanted = reverse(lambda v: call(v, reference), exact, gradients)
        for a, b in zip(_gradient(got, tangents, gradients), wanted, strict=True):
            close(a, b, tolerance, reference is None)


def forward(call: Call, pairs: Sequence[Pair]) -> tuple[list[Any], list[Tensor]]:
    """All outputs, and the tangents of those that are floating point, by torch.func.jvp."""
    plain: list[Any] = []

    def smooth(*values: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        outputs = call(values)
        plain[:] = [o for o in outputs if not isinstance(o, Tensor)]
        floating = (o for o in outputs if is_floating(o))  # jvp requires at least one output
        rest = (o for o in outputs if isinstance(o, Tensor) and not is_floating(o))
        return (values[0], *floating), tuple(rest)

    values, tangents = tuple(p.primal for p in pairs), tuple(p.tangent for p in pairs)
    with sdpa_kernel(SDPBackend.MATH):
        out, out_tangents, rest = jvp(smooth, values, tangents, has_aux=True)  # pyright: ignore[reportAssignmentType]
    return [*out[1:], *rest, *plain], list(out_tangents[1:])


def reverse(call: Call, pairs: Sequence[Pair], gradients: Sequence[Tensor]) -> list[Tensor]:
    """J^T g for each of the pairs, by autograd."""
    values = [p.primal.detach().clone().requires_grad_() for p in pairs]
    with sdpa_kernel(SDPBackend.MATH):
        outputs = [o for o in call([v.view_as(v) for v in values]) if is_floating(o)]
    return _pulled_back(outputs, values, gradients)


def is_floating(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def close(got: Tensor, expected: Tensor, tolerance: float, same_type: bool = True) -> None:
    """Equal to `tolerance`, relative to the largest entry."""
    finite = expected.detach().double().nan_to_num(0, 0, 0).abs()
    scale = 1.0 if finite.numel() == 0 else max(1.0, finite.max().item())
    assert_close(
        got.detach(),
        expected.detach(),
        rtol=tolerance,
        atol=tolerance * scale,
        equal_nan=True,
        check_dtype=same_type,
    )


def _compare(
    got: list[Any], expected: list[Any], tangents: list[Tensor], tolerance: float, same_type: bool
) -> None:
    floating = [o for o in got if is_floating(o)]
    rest = [o for o in got if isinstance(o, Tensor) and not is_floating(o)]
    plain = [o for o in got if not isinstance(o, Tensor)]
    assert len(floating) == len(tangents)
    assert plain == expected[len(floating) + len(rest) :]
    for a, b in zip(rest, expected[len(floating) :], strict=False):
        assert_close(a, b)
    for a, b, t in zip(floating, expected, tangents, strict=False):
        assert (a.shape, a.dtype) == (primal(a).shape, primal(a).dtype)
        close(primal(a), b, tolerance, same_type)
        derivative = tangent(a)
        close(torch.zeros_like(a) if derivative is None else derivative, t, tolerance, same_type)


def _check_aliases(outputs: list[Any], duals: list[DualTensor]) -> None:
    """An output that is a view of an argument's memory must be marked as sharing it."""
    for output in outputs:
        for source in duals:
            if not is_floating(output) or output is source or source.numel() == 0:
                continue
            if same_memory(primal(output), source.primal):
                assert source.shared
                assert getattr(output, "shared", True)


def _gradient(
    outputs: list[Any], tangents: list[Tensor], gradients: Sequence[Tensor]
) -> list[Tensor]:
    derivatives = [tangent(o) for o in outputs if is_floating(o)]
    present = [
        (d, g.to(d.dtype)) for d, g in zip(derivatives, gradients, strict=True) if d is not None
    ]
    return _pulled_back([d for d, _ in present], tangents, [g for _, g in present])


def _pulled_back(
    outputs: Sequence[Tensor], inputs: list[Tensor], gradients: Sequence[Tensor]
) -> list[Tensor]:
    attached = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
    if not attached:
        return [torch.zeros_like(x) for x in inputs]
    results = torch.autograd.grad(
        [o for o, _ in attached], inputs, [g for _, g in attached], allow_unused=True
    )
    return [torch.zeros_like(x) if r is None else r for r, x in zip(results, inputs, strict=True)]


def _cast(x: Any, dtype: torch.dtype | None) -> Any:
    return x.to(dtype) if is_floating(x) and dtype is not None else x
