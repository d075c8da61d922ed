"""AdaMerging: coefficients that make the merged model sure of itself on unlabelled inputs.

arXiv 2310.02575: all coefficients start at 0.3; minimised is the entropy of each task's
predictions by its own head, over unlabelled inputs of all tasks; layer-wise, one coefficient for
each (vector, block). It has no notion of a task to be forgotten, so that signs and coefficients of
a recipe are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tacl.backbone import Backbone, Item
from tacl.compose.learning import Learned, learn, learning_config
from tacl.compose.scaled import ScaledEncoder
from tacl.data.batches import Labelled
from tacl.heads.head import Head
from tacl.heads.joint import JointHead
from tacl.training.loop import StepRecord
from tacl.vectors.vector import TaskVector

START = 0.3
AT_ONCE = 32  # rows of a pass
REACH = 1.0  # steps x rate; under the cosine as far as the published 500 steps at 1e-3


class Entropy(JointHead):
    """Entropy of each row's prediction among the classes of its task; labels are task numbers."""

    def losses(self, features_BD: Tensor, labels_B: Tensor) -> Tensor:
        foreign_BC = self.task_C != labels_B.unsqueeze(1)
        logits_BC = self.head.logits(features_BD).masked_fill(foreign_BC, -torch.inf)
        log_BC = logits_BC.log_softmax(-1).masked_fill(foreign_BC, 0)
        return -(log_BC.exp() * log_BC).masked_fill(foreign_BC, 0).sum(-1)


def adamerging(
    backbone: Backbone,
    vectors: Sequence[TaskVector],
    inputs: Sequence[Sequence[Item]],
    heads: Sequence[Head],
    *,
    steps: int = 500,
    batch: int = 16,
    seed: int = 0,
    on_step: Callable[[StepRecord], None] | None = None,
) -> tuple[ScaledEncoder, Learned]:
    """`inputs[t]`: unlabelled inputs of the t-th vector's task; a step is of `batch` rows of each
    task that has some, on average: its rows are drawn from all, and pass some at a time. Of more
    than 16 tasks it is of as many rows as of 16.

    The model is `module.tau_dict()`.
    """
    module = ScaledEncoder(backbone, vectors, [START] * len(vectors))
    tasks = torch.tensor([task for task, items in enumerate(inputs) for _ in items])
    data = Labelled([item for items in inputs for item in items], tasks)
    rows = batch * min(16, max(1, sum(1 for items in inputs if items)))
    config = learning_config("addition", len(data), seed, rows, steps)
    config = replace(
        config,
        learning_rate=REACH / steps,
        weight_decay=0.0,
        # Each pass reads every vector again, and keeps what its rows need for the gradient.
        accumulation=math.ceil(min(rows, len(data)) / AT_ONCE),
    )
    learned = learn(module, backbone, Entropy.of(heads), data, config, on_step=on_step)
    return module, learned
