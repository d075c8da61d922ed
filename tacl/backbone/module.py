"""Any torch module as a base model: its rows are tensors that need no preprocessing."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacl.backbone.core import Backbone
from tacl.backbone.inputs import Item
from tacl.errors import ModalityMismatch
from tacl.spec import BaseSpec


@dataclass(frozen=True)
class Tensors:
    """Items are tensors of one shape; a batch is their stack, on the base model's device."""

    modality = "tensor"

    def prepare(self, raw: bytes | str) -> Item:
        raise ModalityMismatch(
            f"a wrapped module reads tensors and was given {type(raw).__name__}; give the tensors"
        )

    def collate(self, items: Sequence[Item], device: torch.device) -> Tensor:
        """[B, ...]."""
        return torch.stack(list(items)).to(device)

    def description(self) -> dict[str, Any]:
        return {"modality": self.modality}


def wrap(module: nn.Module, trainable: Sequence[str] = ("*",)) -> Backbone:
    """Your own module as a base model: theta0 and f.

    A copy is taken and put into eval mode, so that later changes of `module` (statistics of batch
    norm included) leave theta0 as it is. Vectors record the digest of that copy.

    Args:
        module: `module(batch) -> features [B, D]`, for a batch of tensors [B, ...], without the
            layer that gives logits: that is the head.
        trainable: fnmatch patterns over the names of `module.named_parameters()`: the blocks that
            task vectors have. A pattern that matches nothing is refused by `linearize`.

    Raises RuntimeError if torch cannot copy the module, for example because it holds a tensor with
    its graph; ValueError for a lazy module that has seen no row and so has no weights.
    Source: the pre-trained model of task arithmetic, arXiv 2212.04089.
    """
    encoder = copy.deepcopy(module)
    layers = ", ".join(f"{name}:{type(layer).__name__}" for name, layer in encoder.named_modules())
    spec = BaseSpec("module", type(module).__name__)
    return Backbone(spec, encoder, Tensors(), tuple(trainable), logit_scale=16.0, variant=layers)
