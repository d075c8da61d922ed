"""AdaMerging: coefficients that make the merged model confident on unlabelled inputs.

arXiv 2310.02575, layer-wise: one coefficient for each (vector, block), all starting at 0.3. They
minimise the entropy of each task's predictions by its own head, over unlabelled inputs of all
tasks. The method cannot forget a task, so signs and coefficients of a recipe are refused.
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
REACH = 1.0  # steps x rate; with the cosine schedule as far as the published 500 steps at 1e-3


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
    """Learns the coefficients; returns the module, whose `tau_dict()` is the model, and a report.

    `inputs[t]` are unlabelled inputs of the t-th vector's task. A step draws `batch` rows times the
    number of tasks with inputs, 16 at most, from the rows of all, and passes AT_ONCE or fewer at a
    time.
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
        # A pass keeps what its rows need for the gradient, so its rows are few; but each pass
        # reads every vector again.
        accumulation=math.ceil(min(rows, len(data)) / AT_ONCE),
    )
    learned = learn(module, backbone, Entropy.of(heads), data, config, on_step=on_step)
    return module, learned
