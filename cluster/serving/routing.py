"""Chooses the predictor for a model: one that most likely has the model's vectors in memory.

Rendezvous hashing makes one of the running predictors the keeper of each vector; the keeper of most
of a model's vectors is the keeper of the model. So each predictor holds a part of the vectors, and
when one starts or stops, only vectors that it keeps change their keeper. Pure;
`cluster.serving.router` applies it in Serve.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from cluster.domain.compositions import Composition

BUSY = 3  # calls on their way: one of many rows, one of few that is answered, and the next

Sample = Callable[[Sequence[str], int], list[str]]  # as `random.sample`


def keeper(model: Composition, predictors: tuple[str, ...]) -> str:
    """The name of the predictor that keeps the model; empty if there is none."""
    used = [model.merged.digest] if model.merged else [t.vector.digest for t in model.terms]
    votes = Counter(_first(digest, predictors) for digest in used)
    most = max(votes.values(), default=0)
    best = sorted(name for name, count in votes.items() if count == most)
    return _first(model.digest, tuple(best) or predictors)


def ranked(wanted: str, ongoing: Mapping[str, int], sample: Sample) -> list[list[str]]:
    """Predictors to try, in groups of which the less busy one is taken: first `wanted`, unless it
    has BUSY calls on their way, then two at random. `ongoing`: calls on their way to each."""
    others = sample(sorted(ongoing), min(2, len(ongoing)))
    return [[wanted], others] if ongoing.get(wanted, BUSY) < BUSY else [others]


@lru_cache(1 << 16)
def _first(key: str, predictors: tuple[str, ...]) -> str:
    """The predictor whose hash with the key is the highest; empty if there is none."""
    return max(predictors, key=lambda name: _drawn(name, key), default="")


def _drawn(name: str, key: str) -> bytes:
    return hashlib.sha256(f"{name} {key}".encode()).digest()
