"""One delta for a whole composition, without labels: every task keeps its own vector's function.

The label-free refresh of tacl.training.refresh, once for all vectors together:

    minimise  sum_t  mean over x in store_t  |J(x) (sum_s c_s tau_s + delta) - c_t J(x) tau_t|^2

A store without a vector in the composition, such as the generic one, keeps theta0's function: its
target is zero. The error to remove, J(x) sum_{s != t} c_s tau_s, is computed once per row; a step
is one dual pass over rows mixed from all tasks. Held-out rows decide how far to go along delta and
whether to accept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacl.backbone import Backbone, Item
from tacl.data.splits import batch_rows
from tacl.errors import EmptySplit
from tacl.evaluation.tangents import cached_tangents
from tacl.models.linearized import LinearizedEncoder
from tacl.training.config import RefreshConfig
from tacl.training.loop import Store
from tacl.training.refresh import Descent, cut, line_search, tangents_by_part
from tacl.vectors import Params, params


@dataclass(frozen=True)
class RefreshedComposition:
    """`tau` is sum_t c_t tau_t + delta, also if it was not accepted.

    before, after: mean |error|^2 by task on held-out rows, relative to the mean over tasks of
    |c_t J tau_t|^2 there.
    """

    tau: Params
    accepted: bool
    reason: str
    before: dict[str, float]
    after: dict[str, float]


@dataclass(frozen=True)
class _Rows:
    """Rows of one task, with the error on each and what its own vector does there, [N, D]."""

    items: list[Item]
    wrong_ND: Tensor
    own_ND: Tensor


def refresh_composition(
    module: LinearizedEncoder,
    backbone: Backbone,
    taus: Mapping[str, Params],
    coefficients: Mapping[str, float],
    stores: Sequence[Store],
    config: RefreshConfig,
) -> RefreshedComposition:
    """Learns delta on `samples` rows of each store, batch + other_batch of all together a step.

    Stores and vectors are matched by name. The module's tau holds delta. Raises EmptySplit when a
    vector has no store, or a store has too few rows to hold any out.
    """
    lost = sorted(set(taus) - {store.name for store in stores})
    if lost:
        raise EmptySplit(f"{lost} are in the composition without samples: what they do is unknown")
    total = params.combine([(coefficients[name], tau) for name, tau in taus.items()])
    learn, held_out = {}, {}
    for store in stores:
        own = params.scale(coefficients[store.name], taus[store.name]) if store.name in taus else {}
        parts = cut(store, config.samples, config)
        for rows, items in zip((learn, held_out), parts, strict=True):
            found = cached_tangents(module, backbone, items, {"total": total, "own": own}).tangents
            rows[store.name] = _Rows(items, found["total"] - found["own"], found["own"])
    # Never zero, as it is a divisor.
    size = max(1e-12, sum(_size(held_out[name].own_ND) for name in taus) / len(taus))
    entries = sum(value.numel() for value in total.values())
    rate = config.learning_rate * params.norm(total) / math.sqrt(entries)
    descent = Descent(module, rate, config)
    module.load_tau({})
    for step in range(config.steps):
        items, wrong_BD = _batch(list(learn.values()), config, step)
        _, delta_BD = module(backbone.collate(items))
        left_BD = wrong_BD.to(delta_BD) + delta_BD
        descent.step(step, left_BD.square().sum(-1).mean() / size)

    learnt, parts = module.tau_dict(), [rows.items for rows in held_out.values()]
    deltas = tangents_by_part(module, backbone, learnt, parts)
    wrong = [rows.wrong_ND for rows in held_out.values()]
    length = line_search(wrong, deltas, [1.0] * len(wrong))
    left = [wrong_ND + length * delta_ND for wrong_ND, delta_ND in zip(wrong, deltas, strict=True)]
    before = {name: _size(rows) / size for name, rows in zip(held_out, wrong, strict=True)}
    after = {name: _size(rows) / size for name, rows in zip(held_out, left, strict=True)}
    whole = {name: torch.zeros_like(block) for name, block in learnt.items()} | dict(total)
    moved = {n: value + length * learnt[n].to(value.device) for n, value in whole.items()}
    accepted, reason = judge_composition(before, after, config)
    return RefreshedComposition(moved, accepted, reason, before, after)


def judge_composition(
    before: Mapping[str, float], after: Mapping[str, float], config: RefreshConfig
) -> tuple[bool, str]:
    """Accepts if the error falls to `most_left` and grows on no task by more than `most_change`."""
    old, new = sum(before.values()), sum(after.values())
    left = new / old if old > 0 else 1.0
    worst = max(before, key=lambda name: after[name] - before[name])
    grown = after[worst] - before[worst]
    figures = f"what is wrong falls to {left:.0%}; at worst it grows by {grown:.1%} on {worst}"
    if not left <= config.most_left:  # nor is a NaN accepted
        return False, f"{figures}: less than {1 - config.most_left:.0%} would be gained"
    if grown > config.most_change:
        return False, f"{figures}: more than {config.most_change:.0%} would be lost there"
    return True, figures


def _size(rows_ND: Tensor) -> float:
    """Mean squared norm of the rows."""
    return float(rows_ND.square().sum(-1).mean())


def _batch(tasks: Sequence[_Rows], config: RefreshConfig, step: int) -> tuple[list[Item], Tensor]:
    """Rows of a step and their errors [B, D]; over time every task has the same share of rows."""
    batch = config.batch + config.other_batch
    items, wrong = [], []
    for place in range(step * batch, (step + 1) * batch):
        task = tasks[place % len(tasks)]
        (row,) = batch_rows(len(task.items), 1, config.seed, place // len(tasks))
        items.append(task.items[row])
        wrong.append(task.wrong_ND[row])
    return items, torch.stack(wrong)
