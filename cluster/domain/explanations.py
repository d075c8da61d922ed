"""Why a model answers as it does: what each of its vectors adds, and the answer without it."""

from __future__ import annotations

from pydantic import Field

from cluster.domain.base import Reply
from cluster.domain.compositions import Composition
from cluster.domain.operations import Candidate

BASE = "base model"
Logits = dict[str, dict[str, float]]  # task -> class -> logit


class Contribution(Reply):
    """One part of f(x) + sum_t a_t J(x) tau_t: the base model, or a vector with its coefficient.

    `share`, of the features, and `logits` add up over the parts: to 1, and to the logits of the
    answer. `without` is the answer with this vector left out, by the same heads, and `probability`
    what the given answer has then; both are None for the base model, which cannot be left out.
    """

    part: str = Field(description="The base model, or a term.", examples=["+faces@v2"])
    length: float = Field(description="|part|, in units of the features.", examples=[0.42])
    share: float = Field(description="<part, features> / |features|^2.", examples=[0.08])
    logits: Logits = Field(examples=[{"faces": {"happy": 1.9, "sad": -0.4}}])
    without: Candidate | None = None
    probability: float | None = Field(default=None, examples=[0.31])


class Explanation(Reply):
    """An answer, its logits, and its parts: the base model first. Heads divide by the lengths that
    the answer has, so the `logits` of the parts are exact for it. They do not predict what is
    answered without a part: that is `without`."""

    best: Candidate
    logits: Logits
    parts: tuple[Contribution, ...]


class Explanations(Reply):
    """One explanation per input, of the model named by `digest`."""

    user: str = Field(examples=["alice"])
    digest: str = Field(examples=["4be1b5f1"])
    explanations: tuple[Explanation, ...]


def parts_of(model: Composition) -> tuple[str, ...]:
    """The parts of a model beside the base: its terms, or what they were merged to."""
    terms = tuple(map(str, model.terms))
    return (f"{model.method} of {' '.join(terms)}",) if model.merged else terms
