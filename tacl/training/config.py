"""The settings that decide a run's numbers, hashed into its identity; defaults are rules."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any, Literal, get_args

from tacl.errors import BadConfig
from tacl.spec import HeadKind

Sampled = Literal["cyclical", "mixed", "strict"]  # on samples of other tasks
Penalty = Literal[Sampled, "curvature", "none"]
Precision = Literal["float32", "bfloat16"]
Norm = Literal["l2", "l2_squared"]
BATCH = 16
LEAST_STEPS, MOST_STEPS = 100, 2000
# Penalty rows of an optimizer step: batch / 2, each of a different task (mixed); batch / 8 of one
# task (cyclical) or of every task (strict). A row of each of eight tasks has less noise than eight
# of one, which keeps vectors apart in longer trainings (results/heads-choice.md).
MIXED_SHARE, PENALTY_SHARE = 2, 8
# lambda, by what the heads of a training are made of: class names, or class means where the base
# has no text tower. Of 0, 1 and 3, sums of five text tasks (MiniLM) were best at 3 on validation
# rows, and sums of three picture tasks (EfficientNet-Lite0) at 1 (results/ways.md).
STRENGTHS: dict[HeadKind, float] = {"text": 3.0, "prototype": 1.0}
# The number of other tasks, including the generic set, at which a growing strength has the given
# value: that of text8, where strengths were compared (results/sensitivity-text8.md).
GROWN_AT = 8
# Factor of the strength where statistics replace samples: training finds the directions that they
# underrate. Chosen on validation rows (text8, MiniLM, one seed): the sum has 73.6 % at the strength
# for samples and 77.3 at four times that; single vectors go from 87.5 to 86.7.
CURVATURE = 4.0


@dataclass(frozen=True)
class TrainConfig:
    """One training run of one task vector.

    `batch` rows of the task and `penalty_batch` rows of other tasks make one optimizer step, cut
    into `accumulation` micro-batches and divided between the workers. `strength` is lambda,
    dimensionless (see `penalties.relative_tau_jp`). With `grow_strength`, it is the value for
    GROWN_AT other tasks, in proportion to whose number it grows: as the penalty is a mean over
    them, each then keeps its weight. Raises BadConfig for values that cannot work.
    """

    steps: int
    learning_rate: float
    strength: float
    seed: int
    trainable: tuple[str, ...]
    batch: int = BATCH
    penalty_batch: int = BATCH // PENALTY_SHARE
    accumulation: int = 1
    weight_decay: float = 0.1
    warmup_fraction: float = 0.1
    clip: float = 1.0
    precision: Precision = "float32"
    penalty: Penalty = "cyclical"
    norm: Norm = "l2_squared"
    grow_strength: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "learning_rate", "batch", "penalty_batch", "accumulation", "clip"):
            if not 0 < getattr(self, name) < math.inf:  # False for a NaN too
                raise BadConfig(f"{name} is {getattr(self, name)}; it must be positive and finite")
        for name in ("strength", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadConfig(
                    f"{name} is {getattr(self, name)}; it must be finite, and not negative"
                )
        for name in ("batch", "steps", "penalty_batch", "accumulation"):
            if not isinstance(value := getattr(self, name), Integral):
                raise BadConfig(f"{name} is {value!r}; it must be a whole number")
        for name, kinds in (("penalty", Penalty), ("norm", Norm), ("precision", Precision)):
            if (value := getattr(self, name)) not in get_args(kinds):
                known = ", ".join(get_args(kinds))
                raise BadConfig(f"{name} is {value!r}; it must be one of {known}")
        if self.accumulation > self.batch:
            raise BadConfig(f"{self.accumulation} micro-batches of a batch of {self.batch} rows")

    def strength_against(self, others: int) -> float:
        """lambda of a step with this number of other tasks."""
        return self.strength * others / GROWN_AT if self.grow_strength else self.strength

    def as_dict(self) -> dict[str, Any]:
        """Every field, as JSON values; one that was added later only if it is set, so that old
        digests stay valid."""
        fields = asdict(self) | {"trainable": list(self.trainable)}
        if not self.grow_strength:
            del fields["grow_strength"]
        return fields

    def digest(self) -> str:
        """sha256 of every field."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class RefreshConfig:
    """One label-free refresh (see `refresh`).

    It starts at the closed form of its layers, or at the vector. `learning_rate` is relative to the
    root mean square of the vector's entries. Every step takes `batch` own rows and `other_batch`
    rows mixed over all other tasks, from `samples` rows of the other tasks together and own rows in
    the same proportion. The share `held_out` of both is used only to decide how far to go and
    whether to accept. The vector's own function changes by at most `most_change`, and interference
    must fall to `most_left` of what it was (mean squares, relative to the vector's own tangents).
    """

    seed: int
    steps: int = 8
    learning_rate: float = 0.03
    closed_form: bool = True
    strength: float = 3.0
    samples: int = 320
    batch: int = 4
    other_batch: int = 8
    clip: float = 1.0
    held_out: float = 0.2
    most_left: float = 0.95
    most_change: float = 0.2

    def as_dict(self) -> dict[str, Any]:
        """Every field; one that was added later only if it is set, so that old tables can grow."""
        fields = asdict(self)
        if not self.closed_form:
            del fields["closed_form"]
        return fields


def schedule(peak: float, step: int, steps: int, warmup_fraction: float) -> float:
    """Learning rate: linear warm-up (at most 500 steps) to `peak`, then a cosine to 0."""
    warmup = min(500, math.ceil(warmup_fraction * steps))
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def default_config(
    rows: int, seed: int, trainable: tuple[str, ...], head_kind: HeadKind = "text", **given: Any
) -> TrainConfig:
    """The rule for a task of `rows` labelled training rows; `given` values that are not None win.

    Two passes over the data at 16 rows a step, at least 100 steps for small sets and at most 2000
    for large ones, and a row of each of eight other tasks a step. It was chosen on validation rows
    of one seed: one pass at half the rate with the cyclical penalty gave sums of 86.0 % (eight text
    tasks, MiniLM) and 77.9 (four picture tasks, EfficientNet-Lite0), this rule 88.6 and 82.7
    (results/heads-choice.md). Lambda depends on the `head_kind` of the base (STRENGTHS).
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    batch = chosen.get("batch", BATCH)
    penalty: Penalty = chosen.get("penalty", "mixed")
    share = MIXED_SHARE if penalty == "mixed" else PENALTY_SHARE
    rule = TrainConfig(
        steps=min(MOST_STEPS, max(LEAST_STEPS, 2 * rows // max(1, batch))),
        learning_rate=2e-4,
        strength=STRENGTHS[head_kind] * (CURVATURE if penalty == "curvature" else 1.0),
        seed=seed,
        trainable=tuple(trainable),
        batch=batch,
        penalty_batch=max(1, batch // share),
        penalty=penalty,
    )
    return replace(rule, **chosen)
