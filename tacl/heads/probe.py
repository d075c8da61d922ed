"""Classifiers from labelled features: multinomial logistic regression, and nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from tacl.errors import RunFailed
from tacl.heads.calibration import fit_temperature
from tacl.heads.head import Head

WEIGHT_DECAYS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # of |W|^2, on unit features
STEPS = 200  # at most, for one weight decay
LEAST_CHANGE = 1e-6  # of the loss, in the last step (results/heads-choice.md)
SCALE = 16.0  # of the resulting head; it does not affect the minimum
NEIGHBOURS = (1, 5, 10, 20, 50)


def nothing() -> None:
    """Does nothing: the default for `between`."""


def _unwrapped(name: str) -> Any:
    method = getattr(torch.optim.LBFGS, name)
    return getattr(method, "__wrapped__", method)


class LBFGS(torch.optim.LBFGS):
    """Bit for bit `torch.optim.LBFGS`, without torch's compiler (`tacl.training.optimizer`)."""

    add_param_group = _unwrapped("add_param_group")
    zero_grad = _unwrapped("zero_grad")


Rows = tuple[Tensor, Tensor]  # features_ND, labels_N


def of_length_one(rows: Rows) -> Rows:
    """The rows with their features normalised to length 1, float32: what a probe learns from."""
    features_ND, labels_N = rows
    return normalize(features_ND.float(), dim=-1), labels_N


def probe_head(
    unit_ND: Tensor,
    labels_N: Tensor,
    classes: Sequence[str],
    weight: float,
    start: Head | None = None,
    prior: Head | None = None,
    others_N: Tensor | None = None,
    steps: int = STEPS,
) -> Head:
    """The head with the least mean cross-entropy of the logits s W z / |z| plus the penalty
    weight / 2 |s W - s0 W0|^2, from rows `of_length_one`.

    `prior` is the head s0 W0 that weights decay to; without it, 0. The problem is convex, so any
    start gives the same head; a near one takes fewer steps. Rows of W are not of length 1: lengths
    are learned. `others_N` are logits of one more column, for classes whose weights do not change;
    their rows have the label that follows those of `classes`.
    """
    centre_CD = torch.zeros(len(classes), unit_ND.shape[1])
    if prior is not None:
        centre_CD = (prior.scale * prior.weight_CD).float().cpu()
    weight_CD = centre_CD.clone()
    if start is not None:
        weight_CD = (start.scale * start.weight_CD).float().cpu().clone()
    weight_CD.requires_grad_()
    optimizer = LBFGS(
        [weight_CD],
        max_iter=steps,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_change=LEAST_CHANGE,
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        fit = cross_entropy(_with_others(unit_ND @ weight_CD.T, others_N), labels_N)
        total = fit + weight / 2 * (weight_CD - centre_CD).square().sum()
        total.backward()
        return total

    optimizer.step(loss)
    return Head(weight_CD.detach() / SCALE, SCALE, tuple(classes))


def _with_others(logits_NC: Tensor, others_N: Tensor | None) -> Tensor:
    return logits_NC if others_N is None else torch.cat([logits_NC, others_N.unsqueeze(-1)], -1)


def chosen_probe(
    train: Rows,
    validation: Rows,
    classes: Sequence[str],
    weights: Sequence[float] = WEIGHT_DECAYS,
    prior: Head | None = None,
    mass_N: Tensor | None = None,
    others: tuple[Tensor, Tensor] | None = None,
    steps: int = STEPS,
    between: Callable[[], None] = nothing,
) -> tuple[Head, float]:
    """The best head at the temperature that fits the validation rows, and its weight decay: that of
    `weights`, given in falling order, with the least cross-entropy on these rows.

    `train` are rows `of_length_one`, made by the caller so that there is no second copy of many
    rows. The search stops at the first weight that is worse than the one before. The validation
    labels are smoothed as if one more row had any class (after Platt, 1999), so that a few rows,
    all right, do not give high confidence. `mass_N`: weights of the validation rows, equal by
    default. `others`: see `probe_head`, for both sets of rows; the temperature does not apply to
    them. `between` is called before each weight; an exception from it ends the search.
    """
    features_ND, labels_N = validation
    learned_by, judged_by = others or (None, None)
    best, least, head = None, float("inf"), None
    for weight in weights:
        between()
        head = probe_head(*train, classes, weight, head, prior, learned_by, steps)
        logits_NC, smoothing = head.logits(features_ND.float()), 1 / (len(labels_N) + 1)
        found = fit_temperature(logits_NC, labels_N, mass_N, smoothing, judged_by)
        if not found.loss < least:  # nor is a NaN taken
            break
        best = replace(head, scale=found.inverse_temperature * head.scale), weight
        least = found.loss
    if best is None:
        raise RunFailed("no head can be fitted: features of some rows are not finite numbers")
    return best


@dataclass(frozen=True)
class Neighbours:
    """Votes of the `count` nearest rows by cosine, each with weight exp(cosine / 0.1)."""

    keys_ND: Tensor
    labels_N: Tensor
    classes: tuple[str, ...]
    count: int

    @staticmethod
    def of(features_ND: Tensor, labels_N: Tensor, classes: Sequence[str], count: int) -> Neighbours:
        unit_ND = normalize(features_ND.float(), dim=-1)
        return Neighbours(unit_ND, labels_N, tuple(classes), min(count, len(labels_N)))

    def logits(self, features_BD: Tensor) -> Tensor:
        """The logarithm of each class's share of the votes, [B, C]."""
        near = (normalize(features_BD.float(), dim=-1) @ self.keys_ND.T).topk(self.count)
        vote_BKC = one_hot(self.labels_N[near.indices], len(self.classes)).float()
        share_BK = (near.values / 0.1).softmax(-1)
        return (share_BK.unsqueeze(-1) * vote_BKC).sum(1).clamp_min(1e-6).log()
