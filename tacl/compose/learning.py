"""Learning the coefficients of a composition: settings, the choice of a step, blocks to keep.

The loop is `tacl.training.loop`: a ScaledEncoder is its module, a Head, JointHead or Entropy its
loss. The published settings count epochs over thousands of rows. AdamW moves a coefficient by at
most about its rate per step, so on little data the rate is raised until steps x rate is at least 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from tacl.backbone import Backbone
from tacl.compose.scaled import ScaledEncoder
from tacl.compose.terms import parse_selection
from tacl.data.batches import Labelled, evaluation_batches
from tacl.data.splits import sample_rows
from tacl.heads.head import RowLoss
from tacl.training.config import TrainConfig
from tacl.training.loop import PlainEngine, StepRecord, train

Use = Literal["addition", "negation", "few-shot", "test-time", "peft"]
REACH = 3.0  # steps x rate: how far a coefficient can go
EPOCHS = {"addition": 20, "negation": 20, "few-shot": 10, "test-time": 10, "peft": 10}
RATES = {"addition": 1e-3, "negation": 1e-3, "few-shot": 1e-1, "test-time": 1e-3, "peft": 1e-1}
LEAST_BATCHES = 10  # in an epoch over few shots, whose rows are repeated
CHECKS = 20
INADMISSIBLE = -math.inf


def learning_config(
    use: Use, rows: int, seed: int, batch: int = 16, steps: int | None = None
) -> TrainConfig:
    """aTLAS's settings for `rows` rows (arXiv 2407.02880, appendix A)."""
    epoch = max(rows // batch, LEAST_BATCHES if use in ("few-shot", "peft") else 1)
    steps = steps or EPOCHS[use] * epoch
    return TrainConfig(
        steps=steps,
        learning_rate=max(RATES[use], REACH / steps),
        strength=0.0,
        seed=seed,
        trainable=(),
        batch=batch,
        penalty="none",
    )


@dataclass(frozen=True)
class Learned:
    """`coefficients`: lambda [T, B, K], B in the order of `blocks`.

    `score` is that of the chosen `step`, whose coefficients these are; None if none was chosen.
    """

    coefficients: Tensor
    blocks: tuple[str, ...]
    score: float | None
    step: int
    losses: list[float]

    @staticmethod
    def by(module: ScaledEncoder, losses: list[float]) -> Learned:
        """What the module has after the last step."""
        found = module.coefficients().detach().cpu()
        return Learned(found, tuple(module.blocks), None, len(losses) - 1, losses)


def learn(
    module: ScaledEncoder,
    backbone: Backbone,
    loss: RowLoss,
    data: Labelled,
    config: TrainConfig,
    *,
    score: Callable[[ScaledEncoder], float] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
) -> Learned:
    """Learns the module's coefficients in place and leaves the best there.

    `score` judges the module on validation rows (see `features`), at the start and about 20 times;
    the best is kept, possibly the start, and learning ends when it returns INADMISSIBLE. Without
    `score`, the last step is kept.
    """
    every, last = max(1, config.steps // CHECKS), config.steps - 1
    losses: list[float] = []
    best, step, deviation = -math.inf, -1, module.deviation.detach().clone()

    def judged(at: int) -> bool:
        """Whether learning should end here."""
        nonlocal best, step, deviation
        if score is None or ((at + 1) % every and at != last):
            return False
        if (value := score(module)) > best:
            best, step, deviation = value, at, module.deviation.detach().clone()
        return value == INADMISSIBLE

    def after(record: StepRecord) -> bool:
        losses.append(record.loss)
        if on_step is not None:
            on_step(record)
        return judged(record.step)

    judged(-1)
    train(PlainEngine(module, config), backbone, loss, data, lambda step: (), config, on_step=after)
    if score is None:
        return Learned.by(module, losses)
    with torch.no_grad():
        module.deviation.copy_(deviation)
    return replace(Learned.by(module, losses), score=best, step=step)


# -- block selection


def selected(
    how: str,
    module: ScaledEncoder,
    backbone: Backbone,
    loss: RowLoss,
    data: Labelled,
    seed: int = 0,
) -> Tensor:
    """kept_TB by `blockwise:B`, `whole:B` or `random:B`, for `module.keep`.

    blockwise: for every block the B vectors with the largest |dL/dlambda| at the module's present
    coefficients (section 5.4); whole: the B vectors with the largest sum of these over blocks;
    random: B vectors drawn for every block. Raises BadRecipe.
    """
    vectors, blocks = len(module.vectors), module.deviation.shape[1]
    kind, most = parse_selection(how, vectors)
    if kind == "random":
        return at_random(vectors, blocks, most, seed)
    gradient_TBK = loss_gradient(module, backbone, loss, data)
    return (blockwise if kind == "blockwise" else vectorwise)(gradient_TBK, most)


def loss_gradient(
    module: ScaledEncoder, backbone: Backbone, loss: RowLoss, data: Labelled, batch: int = 16
) -> Tensor:
    """dL/dlambda at the module's present coefficients, mean over all rows: [T, B, K]."""
    loss, device = loss.to(module.deviation.device), module.deviation.device
    module.zero_grad()
    for rows in evaluation_batches(data.items, batch):
        features_BD, tangent_BD = module(backbone.collate([data.items[row] for row in rows]))
        found = loss.losses(features_BD + tangent_BD, data.labels[rows].to(device))
        (found.sum() / len(data)).backward()
    gradient = module.deviation.grad
    assert gradient is not None
    found_TBK = gradient.detach().clone()
    module.zero_grad()
    return found_TBK


def blockwise(gradient_TBK: Tensor, most: int) -> Tensor:
    """kept_TB: for every block the `most` vectors with the largest |dL/dlambda|."""
    size_TB = gradient_TBK.abs().sum(2)
    order_TB = size_TB.argsort(dim=0, descending=True, stable=True).argsort(dim=0)
    return (order_TB < most).float()


def vectorwise(gradient_TBK: Tensor, most: int) -> Tensor:
    """kept_TB: the `most` vectors with the largest sum of |dL/dlambda| over blocks, whole."""
    kept_T1 = blockwise(gradient_TBK.abs().sum((1, 2), keepdim=True), most)
    return kept_T1.expand(-1, gradient_TBK.shape[1])


def at_random(vectors: int, blocks: int, most: int, seed: int) -> Tensor:
    """kept_TB: for every block `most` vectors, drawn by seed."""
    kept_TB = torch.zeros(vectors, blocks)
    for block in range(blocks):
        rows = sample_rows(range(vectors), most, seed * blocks + block)
        kept_TB[rows, block] = 1
    return kept_TB
