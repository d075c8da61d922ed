"""Label-free refresh: removes an old vector's interference with tasks that arrived after it.

tau_s was never penalised on a later task k. Without any label, it is moved to tau_s + delta,
keeping its own function and removing its interference:

    minimise  mean over own rows  |J(x) (tau_s + delta - first_s)|^2
            + strength * mean over other rows  |J(x) (tau_s + delta)|^2

first_s is the vector as it was trained: a vector that is refreshed many times is compared with it,
and so does not drift. Both terms are relative to the size |J(x) first_s| on own rows, so strength
is dimensionless. The problem is least squares in delta, with far more unknowns than rows. The steps
start at its solution by layer, every step takes new rows, and held-out rows decide how far to go
along delta and whether to accept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tacl.backbone import Backbone, Item
from tacl.data.splits import batch_rows, sample_rows
from tacl.errors import EmptySplit
from tacl.evaluation.tangents import cached_tangents
from tacl.models.linearized import LinearizedEncoder
from tacl.training.closed_form import closed_form
from tacl.training.config import RefreshConfig, schedule
from tacl.training.deterministic import deterministic
from tacl.training.loop import Store
from tacl.training.optimizer import Adam, load, save, stepped
from tacl.vectors import params
from tacl.vectors.params import Params

AT_ONCE = 16  # rows of a pass without gradient: with 64, a CPU takes a third longer per picture


class Change(NamedTuple):
    """Mean squares on some rows, relative to the vector's own size: what is lost, what is left."""

    own: float  # |J (tau_s + delta - first_s)|^2 on own rows
    interference: float  # |J (tau_s + delta)|^2 on rows of other tasks


@dataclass(frozen=True)
class Refresh:
    """The result; `tau` is the refreshed vector, also if it was not accepted, and has every block
    that the module trains."""

    tau: Params
    accepted: bool
    reason: str
    before: Change  # on held-out rows
    after: Change
    curve: list[float]  # the objective per step


def refresh(
    module: LinearizedEncoder,
    backbone: Backbone,
    tau: Params,
    own: Store,
    others: Sequence[Store],
    config: RefreshConfig,
    on_step: Callable[[Descent], None] | None = None,
    first: Params | None = None,
    saved: Path | None = None,
) -> Refresh:
    """Refreshes `tau` against the stores of all other tasks, in the module's tau.

    `first` is the vector as it was trained, if `tau` has been refreshed before; `saved` is the file
    of a descent from which the same refresh continues, to the same numbers.
    Raises EmptySplit when there is no other store or a store is too small to hold rows out.
    """
    if not others:
        raise EmptySplit("a refresh needs the samples of at least one other task; there is none")
    learn, held_out = _cut([own, *others], config)
    if first is None:
        first_own_ND, *old = tangents_by_part(module, backbone, tau, [learn[0], *held_out])
        first_ND = old[0]
    else:
        old = tangents_by_part(module, backbone, tau, held_out)
        own_rows = [learn[0], held_out[0]]
        first_own_ND, first_ND = tangents_by_part(module, backbone, first, own_rows)
    size = first_ND.square().sum(-1).mean().clamp_min(1e-12)

    descent = Descent(module, config.learning_rate * _root_mean_square(tau), config)
    learnt_from = [x for part in learn[1:] for x in part]
    if saved is not None:
        descent.load(saved)
    elif config.closed_form:
        rows = learn[0], learnt_from
        module.load_tau(tau | closed_form(backbone, tau, first or tau, *rows, config.strength))
    else:
        module.load_tau(tau)
    with deterministic(next(module.parameters()).device):
        for step in range(len(descent.curve), config.steps):
            lost, left = _sizes(descent, backbone, step, learn[0], first_own_ND, learnt_from)
            descent.step(step, (lost + config.strength * left) / size.to(lost.device))
            if on_step is not None:
                on_step(descent)

    device = next(iter(tau.values())).device
    learnt = {name: block.to(device) for name, block in module.tau_dict().items()}
    new = tangents_by_part(module, backbone, learnt, held_out)
    wrong = [old[0] - first_ND, *old[1:]]
    deltas = [new_ND - old_ND for new_ND, old_ND in zip(new, old, strict=True)]
    length = line_search(wrong, deltas, [1.0, *[config.strength / len(others)] * len(others)])
    length = min(length, _largest_step(wrong[0], deltas[0], config.most_change * size))
    before, after = (_change(wrong, deltas, size, at) for at in (0.0, length))
    accepted, reason = judge(before, after, config)
    # Blocks that the vector lacks, as an adapter may, were learnt too, and were judged with it.
    whole = {name: torch.zeros_like(block) for name, block in learnt.items()} | tau
    refreshed = {n: value + length * (learnt[n] - value) for n, value in whole.items()}
    return Refresh(refreshed, accepted, reason, before, after, descent.curve)


def line_search(
    wrong: Sequence[Tensor], deltas: Sequence[Tensor], weights: Sequence[float]
) -> float:
    """argmin over a >= 0 of sum_t weights[t] * mean over rows |wrong[t] + a deltas[t]|^2.

    wrong, deltas: [N_t, D] each. J tau is linear in tau, so the objective is a parabola along
    delta. Adam's steps have one size however far to move; this corrects the length for vectors that
    were already penalised and need little, and stops where held-out rows would lose.
    """
    slope = bend = 0.0
    for wrong_ND, delta_ND, weight in zip(wrong, deltas, weights, strict=True):
        slope += weight * float((wrong_ND * delta_ND).sum(-1).mean())
        bend += weight * float(delta_ND.square().sum(-1).mean())
    return max(0.0, -slope / bend) if bend > 0 else 0.0


