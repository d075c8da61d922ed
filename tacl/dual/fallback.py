"""Functions without a rule: `torch.func.jvp` on that one function, counted by name."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
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
# On a CPU the kernel of oneDNN is used, which has no forward derivative; torch has another.
_ONE_DNN = {"lstm"}
_SWITCHING = Lock()


def by_jvp(func: Any, args: tuple, kwargs: dict) -> Any:
    """f(duals) by forward-mode differentiation of `func` alone with respect to its duals.

    Raises NotImplementedError for functions that leave torch, write into an argument, or have no
    forward derivative.
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
    with _forward_mode(name), sdpa_kernel(SDPBackend.MATH):
        out, tangents, rest = torch.func.jvp(smooth_outputs, values, derivatives, has_aux=True)  # pyright: ignore[reportAssignmentType]
    if len(out) == 1 and not rest:
        raise NotImplementedError(f"{name} would lose the derivative of a DualTensor")
    duals = iter(_wrapped(out[1:], tangents[1:], leaves))
    constants = iter(rest)
    result = [
        next(duals) if _is_smooth(o) else next(constants) if _is_constant(o) else o for o in outputs
    ]
    return tree_unflatten(result, shape)


@contextmanager
def _forward_mode(name: str) -> Iterator[None]:
    """A kernel of this function that has a forward derivative, where torch has one. Raises
    NotImplementedError, which names the function, where it has none."""
    try:
        if name not in _ONE_DNN:
            yield
            return
        with _SWITCHING:  # the switch is of the whole process
            before = torch._C._get_mkldnn_enabled()
            torch._C._set_mkldnn_enabled(False)
            try:
                yield
            finally:
                torch._C._set_mkldnn_enabled(before)
    except RuntimeError as error:  # NotImplementedError is one
        if "forward AD" not in str(error):
            raise
        raise NotImplementedError(
            f"{name} has no forward derivative, so an encoder that uses it cannot be linearized; "
            "train blocks after it alone, or write it with other functions"
        ) from error


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
