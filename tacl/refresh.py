"""Label-free refresh: take an old vector out of the way of tasks that arrived after it.

tau_s was never penalised on a later task k. Without any label, move it by delta, keeping its
own function and removing its interference:

    minimise  mean over own rows  |J(x) delta|^2
            + strength * mean over other rows  |J(x) tau_s + J(x) delta|^2

Both terms are relative to the size |J(x) tau_s| on own rows, so strength is dimensionless. J tau_s
is computed once per row; a step is one dual pass over rows of both kinds. It is least squares in
delta with far more unknowns than rows, so rows held out decide when to stop and whether to accept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from tacl import params
from tacl.backbone import Backbone, Item
from tacl.config import RefreshConfig, schedule
from tacl.data import sample_rows
from tacl.errors import EmptySplit
from tacl.linearize import LinearizedEncoder
from tacl.optimizer import Adam
from tacl.params import Params
from tacl.splits import batch_rows
from tacl.tangents import cached_tangents
from tacl.train import Store


class Change(NamedTuple):
    """Mean squares relative to the own size on some rows: what is lost and what is left."""

    own: float  # |J delta|^2 on own rows
    interference: float  # |J (tau_s + delta)|^2 on rows of other tasks


@dataclass(frozen=True)
class Refresh:
    """What came of it; `tau` is the refreshed vector also where it was not accepted."""

    tau: Params
    accepted: bool
    reason: str
    before: Change  # on held-out rows
    after: Change
    curve: list[float]  # the objective per step


@dataclass(frozen=True)
class Rows:
    """Rows of one task with the tangents J tau_s that the old vector has there, [N, D]."""

    items: list[Item]
    tangents_ND: Tensor

    def __len__(self) -> int:
        return len(self.items)


def refresh(
    module: LinearizedEncoder,
    backbone: Backbone,
    tau: Params,
    own: Store,
    others: Sequence[Store],
    config: RefreshConfig,
    on_step: Callable[[int, float], None] | None = None,
) -> Refresh:
    """Refreshes `tau` against the stores of all other tasks; the module's tau is used as delta.

    Raises EmptySplit when there is no other store or a store is too small to hold rows out.
    """
    if not others:
        raise EmptySplit("a refresh needs the samples of at least one other task; there is none")
    learn, held_out = _cut(module, backbone, tau, [own, *others], config)
    size = held_out[0].tangents_ND.square().sum(-1).mean().clamp_min(1e-12)
    fit = _Fit(module, backbone, size, config.learning_rate * _root_mean_square(tau), config)

    module.load_tau({})
    before = fit.measure(held_out, moved=False)
    best, best_delta, curve = before, module.tau_dict(), []
    for step in range(config.steps):
        curve.append(fit.step(step, learn))
        if on_step is not None:
            on_step(step, curve[-1])
        if (step + 1) % max(1, config.steps // config.checks) == 0:
            now = fit.measure(held_out)
            if _objective(now, config) < _objective(best, config):
                best, best_delta = now, module.tau_dict()
    accepted, reason = judge(before, best, config)
    best_delta = {name: value.to(tau[name].device) for name, value in best_delta.items()}
    return Refresh(params.add(tau, best_delta), accepted, reason, before, best, curve)


def judge(before: Change, after: Change, config: RefreshConfig) -> tuple[bool, str]:
    """Accept when held-out interference falls and the own function stays."""
    left = after.interference / before.interference if before.interference > 0 else 1.0
    figures = f"interference {left:.0%} of before, own function changed by {after.own:.1%}"
    if left > config.most_left:
        return False, f"{figures}: less than {1 - config.most_left:.0%} would be gained"
    if after.own > config.most_change:
        return False, f"{figures}: more than {config.most_change:.0%} would be lost"
    return True, figures


def _objective(change: Change, config: RefreshConfig) -> float:
    return change.own + config.strength * change.interference


def _cut(
    module: LinearizedEncoder,
    backbone: Backbone,
    tau: Params,
    stores: Sequence[Store],
    config: RefreshConfig,
) -> tuple[list[Rows], list[Rows]]:
    """Rows to learn from and rows held out, own ones first: `samples` own rows, and as many of all
    other tasks together. Own rows to learn from need no J tau_s: only J delta counts there."""
    learn: list[list[Item]] = []
    held_out: list[list[Item]] = []
    for store in stores:
        count = config.samples if store is stores[0] else config.samples // (len(stores) - 1)
        chosen = sample_rows(range(len(store.items)), max(2, count), config.seed)
        if len(chosen) < 2:
            raise EmptySplit(f"the store of {store.name} has {len(chosen)} rows; 2 are the least")
        # By seed and not the last ones: a store may be in the order of its classes.
        aside = set(sample_rows(chosen, max(1, round(config.held_out * len(chosen))), config.seed))
        learn.append([store.items[row] for row in chosen if row not in aside])
        held_out.append([store.items[row] for row in chosen if row in aside])
    own, *others = learn
    rows = _with_tangents(module, backbone, tau, [*others, *held_out])
    return [Rows(own, torch.empty(0)), *rows[: len(others)]], rows[len(others) :]


def _with_tangents(
    module: LinearizedEncoder, backbone: Backbone, tau: Params, parts: Sequence[list[Item]]
) -> list[Rows]:
    tangents = _tangents_by_part(module, backbone, tau, parts)
    return [Rows(items, tangents_ND) for items, tangents_ND in zip(parts, tangents, strict=True)]


def _tangents_by_part(
    module: LinearizedEncoder, backbone: Backbone, tau: Params, parts: Sequence[list[Item]]
) -> list[Tensor]:
    """J tau on the rows of every part, [N, D] each, by one run over all of them."""
    items = [item for part in parts for item in part]
    cached = cached_tangents(module, backbone, items, {"tau": tau})
    return list(cached.tangents["tau"].split([len(part) for part in parts]))


def _root_mean_square(tau: Params) -> float:
    """Of all entries: the scale on which a step of Adam moves them."""
    return params.norm(tau) / math.sqrt(max(1, sum(block.numel() for block in tau.values())))


class _Fit:
    """The optimizer of delta, which lives in the module's tau."""

    def __init__(
        self,
        module: LinearizedEncoder,
        backbone: Backbone,
        size: Tensor,
        peak: float,
        config: RefreshConfig,
    ) -> None:
        self.module, self.backbone, self.size, self.config = module, backbone, size, config
        self.peak = peak
        self.optimizer = Adam(module.parameters(), lr=peak)

    def step(self, step: int, rows: Sequence[Rows]) -> float:
        """One step of Adam on a batch of own rows and a batch mixed over the other tasks."""
        own, *others = rows
        config = self.config
        own_batch = batch_rows(len(own), config.batch, config.seed, step)
        mixed = [(t, r) for t, store in enumerate(others) for r in range(len(store))]
        other_batch = [
            mixed[i] for i in batch_rows(len(mixed), config.other_batch, config.seed, step)
        ]
        items = [own.items[r] for r in own_batch] + [others[t].items[r] for t, r in other_batch]
        _, delta = self.module(self.backbone.collate(items))
        delta_own, delta_other = delta.tensor_split([len(own_batch)])
        old = torch.stack([others[t].tangents_ND[r] for t, r in other_batch]).to(delta_other.device)
        kept = delta_own.square().sum(-1).mean()
        removed = (old + delta_other).square().sum(-1).mean()
        loss = (kept + config.strength * removed) / self.size.to(kept.device)
        loss.backward()
        clip_grad_norm_(self.module.parameters(), config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = schedule(self.peak, step, config.steps, warmup_fraction=0.1)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())

    def measure(self, held_out: Sequence[Rows], moved: bool = True) -> Change:
        """Both terms on held-out rows, every other task counting the same. Where delta has not
        `moved` from 0, no pass is needed."""
        deltas = [torch.zeros_like(rows.tangents_ND) for rows in held_out]
        if moved:
            parts = [rows.items for rows in held_out]
            deltas = _tangents_by_part(self.module, self.backbone, self.module.tau_dict(), parts)
        pairs = zip(held_out[1:], deltas[1:], strict=True)
        left = [self._mean_square(rows.tangents_ND + delta_ND) for rows, delta_ND in pairs]
        return Change(self._mean_square(deltas[0]), sum(left) / len(left))

    def _mean_square(self, change_ND: Tensor) -> float:
        return float(change_ND.square().sum(-1).mean() / self.size)
