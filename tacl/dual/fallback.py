"""Functions without a rule: `torch.func.jvp` on that one function, counted by name."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

from tacl.dual.tensor import DualTensor, name_of, primal, same_memory

fallbacks: Counter[str] = Counter()  # name of the function -> how often it had no rule

# These take the value out of torch: losing the derivative silently would be wrong.
_LEAVES_TORCH = {"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__"}
# This reads memory, whose order may differ in a tangent.
_READS_MEMORY = {"as_strided"}


def by_jvp(func: Any, args: tuple, kwargs: dict) -> Any:
    """f(duals) by forward-mode differentiation of `func` alone with respect to its duals.

    Raises NotImplementedError for functions that leave torch or write into an argument.
    """
    name = name_of(func)
    if name in _LEAVES_TORCH | _READS_MEMORY or getattr(func, "__name__", "") == "__get__":
        raise NotImplementedError(f"{name} would lose the derivative of a DualTensor")
    if _asks_for_in_place(func, args, kwargs):
        raise NotImplementedError(f"{name}: no in-place rule; use the out-of-place function")
    fallbacks[name] += 1
    leaves, form = tree_flatten((args, kwargs), is_leaf=lambda x: isinstance(x, DualTensor))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, DualTensor)]
    outputs: list[Any] = []
    shape: Any = None

    def smooth_outputs(*values: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """(values[0], as jvp needs one at least, and the outputs with a derivative), (others)."""
        nonlocal outputs, shape
        filled = list(leaves)
        for place, value in zip(places, values, strict=True):
            filled[place] = value
        inner_args, inner_kwargs = tree_unflatten(filled, form)
        outputs, shape = tree_flatten(func(*inner_args, **inner_kwargs))
        smooth = (out for out in outputs if _is_smooth(out))
        return (values[0], *smooth), tuple(out for out in outputs if _is_constant(out))

    values = tuple(primal(leaves[i]) for i in places)
    derivatives = tuple(leaves[i].tangent for i in places)
    # The fused attention kernels have no forward-mode derivative.
    with sdpa_kernel(SDPBackend.MATH):
        out, tangents, rest = torch.func.jvp(smooth_outputs, values, derivatives, has_aux=True)  # pyright: ignore[reportAssignmentType]
    if len(out) == 1 and not rest:
        raise NotImplementedError(f"{name} would lose the derivative of a DualTensor")
    duals = iter(_wrapped(out[1:], tangents[1:], leaves))
    constants = iter(rest)
    result = [
        next(duals) if _is_smooth(o) else next(constants) if _is_constant(o) else o for o in outputs
    ]
    return tree_unflatten(result, shape)


def _wrapped(values: Any, derivatives: Any, leaves: list[Any]) -> list[DualTensor]:
    """Duals, marked as shared if they may be views of an argument's memory or of each other's."""
    sources = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    duals = []
    for value, derivative in zip(values, derivatives, strict=True):
        seen = [source for source in sources if same_memory(value, primal(source))]
        for source in seen:
            if isinstance(source, DualTensor):
                source.shared = True
        duals.append(DualTensor(value, derivative, shared=bool(seen) or len(values) > 1))
    return duals


def _asks_for_in_place(func: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a function written in Python, such as F.elu, was called with inplace=True."""
    if not inspect.isfunction(func):
        return False
    # Operators such as x ** y wrap a builtin, which has no signature; their wrapper has one.
    signature = inspect.signature(func, follow_wrapped=False)
    return bool(signature.bind(*args, **kwargs).arguments.get("inplace"))


def _is_smooth(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def _is_constant(x: Any) -> bool:
    return isinstance(x, Tensor) and not _is_smooth(x)
