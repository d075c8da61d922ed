"""The cost of a training step: ours, an ordinary one, and the linearized one as published.

A step is: zero gradients, forward, backward, over the same trained blocks in eval mode. Clipping
and the optimizer cost the same in all and are timed separately. By arithmetic it is 5/3 of an
ordinary step without penalty, 15/8 with it (ARCHITECTURE.md).

The published way is `torch.func.jvp`, called once for the task's rows and once for the penalty's,
with the attention kernel that has a forward derivative.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import jvp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import normalize
from torch.nn.utils import clip_grad_norm_
from torch.utils._pytree import tree_map

from jobs.benchmarks.encoders import Subject, subject
from jobs.benchmarks.timing import MadeBytes, Say, in_turns, setting
from tacl.dual.encode import encode
from tacl.heads.head import Head
from tacl.models.frozen import Batch, trainable_blocks
from tacl.models.linearized import LinearizedEncoder
from tacl.training.penalties import relative_tau_jp
from tacl.vectors.params import Params

CLASSES, SCALE, OTHERS, STRENGTH = 100, 20.0, 7, 1.0
ERROR_ROWS = 2  # plus one of another task: float64 is slow, and the error is the same


@dataclass(frozen=True)
class StepRows:
    """Rows of the task with their labels, followed by rows of other tasks."""

    batch: Batch
    labels_B: Tensor
    head: Head

    def loss(self, features_BD: Tensor, tangent_BD: Tensor) -> Tensor:
        """The task's loss over the first rows, and the penalty over all others."""
        own, precision = len(self.labels_B), self.head.weight_CD.dtype
        linearized_BD = (features_BD + tangent_BD)[:own].to(precision)
        loss = self.head.losses(linearized_BD, self.labels_B).mean()
        if len(tangent_BD) == own:
            return loss
        others = tangent_BD[own:].to(precision)
        return loss + STRENGTH * relative_tau_jp(others, "l2_squared", torch.tensor(1.0)).mean()

    def first(self, others: int) -> StepRows:
        """The task's rows, and `others` rows of other tasks."""
        return replace(self, batch=cut(self.batch, slice(len(self.labels_B) + others)))

    def cast(self, dtype: torch.dtype, device: str) -> StepRows:
        precise = torch.float64 if dtype == torch.float64 else torch.float32
        weight_CD = self.head.weight_CD.to(device, precise)
        return StepRows(
            tree_map(lambda x: x.to(device, dtype if x.is_floating_point() else None), self.batch),
            self.labels_B.to(device),
            replace(self.head, weight_CD=weight_CD),
        )


def cut(batch: Batch, some: slice) -> Batch:
    return tree_map(lambda x: x[some], batch)


Forward = Callable[[], tuple[StepRows, Tensor, Tensor]]  # (rows, features, tangent)


