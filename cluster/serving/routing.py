"""Which predictor is asked: one that most likely has the model's vectors in its memory.

Of the predictors that run one is the keeper of each vector (rendezvous hashing), and the keeper of
most of a model's vectors is the keeper of the model. So each predictor holds a part of the vectors,
and one that comes or goes moves only what it keeps. Pure; `cluster.serving.router` tells Serve.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from cluster.domain.compositions import Composition

BUSY = 3  # calls on their way: one of many rows, one of few that is answered, and the next

Sample = Callable[[Sequence[str], int], list[str]]  # so many of these, as `random.sample`


def keeper(model: Composition, predictors: tuple[str, ...]) -> str:
    """The name of one of them; empty where there is none."""
    used = [model.merged.digest] if model.merged else [t.vector.digest for t in model.terms]
    votes = Counter(_first(digest, predictors) for digest in used)
    most = max(votes.values(), default=0)
    best = sorted(name for name, count in votes.items() if count == most)
    return _first(model.digest, tuple(best) or predictors)


def ranked(wanted: str, ongoing: Mapping[str, int], sample: Sample) -> list[list[str]]:
    """Whom to ask, by the calls on their way to each: the one that is wanted unless it is busy,
    then the less busy of two, whichever."""
    others = sample(sorted(ongoing), min(2, len(ongoing)))
    return [[wanted], others] if ongoing.get(wanted, BUSY) < BUSY else [others]


@lru_cache(1 << 16)
def _first(key: str, predictors: tuple[str, ...]) -> str:
    """Of each predictor and key a number that only they decide: the highest wins."""
    return max(predictors, key=lambda name: _drawn(name, key), default="")


def _drawn(name: str, key: str) -> bytes:
    return hashlib.sha256(f"{name} {key}".encode()).digest()
