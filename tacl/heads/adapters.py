"""Classifiers on features for few shots: Tip-Adapter and LP++. Both use unit features.

They need no encoder: give them features of theta0, or of a composition learned from the shots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from tacl.heads.head import Head

CLIP_SCALE = 100.0  # the scale for which Tip-Adapter's alpha was published
ALPHA, BETA = 1.0, 5.5
ALPHAS, BETAS = (0.0, 0.5, 1.0, 2.0, 4.0), (1.0, 2.5, 5.5, 10.0)
LP_STEPS = 300


@dataclass(frozen=True)
class TipAdapter:
    """logits = s W f + alpha s / 100 exp(-beta (1 - K f)) Y (arXiv 2207.09519, equations 4 and 5).

    K are the unit features of the shots, Y their one-hot labels. Nothing is trained.
    """

    head: Head
    keys_ND: Tensor
    values_NC: Tensor
    alpha: float = ALPHA
    beta: float = BETA

    @staticmethod
    def of(head: Head, features_ND: Tensor, labels_N: Tensor) -> TipAdapter:
        """Chooses alpha and beta by leave-one-out; the published ones if a class has one shot."""
        values_NC = one_hot(labels_N, len(head.classes)).to(features_ND.dtype)
        adapter = TipAdapter(head, normalize(features_ND, dim=-1), values_NC)
        if values_NC.sum(0)[labels_N].min() < 2:
            return adapter
        base_NC = head.logits(features_ND)

        def left_out(pair: tuple[float, float]) -> float:
            cached_NC = adapter._cached(features_ND, *pair, without_itself=True)
            return cross_entropy(base_NC + cached_NC, labels_N).item()

        alpha, beta = min(((a, b) for a in ALPHAS for b in BETAS), key=left_out)
        return TipAdapter(head, adapter.keys_ND, values_NC, alpha, beta)

    def logits(self, features_BD: Tensor) -> Tensor:
        return self.head.logits(features_BD) + self._cached(features_BD, self.alpha, self.beta)

    def _cached(
        self, features_BD: Tensor, alpha: float, beta: float, without_itself: bool = False
    ) -> Tensor:
        close_BN = torch.exp(-beta * (1 - normalize(features_BD, dim=-1) @ self.keys_ND.T))
        if without_itself:
            close_BN = close_BN.clone().fill_diagonal_(0)
        return alpha * self.head.scale / CLIP_SCALE * close_BN @ self.values_NC


@dataclass(frozen=True)
class LpPlusPlus:
    """logits_k = f' (w_k + alpha_k t_k) (arXiv 2404.02285, equation 2): a linear probe on unit f.

    t_k is the head's row. alpha starts at the head's scale and w at zero, which is zero-shot.
    """

    head: Head
    weight_CD: Tensor
    alpha_C: Tensor

    @staticmethod
    def of(head: Head, features_ND: Tensor, labels_N: Tensor, steps: int = LP_STEPS) -> LpPlusPlus:
        """Block coordinate majorize-minimize: steps from Lipschitz bounds, no rate to tune.

        The Hessian of the softmax is at most 1/2, so that a step of the inverse bound never
        increases the loss; the number of steps is small to keep few shots from being overfitted.
        """
        unit_ND = normalize(features_ND, dim=-1)
        cosine_NC, target_NC = unit_ND @ head.weight_CD.T, one_hot(labels_N, len(head.classes))
        rows = len(labels_N)
        bound_w = torch.linalg.eigvalsh(unit_ND.T @ unit_ND)[-1] / (2 * rows)
        bound_alpha = cosine_NC.square().sum(0).max() / (2 * rows)
        weight_CD = torch.zeros_like(head.weight_CD)
        alpha_C = torch.full_like(head.weight_CD[:, 0], head.scale)
        for _ in range(steps):
            error_NC = _softmax(unit_ND, cosine_NC, weight_CD, alpha_C) - target_NC
            weight_CD = weight_CD - error_NC.T @ unit_ND / rows / bound_w
            error_NC = _softmax(unit_ND, cosine_NC, weight_CD, alpha_C) - target_NC
            alpha_C = alpha_C - (error_NC * cosine_NC).sum(0) / rows / bound_alpha
        return LpPlusPlus(head, weight_CD, alpha_C)

    def logits(self, features_BD: Tensor) -> Tensor:
        rows_CD = self.weight_CD + self.alpha_C.unsqueeze(1) * self.head.weight_CD
        return normalize(features_BD, dim=-1) @ rows_CD.T


def _softmax(unit_ND: Tensor, cosine_NC: Tensor, weight_CD: Tensor, alpha_C: Tensor) -> Tensor:
    return (unit_ND @ weight_CD.T + alpha_C * cosine_NC).softmax(-1)
