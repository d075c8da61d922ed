"""Test-time adaptation of coefficients without labels: unsupervised FixMatch (arXiv 2407.02880).

Trusted rows are, for each class, the top min(N / C, 100) by zero-shot score; they make a quarter of
each batch. For its other rows, the model classifies a weak change: where its probability reaches a
threshold, which rises from 0.9 to 1, its answer becomes the label of a strong change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tacl.backbone import Backbone, Item
from tacl.compose.learning import Learned
from tacl.compose.scaled import ScaledEncoder
from tacl.data.augment import Strength, augmented
from tacl.data.batches import in_order
from tacl.data.splits import batch_rows
from tacl.heads.head import Head
from tacl.training.config import TrainConfig, schedule
from tacl.training.loop import PlainEngine, StepRecord

MOST_TRUSTED = 100
THRESHOLD = 0.9
TRUSTED_SHARE = 4  # one row of a batch in 4 is trusted


def ufm(
    module: ScaledEncoder,
    backbone: Backbone,
    head: Head,
    items: Sequence[Item],
    config: TrainConfig,
    on_step: Callable[[StepRecord], None] | None = None,
) -> Learned:
    """Learns the module's coefficients in place from unlabelled inputs of the new task."""
    rows_K, labels_K = trusted(head.to("cpu").logits(module.zero_shot(backbone, items)).softmax(-1))
    head, losses = head.to(module.deviation.device), []
    engine = PlainEngine(module, config)
    quarter = max(1, config.batch // TRUSTED_SHARE)
    for step in range(config.steps):
        some = batch_rows(len(rows_K), quarter, config.seed, step)
        sure, labels = [rows_K[i] for i in some], [labels_K[i] for i in some]
        rest = batch_rows(len(items), max(1, config.batch - quarter), config.seed, step)
        weak = _changed(items, rest, "weak", config.seed, step)
        threshold = THRESHOLD + (1 - THRESHOLD) * step / max(1, config.steps - 1)
        kept, pseudo = surer(_logits(module, backbone, head, weak), threshold)
        batch = _changed(items, sure, "weak", config.seed, step)
        batch += _changed(items, [rest[i] for i in kept], "strong", config.seed, step)
        features_BD, tangent_BD = module(backbone.collate(batch))
        targets_B = torch.tensor([*labels, *pseudo], device=features_BD.device)
        row_losses_B = head.losses(features_BD + tangent_BD, targets_B)
        n = len(sure)
        loss = row_losses_B[:n].mean() + row_losses_B[n:].sum() / len(rest)
        engine.backward(loss)
        rate = schedule(config.learning_rate, step, config.steps, config.warmup_fraction)
        seen, norm = torch.stack([loss.detach(), engine.step(rate)]).tolist()
        losses.append(seen)
        if on_step is not None:
            on_step(StepRecord(step, config.steps, losses[-1], None, norm, rate))
    return Learned.by(module, losses)


def trusted(probabilities_NC: Tensor, most: int = MOST_TRUSTED) -> tuple[list[int], list[int]]:
    """(rows, their labels): for each class, the rows with the largest probability of it."""
    rows, classes = probabilities_NC.shape
    count = max(1, min(rows // classes, most))
    top_KC = probabilities_NC.topk(count, dim=0).indices
    labels_KC = torch.arange(classes).expand(count, -1)
    return top_KC.T.flatten().tolist(), labels_KC.T.flatten().tolist()


def surer(logits_NC: Tensor, threshold: float) -> tuple[list[int], list[int]]:
    """(rows, their labels): those whose class has at least this probability."""
    best = logits_NC.softmax(-1).max(-1)
    rows = (best.values >= threshold).nonzero().flatten().tolist()
    return rows, best.indices[rows].tolist()


@torch.no_grad()
def _logits(module: ScaledEncoder, backbone: Backbone, head: Head, items: Sequence[Item]) -> Tensor:
    """Logits [N, C] on the CPU, in the items' order."""

    def logits(some: list[Item]) -> tuple[Tensor]:
        features_BD, tangent_BD = module(backbone.collate(some))
        return (head.logits(features_BD + tangent_BD),)

    return in_order(items, 64, logits)[0]


def _changed(
    items: Sequence[Item], rows: Sequence[int], strength: Strength, seed: int, step: int
) -> list[Item]:
    """Augmented rows; the change of a row depends on (seed, step, row, strength) alone."""
    changed = []
    for row in rows:
        random = torch.Generator().manual_seed(hash((seed, step, row, strength == "weak")) % 2**63)
        changed.append(augmented(items[row], strength, random))
    return changed
