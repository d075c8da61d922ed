"""Weights whose tangent differs from row to row of one batch: the models of several users.

The rows of user u use W0 + tau_u with tau_u = sum_t c_{u,t} tau_t, mixed inside each layer:

    y = W0 x + b0,    y' = W0 x' + tau_{W,u} x + tau_{b,u}

There are two orders of computing it, equal but for rounding. Products first, sum_t c_t (tau_t x),
takes 2 + k matrix products per row with k vectors in its recipe. Mixed first, (sum_t c_t tau_t) x,
takes 3 products per row, as for one model alone, and writes the block once for every user, which
pays where a user has many rows and tokens. The terms of theta0 follow the package's other rules.

Rows are ordered by user along the outermost axis of every tensor that meets a parameter (tokens may
be flattened into it: b1 b1 b2 b2). A model with another layout is refused or gives other numbers:
`tacl.models.mixed` compares results before it relies on this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacl.dual.tensor import _FORM, RULES, DualTensor, dual, name_of, primal, register

MIXED_BYTES = 4 << 20  # most bytes of one block, mixed for some users at a time
WORTH_MIXING = 64  # products that a user's rows must save per entry of a block to pay for mixing it

Product = Callable[[Tensor, Tensor], Tensor]  # of inputs and a block
Mix = Sequence[Sequence[float]]  # c_UT


class PerUserWeight(DualTensor):
    """theta0 of one block, tau_t of the block for every t, c_UT, and the row count of each user.

    Coefficients are plain numbers, so that the order of computing and the rows of each vector are
    chosen without waiting for the blocks' device.
    """

    @staticmethod
    def __new__(cls, theta0: Tensor, *others: Any) -> PerUserWeight:
        return DualTensor.__new__(cls, theta0, theta0)  # pyright: ignore[reportReturnType]

    def __init__(
        self, theta0: Tensor, parts_T: Sequence[Tensor], mix_UT: Mix, rows_U: Sequence[int]
    ) -> None:
        self.primal, self.shared = theta0, True
        self.parts_T, self.mix_UT, self.rows_U = parts_T, mix_UT, rows_U

    @property
    def tangent(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise NotImplementedError("a mixed weight has a tangent for every user")

    @property
    def batch(self) -> int:
        return sum(self.rows_U)

    def mixed(self) -> Tensor:
        """tau_u of every user, [U, *shape]."""
        return torch.cat(list(self.chunks()))

    def chunks(self) -> Iterator[Tensor]:
        """Yields the rows of `mixed`, for as many users at a time as fit into MIXED_BYTES."""
        theta0 = self.primal
        flat_TP = torch.stack([part.reshape(-1) for part in self.parts_T])
        at_once = max(1, MIXED_BYTES // (theta0.numel() * theta0.element_size()))
        for mix_uT in torch.tensor(self.mix_UT, dtype=theta0.dtype).split(at_once):
            yield (_beside_it(mix_uT, theta0) @ flat_TP).view(len(mix_uT), *theta0.shape)

    def by_row(self) -> Tensor:
        """tau of every row, [B, *shape]: for small blocks."""
        rows_U = _beside_it(torch.tensor(self.rows_U), self.primal)
        return self.mixed().repeat_interleave(rows_U, 0, output_size=self.batch)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Iterable[type], args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _FORM:
            return super().__torch_function__(func, types, args, kwargs)
        answer = _ANSWERS.get(func)
        if answer is None:
            raise NotImplementedError(f"{name_of(func)} of a weight that differs from row to row")
        return answer(func, *args, **kwargs)


def _beside_it(x: Tensor, like: Tensor) -> Tensor:
    """Moves x to the device of `like`, without waiting for an accelerator."""
    return x.to(like.device, non_blocking=True)


_ANSWERS: dict[Any, Callable[..., Any]] = {}


_answers = partial(register, table=_ANSWERS)


# -- matrix products: W0 x' + tau_u x


@_answers("linear conv1d conv2d conv3d")
def _layer(func: Any, input: Any, weight: Any, bias: Any = None, *args: Any, **named: Any) -> Any:
    _require_rows(input)
    result = func(input, primal(weight), primal(bias), *args, **named)

    def product(x: Tensor, tau: Tensor) -> Tensor:
        return func(x, tau, None, *args, **named)

    channels = -1 if func is F.linear else 1
    return _plus_bias(_plus_products(result, product, input, weight), bias, channels)


@_answers("matmul __matmul__")
def _matmul(func: Any, input: Any, weight: Any) -> Any:
    _require_rows(input)
    return _plus_products(func(input, primal(weight)), func, input, weight)


def _require_rows(input: Any) -> None:
    if isinstance(input, PerUserWeight):
        raise NotImplementedError("a weight that differs from row to row, as the input of a layer")


@_answers("addmm")
def _addmm(func: Any, bias: Any, input: Any, weight: Any) -> Any:
    return torch.matmul(input, weight) + bias


def _plus_products(result: Any, product: Product, input: Any, weight: Any) -> Any:
    if not isinstance(weight, PerUserWeight):
        return result
    result, sums_BN = _opened(result, weight)
    rows_BN = _split(primal(input), weight)
    positions = sums_BN.numel() / len(weight.rows_U) / weight.shape[0]  # of one user
    terms = sum(c != 0 for mix_T in weight.mix_UT for c in mix_T)
    saved = positions * (terms / len(weight.rows_U) - 1)
    order = _mixed_first if saved > WORTH_MIXING else _products_first
    order(product, rows_BN, sums_BN, weight)
    return result


def _mixed_first(product: Product, rows_BN: Tensor, sums_BN: Tensor, weight: PerUserWeight) -> None:
    users, start = iter(weight.rows_U), 0
    for taus_U in weight.chunks():
        for tau, rows in zip(taus_U, users, strict=False):
            own = slice(start, start + rows)
            change = product(rows_BN[own].flatten(0, 1), tau)
            sums_BN[own].add_(change.view(sums_BN[own].shape))
            start += rows


def _products_first(
    product: Product, rows_BN: Tensor, sums_BN: Tensor, weight: PerUserWeight
) -> None:
    """Adds each vector's product with all the rows that have it in their recipe."""
    pairs = zip(weight.mix_UT, weight.rows_U, strict=True)
    mix_BT = [mix_T for mix_T, rows in pairs for _ in range(rows)]
    for t, tau in enumerate(weight.parts_T):
        chosen = [(row, mix_T[t]) for row, mix_T in enumerate(mix_BT) if mix_T[t]]
        rows_M = _beside_it(torch.tensor([row for row, _ in chosen], dtype=torch.long), sums_BN)
        mix_M = _beside_it(torch.tensor([c for _, c in chosen], dtype=sums_BN.dtype), sums_BN)
        mix_M = mix_M.view(-1, *[1] * (sums_BN.dim() - 1))
        change = product(rows_BN[rows_M].flatten(0, 1), tau).view(-1, *sums_BN.shape[1:])
        if len(rows_M) == len(sums_BN):
            sums_BN.addcmul_(mix_M, change)
        elif len(rows_M):
            sums_BN.index_add_(0, rows_M, change.mul_(mix_M))


