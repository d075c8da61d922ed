"""Whether two sets of inputs are of one kind, by their features at theta0."""

from __future__ import annotations

import math

from torch import Tensor

# `centroid_distance` below which two sets are of one kind. On 64 rows two parts of one set are at
# most 0.009 apart (17 text sets under MiniLM, 14 of pictures under EfficientNet-Lite0), two
# different sets at least 0.065, except CLINC150 and its domains (0.012), and two sets of tweets
# (0.006).
NEAR = 0.02
LEAST = 32  # fewest rows whose means are precise enough


def centroid_distance(one_ND: Tensor, other_MD: Tensor) -> float:
    """Squared distance of two sets' means, less that expected by chance, over the sets' variance.

    For two parts of one set it is about 0, and below 0 half of the time. Infinite for fewer than
    LEAST rows. Features: [N, D] and [M, D].
    """
    if min(len(one_ND), len(other_MD)) < LEAST:
        return math.inf
    one, other = one_ND.var(0).sum(), other_MD.var(0).sum()
    between = (one_ND.mean(0) - other_MD.mean(0)).square().sum()
    chance = one / len(one_ND) + other / len(other_MD)
    return float((between - chance) / ((one + other) / 2).clamp_min(1e-12))


def are_near(one_ND: Tensor, other_MD: Tensor) -> bool:
    """Whether two sets of features are of the same kind of data."""
    return centroid_distance(one_ND, other_MD) < NEAR