@dataclass(frozen=True)
class Contestant:
    """A forward pass, and the parameters whose gradients the backward pass adds."""

    forward: Forward
    parameters: list[nn.Parameter]

    def loss(self) -> Tensor:
        rows, features_BD, tangent_BD = self.forward()
        return rows.loss(features_BD, tangent_BD)

    def step(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
        self.loss().backward()


def ordinary(one: Subject, rows: StepRows, dtype: torch.dtype, device: str) -> Contestant:
    """The encoder with ordinary fine-tuning; its other parameters are frozen."""
    encoder = copy.deepcopy(one.encoder).to(device, dtype)
    blocks = set(trainable_blocks(encoder, one.trainable))
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(name in blocks)
    trained = [p for p in encoder.parameters() if p.requires_grad]
    zero = torch.zeros((), device=device)
    return Contestant(lambda: (rows, f := encoder(rows.batch), zero.expand_as(f)), trained)


def ours(module: nn.Module, rows: StepRows) -> Contestant:
    return Contestant(lambda: (rows, *module(rows.batch)), list(module.parameters()))


def by_jvp(
    one: Subject, rows: StepRows, tau: Params, dtype: torch.dtype, device: str, calls: int
) -> Contestant:
    """`torch.func.jvp` with all rows in one call, or the task's and the others' in two."""
    encoder = copy.deepcopy(one.encoder).to(device, dtype)
    blocks = trainable_blocks(encoder, one.trainable)
    theta0 = {name: p for name, p in encoder.named_parameters() if name in set(blocks)}
    taus = {name: nn.Parameter(tau[name].to(device, dtype)) for name in blocks}
    own = slice(len(rows.labels_B)), slice(len(rows.labels_B), None)
    parts = [rows.batch] if calls == 1 else [cut(rows.batch, some) for some in own]

    def one_call(batch: Batch) -> tuple[Tensor, Tensor]:
        def features(theta: Params) -> Tensor:
            return encode(encoder, theta, batch)

        with sdpa_kernel(SDPBackend.MATH):
            return jvp(features, (theta0,), (taus,))  # pyright: ignore[reportReturnType]

    def forward() -> tuple[StepRows, Tensor, Tensor]:
        features, tangents = zip(*(one_call(batch) for batch in parts), strict=True)
        return rows, torch.cat(features), torch.cat(tangents)

    return Contestant(forward, list(taus.values()))


def bench_step(
    model: str, dtype: str, batch: int, rounds: int, device: str, say: Say
) -> dict[str, Any]:
    """Seconds, ratios, bytes and errors of every contestant; see the keys."""
    one, precision = subject(model), getattr(torch, dtype)
    few = max(1, batch // 8)
    field = contestants(one, precision, batch, few, device)
    times = in_turns({name: c.step for name, c in field.items()}, rounds, device, say)
    kept = {name: activations(c) for name, c in field.items()}
    step = _optimizer_step(field["ours_cyclical"])
    optimizer = in_turns({"optimizer": step}, 3, device, lambda done, total: None)
    return {
        **setting(model, device, rounds),
        "dtype": dtype,
        "batch": batch,
        "penalty_batch": few,
        **times.figures(),
        "optimizer_s": optimizer.median("optimizer"),
        "ratio_to_ordinary": {name: times.ratio(name, "ordinary") for name in field},
        "speedup_over_two_jvp": times.ratio("two_jvp", "ours_cyclical"),
        "activation_bytes": {name: bytes_ for name, (bytes_, _) in kept.items()},
        "peak_bytes": {name: peak for name, (_, peak) in kept.items()},
        "max_relative_error": errors(one, precision, device),
    }


def contestants(
    one: Subject, dtype: torch.dtype, batch: int, few: int, device: str
) -> dict[str, Contestant]:
    """All contestants, over the same weights, rows and tau."""
    everything, tau = made_up(one, batch, OTHERS * few).cast(dtype, device), small_tau(one)
    cyclical, alone = everything.first(few), everything.first(0)
    module = _linearized(one, tau, dtype, device)
    return {
        "ordinary": ordinary(one, alone, dtype, device),
        "ours_none": ours(module, alone),
        "ours_cyclical": ours(module, cyclical),
        "ours_strict": ours(module, everything),
        "one_jvp": by_jvp(one, cyclical, tau, dtype, device, 1),
        "two_jvp": by_jvp(one, cyclical, tau, dtype, device, 2),
    }


def _linearized(one: Subject, tau: Params, dtype: torch.dtype, device: str) -> LinearizedEncoder:
    """No cast for the encoder's own precision."""
    module = one.linearized(device, dtype if dtype == torch.bfloat16 else None)
    module.load_tau(tau)
    return module


def made_up(one: Subject, batch: int, others: int) -> StepRows:
    random = torch.Generator().manual_seed(0)
    rows, head = one.batch(batch + others, random), random_head(one, random)
    return StepRows(rows, torch.randint(CLASSES, (batch,), generator=random), head)


def random_head(one: Subject, random: torch.Generator) -> Head:
    weight_CD = normalize(torch.randn(CLASSES, one.width, generator=random), dim=-1)
    return Head(weight_CD, SCALE, tuple(map(str, range(CLASSES))))


def small_tau(one: Subject) -> Params:
    """A thousandth of every block's own size: at tau = 0 half of the arithmetic could not err."""
    random = torch.Generator().manual_seed(1)
    parameters = dict(one.encoder.named_parameters())
    blocks = trainable_blocks(one.encoder, one.trainable)
    sizes = {name: parameters[name].float().square().mean().sqrt() + 1e-3 for name in blocks}
    return {
        name: 1e-3 * sizes[name] * torch.randn(parameters[name].shape, generator=random)
        for name in blocks
    }


def activations(contestant: Contestant) -> tuple[int, int]:
    """(bytes that the forward pass keeps for the backward pass, the most that it held at once)."""
    with MadeBytes() as made:
        loss = contestant.loss()
    del loss
    return made.kept, made.peak


def _optimizer_step(contestant: Contestant) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(contestant.parameters, lr=0.0)

    def step() -> None:
        clip_grad_norm_(contestant.parameters, 1.0)
        optimizer.step()

    return step


def errors(one: Subject, dtype: torch.dtype, device: str) -> dict[str, float]:
    """The largest of the errors of features, tangents and gradient, each relative to its norm,
    against two calls of `torch.func.jvp` in float64."""
    rows, tau = made_up(one, ERROR_ROWS, 1), small_tau(one)
    exact = _answers(by_jvp(one, rows.cast(torch.float64, device), tau, torch.float64, device, 2))
    rows = rows.cast(dtype, device)
    module = _linearized(one, tau, dtype, device)
    field = {"ours": ours(module, rows), "two_jvp": by_jvp(one, rows, tau, dtype, device, 2)}
    return {
        name: max(
            ((got.double() - true).norm() / true.norm()).item()
            for got, true in zip(_answers(contestant), exact, strict=True)
        )
        for name, contestant in field.items()
    }


def _answers(contestant: Contestant) -> tuple[Tensor, Tensor, Tensor]:
    """(features, tangents, gradient), the gradient of all blocks as one vector."""
    rows, features_BD, tangent_BD = contestant.forward()
    loss = rows.loss(features_BD, tangent_BD)
    gradients = torch.autograd.grad(loss, contestant.parameters)
    return features_BD, tangent_BD, torch.cat([g.flatten() for g in gradients])