# -- normalisations: gamma0 xhat' + gamma_u xhat + beta_u


@_answers("layer_norm group_norm")
def _norm(
    func: Any, input: Any, form: Any, weight: Any = None, bias: Any = None, *args: Any, **named: Any
) -> Any:
    _require_rows(input)
    result = func(input, form, primal(weight), primal(bias), *args, **named)
    unit = func(primal(input), form, None, None, *args, **named)
    channels = -1 if func is F.layer_norm else 1
    return _plus_bias(_plus_scaled(result, unit, weight, channels), bias, channels)


@_answers("rms_norm")
def _rms_norm(func: Any, input: Any, form: Any, weight: Any, *args: Any, **named: Any) -> Any:
    _require_rows(input)
    result = func(input, form, primal(weight), *args, **named)
    return _plus_scaled(result, func(primal(input), form, None, *args, **named), weight, -1)


@_answers("batch_norm")
def _batch_norm(
    func: Any, input: Any, mean: Any, var: Any, weight: Any, bias: Any, *args: Any, **named: Any
) -> Any:
    if func is not F.batch_norm:  # there weight and bias come before the statistics
        raise NotImplementedError("torch.batch_norm of a weight that differs from row to row")
    _require_rows(input)
    result = func(input, mean, var, primal(weight), primal(bias), *args, **named)
    unit = func(primal(input), mean, var, None, None, *args, **named)
    return _plus_bias(_plus_scaled(result, unit, weight, 1), bias, 1)


def _plus_scaled(result: Any, unit: Tensor, weight: Any, channels: int) -> Any:
    if not isinstance(weight, PerUserWeight):
        return result
    result, sums_BN = _opened(result, weight)
    sums_BN.addcmul_(_split(unit, weight), _beside(weight.by_row(), sums_BN, channels))
    return result


def _plus_bias(result: Any, bias: Any, channels: int) -> Any:
    if not isinstance(bias, PerUserWeight):
        return result
    result, sums_BN = _opened(result, bias)
    sums_BN.add_(_beside(bias.by_row(), sums_BN, channels))
    return result


