"""Functions without a rule: `torch.func.jvp` on that one function, counted by name."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

from tacl.dual.tensor import DualTensor, primal

fallbacks: Counter[str] = Counter()  # name of the function -> how often it had no rule

# These hand the value to something that knows no derivative: a silent zero would be wrong.
_LEAVES_TORCH = {"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__"}


def by_jvp(func: Any, args: tuple, kwargs: dict) -> Any:
    """f(duals) by forward-mode differentiation of `func` alone, as a function of its duals.

    Raises NotImplementedError for functions that leave torch.
    """
    name = getattr(func, "__name__", str(func))
    if name in _LEAVES_TORCH or name == "__get__":
        owner = getattr(getattr(func, "__self__", None), "__name__", name)
        raise NotImplementedError(f"{owner} would lose the derivative of a DualTensor")
    fallbacks[name] += 1
    leaves, form = tree_flatten((args, kwargs), is_leaf=lambda x: isinstance(x, DualTensor))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, DualTensor)]
    outputs: list[Any] = []  # the function's whole answer; what is not differentiable stays there
    shape: Any = None

    def floating_outputs(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nonlocal outputs, shape
        filled = list(leaves)
        for place, value in zip(places, values, strict=True):
            filled[place] = value
        inner_args, inner_kwargs = tree_unflatten(filled, form)
        outputs, shape = tree_flatten(func(*inner_args, **inner_kwargs))
        return tuple(out for out in outputs if _differentiable(out))

    values = tuple(primal(leaves[i]) for i in places)
    derivatives = tuple(leaves[i].tangent for i in places)
    # The fused attention kernels have no forward-mode derivative.
    with sdpa_kernel(SDPBackend.MATH):
        out, out_tangents = torch.func.jvp(floating_outputs, values, derivatives)
    duals = iter(DualTensor(v.detach(), t, shared=True) for v, t in zip(out, out_tangents))
    return tree_unflatten([next(duals) if _differentiable(o) else o for o in outputs], shape)


def _differentiable(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()
