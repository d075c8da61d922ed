"""Functions that write into their arguments are right or refused, never wrong in silence.

Random little programs over named values, with views, copies and in-place functions, are executed
on duals and by torch.func.jvp. In the end all the values that the program has ever made, looked at
again, must be the same, or a step must have raised NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacl.dual import DualTensor, primal, tangent
from tests.support.budget import budget
from tests.support.forward_mode import Pair, close, forward

Step = Callable[[Tensor, Tensor], Any]  # (one value, another) -> a new value, or None

NEW_MEMORY: dict[str, Step] = {
    "a + b": lambda a, b: a + b,
    "a * b": lambda a, b: a * b,
    "relu(a)": lambda a, b: F.relu(a),
    "tanh(a)": lambda a, b: a.tanh(),
    "elu(a)": lambda a, b: F.elu(a),
    "a.clone()": lambda a, b: a.clone(),
    "a[[1, 0]]": lambda a, b: a[[1, 0]],
    "cat": lambda a, b: torch.cat([a, b])[:2],
    "zeros_like(a)": lambda a, b: torch.zeros_like(a),
    "a.to(copy)": lambda a, b: a.to(torch.float64, copy=True),
    "a.amax(0)": lambda a, b: a.amax(0),
}
SAME_MEMORY: dict[str, Step] = {
    "a.t()": lambda a, b: a.t(),
    "a.T": lambda a, b: a.T,
    "a.mT": lambda a, b: a.mT,
    "a[0]": lambda a, b: a[0],
    "a[:, 1:]": lambda a, b: a[:, 1:],
    "a.view": lambda a, b: a.view(-1).view(2, 2),
    "a.reshape": lambda a, b: a.reshape(2, 2),
    "a.view_as(b)": lambda a, b: a.view_as(b),
    "a.expand": lambda a, b: a.expand(2, 2),
    "a.unsqueeze": lambda a, b: a.unsqueeze(0),
    "a.chunk": lambda a, b: a.chunk(2)[1],
    "a.unbind": lambda a, b: a.unbind()[1],
    "a.detach()": lambda a, b: a.detach(),
    "a.contiguous()": lambda a, b: a.contiguous(),
    "a.to(dtype)": lambda a, b: a.to(torch.float64),
    "a.double() again": lambda a, b: a.double(),
    "a.type_as(b)": lambda a, b: a.type_as(b),
    "+a": lambda a, b: +a,
    "dropout(a)": lambda a, b: F.dropout(a, 0.5, training=False),
    "a.swapaxes": lambda a, b: a.swapaxes(0, 1),
    "broadcast_tensors": lambda a, b: torch.broadcast_tensors(a, b)[0],
    "as_strided": lambda a, b: torch.as_strided(a, (2, 2), (1, 2)),
    "diagonal": lambda a, b: a.diagonal(),
    "squeeze": lambda a, b: a.squeeze(),
    "real": lambda a, b: torch.real(a),
    "atleast_2d": lambda a, b: torch.atleast_2d(a),
    "pad": lambda a, b: F.pad(a, (0, 0)),
    "identity": lambda a, b: nn.Identity()(a),
}


def iadd(a: Tensor, b: Tensor) -> Tensor:
    a += b
    return a


def imul(a: Tensor, b: Tensor) -> Tensor:
    a *= 2.0
    return a


def ifloordiv(a: Tensor, b: Tensor) -> Tensor:
    a //= 2.0
    return a


def set_row(a: Tensor, b: Tensor) -> None:
    a[0] = b[0]


def set_masked(a: Tensor, b: Tensor) -> None:
    a[a > 0] = 0.5


def set_data(a: Tensor, b: Tensor) -> None:
    a.data = b


IN_PLACE: dict[str, Step] = {
    "a += b": iadd,
    "a *= 2": imul,
    "a //= 2": ifloordiv,
    "a[0] = b[0]": set_row,
    "a[a > 0] = 0.5": set_masked,
    "a.data = b": set_data,
    "a.add_(b)": lambda a, b: a.add_(b, alpha=0.5),
    "a.sub_(b)": lambda a, b: a.sub_(b),
    "a.mul_(b)": lambda a, b: a.mul_(b),
    "a.div_(3)": lambda a, b: a.div_(3.0),
    "a.copy_(b)": lambda a, b: a.copy_(b),
    "a.zero_()": lambda a, b: a.zero_(),
    "a.fill_(2)": lambda a, b: a.fill_(2.0),
    "a.round_()": lambda a, b: a.round_(),
    "a.tanh_()": lambda a, b: a.tanh_(),
    "a.clamp_": lambda a, b: a.clamp_(min=-0.5, max=0.5),
    "a.masked_fill_": lambda a, b: a.masked_fill_(b > 0, 0.25),
    "a.t_()": lambda a, b: a.t_(),
    "a.cumsum_": lambda a, b: a.cumsum_(0),
    "a.detach_()": lambda a, b: a.detach_(),
    "a.addmm_": lambda a, b: a.addmm_(b, b),
    "a.index_add_": lambda a, b: a.index_add_(0, torch.tensor([1, 0]), b),
    "relu_(a)": lambda a, b: torch.relu_(a),
    "relu(a, inplace)": lambda a, b: F.relu(a, inplace=True),
    "relu(a, True)": lambda a, b: F.relu(a, True),
    "relu6(a, inplace)": lambda a, b: F.relu6(a, inplace=True),
    "hardtanh(a, inplace)": lambda a, b: F.hardtanh(a, -1.0, 0.5, True),
    "ReLU(inplace)": lambda a, b: nn.ReLU(inplace=True)(a),
    "SiLU(inplace)": lambda a, b: nn.SiLU(inplace=True)(a),
    "ELU(inplace)": lambda a, b: nn.ELU(inplace=True)(a),
    "threshold(a, inplace)": lambda a, b: F.threshold(a, 0.1, 0.0, True),
    "dropout(a, inplace)": lambda a, b: F.dropout(a, 0.5, training=False, inplace=True),
    "add(out=a)": lambda a, b: torch.add(b, 1.0, out=a),
    "normalize(out=a)": lambda a, b: F.normalize(b, 2.0, 0, 1e-12, a),
    "_foreach_mul_": lambda a, b: torch._foreach_mul_([a, b], 2.0),
}
STEPS = NEW_MEMORY | SAME_MEMORY | IN_PLACE
Program = list[tuple[str, int, int]]  # step, which value is a, which is b

# In-place steps are half of a program, whatever the length of the lists above.
names = st.one_of(*[st.sampled_from(sorted(group)) for group in (NEW_MEMORY, SAME_MEMORY)])
names = st.one_of(names, st.sampled_from(sorted(IN_PLACE)))
programs = st.lists(st.tuples(names, st.integers(0, 7), st.integers(0, 7)), min_size=2, max_size=6)


def run(program: Program, values: list[Any]) -> list[Any]:
    """All the values in the end: the given ones and what each step made."""
    for name, i, j in program:
        made = STEPS[name](values[i % len(values)], values[j % len(values)])
        if isinstance(made, Tensor):
            values.append(made)
    return values


def inputs() -> list[Pair]:
    """Two values with derivatives and one without."""
    generator = torch.Generator().manual_seed(0)

    def draw() -> Tensor:
        return torch.randn(2, 2, dtype=torch.float64, generator=generator)

    return [Pair(draw(), draw()), Pair(draw(), draw()), Pair(draw(), torch.zeros(2, 2).double())]


def by_duals(program: Program) -> tuple[list[Any], list[Tensor]]:
    x, y, p = inputs()
    tangents = [x.tangent.requires_grad_(), y.tangent.requires_grad_()]
    duals = [
        DualTensor(x.primal, x.tangent, shared=False),
        DualTensor(y.primal, y.tangent, shared=False),
    ]
    return run(program, [*duals, p.primal]), tangents


def by_jvp(program: Program) -> tuple[list[Tensor], list[Tensor]]:
    copies = [Pair(p.primal.clone(), p.tangent.clone()) for p in inputs()]
    return forward(lambda values: run(program, list(values)), copies)


def check_program(program: Program) -> None:
    """Equal or NotImplementedError; programs that torch itself refuses tell nothing."""
    try:
        expected, expected_tangents = by_jvp(program)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return
    try:
        values, tangents = by_duals(program)
    except NotImplementedError:
        return
    derivatives = []
    for value, e, t in zip(values, expected, expected_tangents, strict=True):
        derivative = tangent(value)
        derivatives.append(torch.zeros_like(primal(value)) if derivative is None else derivative)
        close(primal(value), e, 1e-12)
        close(derivatives[-1], t, 1e-12)
    _check_gradient(derivatives, tangents)


def _check_gradient(derivatives: list[Tensor], tangents: list[Tensor]) -> None:
    """<J^T g, t> = <g, J t>: the results are linear in the tangents."""
    outputs = [d for d in derivatives if d.requires_grad]
    if not outputs:
        return
    g = [torch.randn_like(d) for d in outputs]
    try:
        gradients = torch.autograd.grad(outputs, tangents, g, allow_unused=True)
    except RuntimeError as error:  # autograd noticed that a saved value was written over
        if "modified by an inplace operation" not in str(error):
            raise
        return
    back = sum((a * b).sum() for a, b in zip(gradients, tangents, strict=True) if a is not None)
    there = sum((a * b).sum() for a, b in zip(outputs, g, strict=True))
    torch.testing.assert_close(torch.as_tensor(back), torch.as_tensor(there), rtol=1e-9, atol=1e-9)


@given(program=programs)
@settings(max_examples=budget(400), deadline=None, derandomize=True, database=None)
def test_random_program_is_right_or_refused(program: Program) -> None:
    check_program(program)


def pair() -> tuple[DualTensor, DualTensor]:
    """Two duals of their own memory."""
    x, y, _ = inputs()
    return owned(x), owned(y)


def owned(pair: Pair) -> DualTensor:
    return DualTensor(pair.primal, pair.tangent, shared=False)


def test_in_place_on_own_memory_is_done() -> None:
    x, y = pair()
    value, derivative = x.primal + y.primal, x.tangent + y.tangent
    z: Any = x
    z += y
    assert z is x
    close(x.primal, value, 0)
    close(x.tangent, derivative, 0)
    assert F.relu(x, inplace=True) is x
    close(x.primal, value.relu(), 0)
    close((x * 2).tangent, derivative * (value > 0) * 2, 0)  # pyright: ignore[reportAttributeAccessIssue]


REFUSED: dict[str, Callable[[DualTensor, DualTensor], Any]] = {
    "view": lambda x, y: x.view(4).add_(1),
    "what has a view": lambda x, y: (x[0], x.add_(1)),
    "contiguous": lambda x, y: x.contiguous().mul_(2),
    "to that changes nothing": lambda x, y: x.to(x.dtype).relu_(),
    "what was detached": lambda x, y: (x.detach(), x.add_(1)),
    "index": lambda x, y: x.__setitem__(0, 1.0),
    "copy_": lambda x, y: x.copy_(y),
    "plain add_": lambda x, y: torch.zeros(2, 2).double().add_(x),
    "plain +=": lambda x, y: iadd(torch.zeros(2, 2).double(), x),
    "plain index": lambda x, y: torch.zeros(2, 2).double().__setitem__(0, x[0]),
    "plain copy_": lambda x, y: torch.zeros(2, 2).double().copy_(x),
    "plain masked_fill_": lambda x, y: torch.zeros(2, 2).masked_fill_(y > 0, x[0, 0]),
    "out": lambda x, y: torch.mul(x, y, out=torch.zeros(2, 2).double()),
    "itself": lambda x, y: x.mul_(x),
    "no rule": lambda x, y: F.elu(x, inplace=True),
    "other type": lambda x, y: x.eq_(y),
}


@pytest.mark.parametrize("step", REFUSED.values(), ids=REFUSED.keys())
def test_in_place_is_refused_on(step: Callable[[DualTensor, DualTensor], Any]) -> None:
    with pytest.raises(NotImplementedError):
        step(*pair())


def test_two_duals_of_one_tensor_are_shared_unless_said() -> None:
    theta = torch.ones(2)
    x, y = DualTensor(theta, torch.ones(2)), DualTensor(theta, torch.zeros(2))
    with pytest.raises(NotImplementedError, match="shares memory"):
        x += 1
    assert torch.equal(y.primal, torch.ones(2))
    assert torch.equal(theta, torch.ones(2))


def test_in_place_keeps_the_layout() -> None:
    columns = torch.zeros(3, 2).t()
    x = DualTensor(columns, torch.ones(2, 3), shared=False)
    strides = x.stride()
    x.masked_fill_(torch.eye(2, 3, dtype=torch.bool), 1.0).add_(torch.ones(2, 3))
    assert x.primal.stride() == x.stride() == strides


def test_a_value_written_over_after_its_use_is_noticed() -> None:
    tau = torch.ones(3, requires_grad=True)
    x = DualTensor(torch.randn(3), tau)
    y = F.gelu(x)
    x.detach().add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        tangent(y).sum().backward()  # pyright: ignore[reportOptionalMemberAccess]