def _beside(rows_B: Tensor, sums_BN: Tensor, channels: int) -> Tensor:
    """Rows [B, *shape], shaped to broadcast along [B, N, ...]; channels are last (-1) or first."""
    lacking = [1] * (sums_BN.dim() - rows_B.dim())
    before, after = (lacking, []) if channels == -1 else (lacking[:1], lacking[1:])
    return rows_B.view(len(rows_B), *before, *rows_B.shape[1:], *after)


def _opened(result: Any, weight: PerUserWeight) -> tuple[DualTensor, Tensor]:
    """A result that nothing else holds, as a dual, and its tangent as [B, N, ...] to add to."""
    if not isinstance(result, DualTensor):
        result = dual(result, torch.zeros_like(result))
    return result, _split(result.tangent, weight)  # pyright: ignore[reportReturnType]


def _split(x: Tensor, weight: PerUserWeight) -> Tensor:
    """[B, N, ...] of a tensor whose outermost axis is B rows of N each."""
    if x.dim() == 0 or x.shape[0] % weight.batch:
        raise NotImplementedError(f"{weight.batch} rows in a tensor of shape {list(x.shape)}")
    return x.unflatten(0, (weight.batch, -1))


# -- other uses of weights with a batch: they become a dual with a row for each row of the batch


@_answers("add __add__ __radd__ mul __mul__ __rmul__ sub")
def _elementwise(func: Any, input: Any, other: Any, **named: Any) -> Any:
    if isinstance(input, PerUserWeight):
        return func(_spread(input, other), other, **named)
    return func(input, _spread(other, input), **named)


@_answers("expand")
def _expand(func: Any, weight: PerUserWeight, *sizes: Any, **named: Any) -> Any:
    """Gives a class token a row for each row of the batch; otherwise reshapes."""
    target = func(weight.primal, *sizes, **named)
    is_token = target.dim() == weight.dim() and weight.shape[0] == 1 != target.shape[0]
    return _spread(weight, target) if is_token else _reshape(func, weight, *sizes, **named)


def _spread(weight: PerUserWeight, like: Any) -> DualTensor:
    """A weight that broadcasts along the rows of `like`, as [rows, ...] with its number of axes."""
    if isinstance(like, PerUserWeight) or not isinstance(like, Tensor):
        raise NotImplementedError("arithmetic with weights that differ from row to row")
    outer = weight.dim() == like.dim()
    fits = weight.dim() < like.dim() or (outer and weight.shape[0] == 1)
    if like.shape[0] % weight.batch or not fits:
        raise NotImplementedError(f"a weight {list(weight.shape)} beside {list(like.shape)}")
    shape = weight.shape[1:] if outer else weight.shape
    ones = [1] * (like.dim() - 1 - len(shape))
    taus_B = weight.by_row().view(weight.batch, *ones, *shape)
    taus_B = taus_B.repeat_interleave(like.shape[0] // weight.batch, 0)
    return DualTensor(weight.primal.reshape(1, *ones, *shape).expand(taus_B.shape), taus_B)


# -- reshapes of theta0 and of every tau alike


@_answers(
    "view reshape permute transpose t flatten unflatten unsqueeze squeeze chunk split unbind "
    "narrow select __getitem__ to float double contiguous clone"
)
def _reshape(func: Any, weight: PerUserWeight, *args: Any, **named: Any) -> Any:
    value, *parts = (func(tensor, *args, **named) for tensor in (weight.primal, *weight.parts_T))
    if isinstance(value, Tensor):
        return PerUserWeight(value, parts, weight.mix_UT, weight.rows_U)
    columns = zip(value, *parts, strict=True)
    return tuple(PerUserWeight(v, ps, weight.mix_UT, weight.rows_U) for v, *ps in columns)


for _property in ("T", "mT"):
    _ANSWERS[getattr(torch.Tensor, _property).__get__] = _reshape


@_answers("cat concat")
def _joined(func: Any, weights: Sequence[Any], dim: int = 0) -> PerUserWeight:
    """Joins vectors, such as attention's three biases, each mixed by its own coefficients first."""
    if not all(isinstance(weight, PerUserWeight) and weight.dim() == 1 for weight in weights):
        raise NotImplementedError("cat of weights that differ from row to row")
    taus_U = list(torch.cat([weight.mixed() for weight in weights], 1))
    theta0 = func([weight.primal for weight in weights], dim)
    own = [[float(t == u) for t in range(len(taus_U))] for u in range(len(taus_U))]
    return PerUserWeight(theta0, taus_U, own, weights[0].rows_U)


@_answers("multi_head_attention_forward")
def _composite(func: Any, *args: Any, **named: Any) -> Any:
    """Uses the function's rule, which is written in functions that have an answer here."""
    return RULES[func](func, *args, **named)