def _largest_step(wrong_ND: Tensor, delta_ND: Tensor, most: Tensor) -> float:
    """The greatest a >= 0 whose mean over rows |wrong + a delta|^2 is at most `most`; 0 if none."""
    bend = delta_ND.square().sum(-1).mean()
    slope = (wrong_ND * delta_ND).sum(-1).mean()
    room = slope.square() + bend * (most - wrong_ND.square().sum(-1).mean())
    if bend == 0:
        return math.inf
    return max(0.0, float((room.sqrt() - slope) / bend)) if room >= 0 else 0.0


def _change(
    wrong: Sequence[Tensor], deltas: Sequence[Tensor], size: Tensor, length: float
) -> Change:
    """The Change at `length` times delta. Own rows come first; other tasks are weighted equally."""
    own, *others = (
        float((wrong_ND + length * delta_ND).square().sum(-1).mean() / size)
        for wrong_ND, delta_ND in zip(wrong, deltas, strict=True)
    )
    return Change(own, sum(others) / len(others))


def judge(before: Change, after: Change, config: RefreshConfig) -> tuple[bool, str]:
    """Whether held-out interference falls enough to be worth a version, and the reason as text."""
    left = after.interference / before.interference if before.interference > 0 else 1.0
    figures = f"interference {left:.0%} of before, own function changed by {after.own:.1%}"
    if not left <= config.most_left:  # nor is a NaN accepted
        return False, f"{figures}: less than {1 - config.most_left:.0%} would be gained"
    return True, figures


def _cut(
    stores: Sequence[Store], config: RefreshConfig
) -> tuple[list[list[Item]], list[list[Item]]]:
    """Rows to learn from and rows held out, own ones first: `samples` rows of all other tasks
    together, and own ones in the proportion of the batches."""
    own = config.samples * config.batch // config.other_batch
    other = config.samples // max(1, len(stores) - 1)
    counts = [own, *[other] * (len(stores) - 1)]
    pairs = [cut(store, max(2, n), config) for store, n in zip(stores, counts, strict=True)]
    return [learn for learn, _ in pairs], [held_out for _, held_out in pairs]


def cut(store: Store, count: int, config: RefreshConfig) -> tuple[list[Item], list[Item]]:
    """Rows to learn from and rows held out, of `count` rows drawn by seed. Raises EmptySplit."""
    chosen = sample_rows(range(len(store.items)), count, config.seed)
    if len(chosen) < 2:
        raise EmptySplit(f"the shard of {store.name} has {len(chosen)} rows; 2 are the least")
    # By seed, not the last rows: a store may be ordered by class.
    aside = set(sample_rows(chosen, max(1, round(config.held_out * len(chosen))), config.seed))
    learn = [store.items[row] for row in chosen if row not in aside]
    return learn, [store.items[row] for row in chosen if row in aside]


def tangents_by_part(
    module: LinearizedEncoder, backbone: Backbone, tau: Params, parts: Sequence[list[Item]]
) -> list[Tensor]:
    """J tau on the rows of every part, [N, D] each, computed over all parts together."""
    items = [item for part in parts for item in part]
    cached = cached_tangents(module, backbone, items, {"tau": tau}, AT_ONCE)
    return list(cached.tangents["tau"].split([len(part) for part in parts]))


def _root_mean_square(tau: Params) -> float:
    """The root mean square of all entries, to which Adam's step size is relative."""
    return params.norm(tau) / math.sqrt(max(1, sum(block.numel() for block in tau.values())))


class Descent:
    """Adam on a module's tau, by the schedule of a refresh. `curve`: the objective per step."""

    def __init__(self, module: LinearizedEncoder, peak: float, config: RefreshConfig) -> None:
        self.module, self.peak, self.config = module, peak, config
        self.optimizer = Adam(module.parameters(), lr=peak)
        self.curve: list[float] = []

    def save(self, file: Path) -> None:
        save(self.module, self.optimizer, file)
        file.with_suffix(".json").write_text(json.dumps(self.curve))

    def load(self, file: Path) -> None:
        load(self.module, self.optimizer, file)
        self.curve = json.loads(file.with_suffix(".json").read_text())

    def step(self, step: int, loss: Tensor) -> None:
        loss.backward()
        rate = schedule(self.peak, step, self.config.steps, warmup_fraction=0.1)
        stepped(self.module, self.optimizer, self.config.clip, rate)
        self.curve.append(float(loss.detach()))


def _sizes(
    descent: Descent,
    backbone: Backbone,
    step: int,
    own: Sequence[Item],
    first_own_ND: Tensor,
    others: Sequence[Item],
) -> tuple[Tensor, Tensor]:
    """Mean squares of what is lost, on a batch of own rows, and of the interference, on a batch
    mixed over the other tasks."""
    config = descent.config
    own_rows = batch_rows(len(own), config.batch, config.seed, step)
    other_rows = batch_rows(len(others), config.other_batch, config.seed, step)
    items = [own[row] for row in own_rows] + [others[row] for row in other_rows]
    _, tangent = descent.module(backbone.collate(items))
    new_own, new_other = tangent.tensor_split([len(own_rows)])
    lost = new_own - first_own_ND[own_rows].to(new_own.device)
    return lost.square().sum(-1).mean(), new_other.square().sum(-1).mean()
