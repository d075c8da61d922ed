"""Heads that are affine in phi(z), over the classes of several tasks: what a solve gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tacl.errors import UnknownTask
from tacl.heads.expansion import IDENTITY, Expansion
from tacl.vectors.params import Params


@dataclass(frozen=True)
class LinearHead:
    """logits = phi(z) W' + b, features as they are; `tasks` says how many columns are whose.

    Task known: the columns of that task alone, by `of`. Task unknown: all of them.
    """

    weight_CD: Tensor
    bias_C: Tensor
    classes: tuple[str, ...]
    tasks: Mapping[str, int]
    expansion: Expansion = IDENTITY

    def __post_init__(self) -> None:
        sizes = {len(self.classes), *self.weight_CD.shape[:1], *self.bias_C.shape}
        if sizes != {sum(self.tasks.values())}:
            raise ValueError(f"{sorted(sizes)} classes, weights and biases for {self.tasks}")

    def logits(self, features_BD: Tensor) -> Tensor:
        """[B, C]."""
        return self.expansion(features_BD) @ self.weight_CD.T + self.bias_C

    def losses(self, features_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Cross-entropy of each row over all columns, [B]."""
        return cross_entropy(self.logits(features_BD), labels_B, reduction="none")

    def columns(self, task: str) -> slice:
        """UnknownTask: the head has no columns of it."""
        start = 0
        for name, size in self.tasks.items():
            if name == task:
                return slice(start, start + size)
            start += size
        raise UnknownTask(f"no classes of {task!r} in a head of {', '.join(self.tasks)}")

    def of(self, task: str) -> LinearHead:
        found = self.columns(task)
        weight_CD, bias_C = self.weight_CD[found], self.bias_C[found]
        tasks = {task: self.tasks[task]}
        return replace(
            self, weight_CD=weight_CD, bias_C=bias_C, classes=self.classes[found], tasks=tasks
        )

    def to(self, device: torch.device | str) -> LinearHead:
        return replace(self, weight_CD=self.weight_CD.to(device), bias_C=self.bias_C.to(device))

    def to_params(self) -> Params:
        """Tensors alone, in float32."""
        text = json.dumps(
            {
                "classes": self.classes,
                "tasks": list(self.tasks.items()),
                "expansion": [self.expansion.width, self.expansion.seed],
            }
        )
        names = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        weight, bias = self.weight_CD.float().cpu(), self.bias_C.float().cpu()
        return {"weight": weight.contiguous(), "bias": bias.contiguous(), "names": names}

    @staticmethod
    def from_params(params: Params) -> LinearHead:
        names = json.loads(bytes(params["names"].tolist()).decode())
        return LinearHead(
            params["weight"],
            params["bias"],
            tuple(names["classes"]),
            dict(names["tasks"]),
            Expansion(*names["expansion"]),
        )


def side_by_side(heads: Sequence[LinearHead]) -> LinearHead:
    """All columns in the order given; the heads must be of one expansion and of different tasks."""
    tasks = {task: size for head in heads for task, size in head.tasks.items()}
    if len(tasks) != sum(len(head.tasks) for head in heads):
        raise ValueError("a task has columns in two of the heads")
    (expansion,) = {head.expansion for head in heads}
    return LinearHead(
        torch.cat([head.weight_CD for head in heads]),
        torch.cat([head.bias_C for head in heads]),
        tuple(name for head in heads for name in head.classes),
        tasks,
        expansion,
    )
