"""Any torch module as a base model: its rows are tensors that need no preprocessing."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from glob import escape
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tacl.backbone.core import Backbone, matching
from tacl.backbone.inputs import Item
from tacl.errors import ModalityMismatch
from tacl.spec import BaseSpec
from tacl.vectors import params

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in texts of objects; differs between processes
# Eval mode is the same for all; transformers keeps a path of this machine.
_UNSAID = {"training", "name_or_path"}


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
    norm included) leave theta0 as it is. Vectors record the digest of that copy: of its weights and
    of its layers with their settings.

    Args:
        module: `module(batch) -> features [B, D]`, for a batch of tensors [B, ...], without the
            layer that gives logits: that is the head.
        trainable: fnmatch patterns over the names of `module.named_parameters()`: the blocks that
            task vectors have, except those with requires_grad=False, which stay as they are. A
            pattern that matches nothing is refused by `linearize`.

    Raises BadBase if a vector would have no block, or if batch norm has no running statistics;
    RuntimeError if torch cannot copy the module, for example because it holds a tensor with its
    graph; ValueError for a lazy module that has seen no row and so has no weights.
    Source: the pre-trained model of task arithmetic, arXiv 2212.04089.
    """
    spec = BaseSpec("module", type(module).__name__)
    encoder = copy.deepcopy(module)
    for name, layer in encoder.named_modules():
        if isinstance(layer, _BatchNorm) and layer.running_mean is None:
            raise spec.unusable(
                f"{name or 'it'} is {type(layer).__name__} without running statistics, so the "
                "features of a row depend on the other rows of its batch; set "
                "track_running_stats=True and train it, or use GroupNorm or LayerNorm"
            )
    blocks = _not_frozen(spec, encoder, [trainable] if isinstance(trainable, str) else trainable)
    layers = _described(encoder)
    return Backbone(spec, encoder, Tensors(), blocks, logit_scale=16.0, variant=layers)


def _not_frozen(spec: BaseSpec, encoder: nn.Module, patterns: Sequence[str]) -> tuple[str, ...]:
    """The patterns; where they match frozen parameters, the names of the others. BadBase when all
    are frozen."""
    parameters = dict(encoder.named_parameters())
    if not parameters:
        raise spec.unusable("it has no parameters, so a vector would have no block")
    chosen = matching(encoder, patterns)
    names = [n for n in chosen if parameters[n].requires_grad]
    if chosen and not names:
        raise spec.unusable(
            f"all {len(chosen)} parameters that {list(patterns)} match have requires_grad=False, "
            "so a vector would have no block; call requires_grad_(True) on those that tasks change"
        )
    return tuple(patterns) if names == chosen else tuple(map(escape, names))


def _described(encoder: nn.Module) -> str:
    """What decides f beside the state dict: each layer's class and settings, tensors that are not
    saved, and which parameters are one. The same in every process."""
    layers = [
        f"{name}:{type(layer).__name__}({layer.extra_repr()}) {_settings(layer)}"
        for name, layer in encoder.named_modules(remove_duplicate=False)
    ]
    first = {id(value): name for name, value in encoder.named_parameters()}
    everything = encoder.named_parameters(remove_duplicate=False)
    tied = [f"{n} is {first[id(value)]}" for n, value in everything if n != first[id(value)]]
    saved = encoder.state_dict().keys()
    kept = {name: value for name, value in encoder.named_buffers() if name not in saved}
    for name, layer in encoder.named_modules():
        kept |= {f"{name}.{n}": v for n, v in vars(layer).items() if isinstance(v, Tensor)}
    described = "\n".join([*layers, *tied, params.digest(kept)])
    return _ADDRESS.sub("", described)


def _settings(layer: nn.Module) -> list[str]:
    """Public attributes that are numbers, texts, functions, classes or sequences of these. Many a
    layer's `extra_repr` leaves out its settings, such as the number of attention heads."""
    found = sorted(vars(layer).items())
    return [
        f"{n}={told}" for n, v in found if n[0] != "_" and n not in _UNSAID and (told := _told(v))
    ]


def _told(value: Any) -> str:
    if isinstance(value, FunctionType | BuiltinFunctionType | type):
        return value.__qualname__
    if isinstance(value, tuple | list):
        parts = [_told(one) for one in value]
        return f"[{', '.join(parts)}]" if all(parts) else ""
    return repr(value) if isinstance(value, bool | int | float | complex | str) else ""
