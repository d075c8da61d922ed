"""LoRA (arXiv 2106.09685), with one adapter for each task, as is common in fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from jobs.experiments.cache import Cost, Made
from jobs.experiments.context import Experiment
from jobs.experiments.models import TrainedVector, task_accuracies
from tacl.models.frozen import Batch, FrozenEncoder, trainable_blocks
from tacl.training.config import TrainConfig
from tacl.training.loop import PlainEngine, train
from tacl.vectors import Params, Regime, params

RANK = 8
SCALE = 2.0  # alpha / rank, alpha = 16
RATES = (1e-3, 3e-3)  # peak learning rates, chosen on validation rows
STEPS = 400  # as many as the default training


class LowRankEncoder(FrozenEncoder):
    """f(x; theta0 + s B A): every matrix among the blocks is changed by two factors, kernels as
    matrices of [out, rest]; one-dimensional tensors, such as biases and norms, are not changed.

    Starts as in PEFT: A uniform by Kaiming's rule, drawn by `seed`, and B zero.
    """

    regime: Regime = "ordinary"

    def __init__(self, encoder: nn.Module, trainable: Sequence[str], seed: int) -> None:
        blocks, sizes = trainable_blocks(encoder, trainable), dict(encoder.named_parameters())
        super().__init__(encoder, [name for name in blocks if sizes[name].ndim > 1])
        noise = torch.Generator().manual_seed(seed)
        down, up = nn.ParameterList(), nn.ParameterList()
        for name in self.blocks:
            out, inner = self.theta0(name).flatten(1).shape
            bound = 1 / math.sqrt(inner)
            start_RI = (2 * torch.rand(RANK, inner, generator=noise) - 1) * bound
            down.append(nn.Parameter(start_RI.to(self.theta0(name).device)))
            up.append(nn.Parameter(torch.zeros(out, RANK, device=self.theta0(name).device)))
        self._down, self._up = down, up

    def tau_by_block(self) -> Params:
        """s B A by block, with its graph."""
        pairs = zip(self.blocks, self._down, self._up, strict=True)
        return {
            name: (SCALE * up_OR @ down_RI).view_as(self.theta0(name))
            for name, down_RI, up_OR in pairs
        }

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(f(x; theta0 + s B A), zeros), both [B, D]."""
        moved = {name: self.theta0(name) + tau for name, tau in self.tau_by_block().items()}
        return self.at(moved, batch)


def lora(experiment: Experiment, task: str) -> TrainedVector:
    """The product of a task's factors, at the learning rate that is best on its validation rows."""
    rows = experiment.rows(task)
    changed: dict[str, Any] = {"penalty": "none", "precision": "float32", "steps": STEPS}
    configs = [experiment.config(task, learning_rate=rate, **changed) for rate in RATES]

    def make() -> Made:
        tried = {config.learning_rate: _trained(experiment, task, config) for config in configs}
        scores = {rate: _score(experiment, task, tau) for rate, tau in tried.items()}
        rate = max(RATES, key=scores.__getitem__)
        facts = {"rate": rate, "validation": scores[rate], "norm": params.norm(tried[rate])}
        return facts, tried[rate]

    cell = experiment.cell(
        "lora",
        make,
        f"of {task}, rank {RANK}",
        task,
        rank=RANK,
        scale=SCALE,
        configs=[config.as_dict() for config in configs],
        data=[rows.digest("train"), rows.digest("validation"), list(rows.classes)],
    )
    return TrainedVector(cell, "ordinary", task, cell.cost, Cost())


def _trained(experiment: Experiment, task: str, config: TrainConfig) -> Params:
    module = LowRankEncoder(
        experiment.backbone.encoder, experiment.backbone.trainable, seed=config.seed
    )
    experiment.cells.say(f"  {task}: rate {config.learning_rate:g}")
    data, head = experiment.rows(task).train, experiment.head(task)
    train(PlainEngine(module, config), experiment.backbone, head, data, lambda step: (), config)
    return module.tau_dict()


def _score(experiment: Experiment, task: str, tau: Params) -> float:
    features_ND = experiment.base.encoded(experiment.rows(task).items("validation"), tau)
    return task_accuracies(experiment, {task: features_ND}, "validation")[task]
