"""A PEFT LoRA adapter as a vector: scale * B A per layer, kept low-rank (arXiv 2106.09685).

The scale is alpha / r, or alpha / sqrt(r) for rank-stabilised adapters (arXiv 2312.03732). DoRA
(arXiv 2402.09353) rescales every output of W0 + scale * B A to a trained length, which is not a
low-rank change, so it is kept dense. Other options of PEFT that affect the numbers are refused by
name.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacl.backbone import Backbone
from tacl.errors import BadCheckpoint
from tacl.interchange.checkpoint import (
    ImportedVector,
    change,
    classifier_rows,
    require_float,
    require_like,
)
from tacl.interchange.names import matched
from tacl.interchange.reading import read_tensors
from tacl.vectors import Block, Dense, LowRank, TaskVector

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
WRAPPER = "base_model.model."
# A repeated group of a regular expression, or a flag by which spaces may precede the repetition.
REPEATED = re.compile(r"\)[*+{]|\(\?\w*x")
MOST_WAYS = 10**7  # of matching patterns with the name of one layer: about a second
LONGEST = 1000  # characters of a pattern
TO_READ = 25  # cost of compiling a character, in ways; a pattern costs 40 characters more
PARTS = ("lora_A.weight", "lora_B.weight", "lora_B.bias", "lora_magnitude_vector")

UNCHANGED_BASE = (True, False, "gaussian", "eva", "orthogonal", "mica")  # initialisations of A, B
HARMLESS = {  # settings of the training, or that repeat what the tensors show
    *("peft_type", "task_type", "auto_mapping", "peft_version", "inference_mode", "revision"),
    *("base_model_name_or_path", "target_modules", "exclude_modules", "layers_to_transform"),
    *("layers_pattern", "modules_to_save", "bias", "lora_bias", "lora_dropout", "runtime_config"),
    *("megatron_core", "qalora_group_size", "loftq_config", "eva_config", "corda_config"),
    *("lora_ga_config", "velora_config", "ensure_weight_tying"),
}
USED = {  # settings that the code below takes into account
    *("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora"),
    *("fan_in_fan_out", "init_lora_weights"),
}


def folder_of_adapter(path: Path) -> Path | None:
    """The folder of the adapter at `path`, a folder or a file in it; None if there is none. Raises
    BadCheckpoint for weights without their configuration, which is needed to interpret them."""
    folder = path.parent if path.name in (CONFIG, *WEIGHTS) else path
    if (folder / CONFIG).is_file():
        return folder
    if path.name in WEIGHTS:
        raise BadCheckpoint(f"{path} has no {CONFIG} beside it; give the folder that PEFT wrote")
    return None


def vector_of_adapter(task: str, backbone: Backbone, folder: Path) -> ImportedVector:
    """The adapter in `folder` as a vector. Raises BadCheckpoint when it uses an unsupported option,
    or is of another base."""
    config, tensors = _config(folder), _tensors(folder)
    _require_understood(config, folder)
    layers, others = _layers(tensors)
    found = matched(backbone, [*(f"{layer}.weight" for layer in layers), *others])
    theta0 = backbone.encoder.state_dict()
    blocks: dict[str, Block] = {}
    for name, key in found.keys.items():
        if key in others:  # trained in full: biases and modules to save
            require_like(name, others[key], theta0[name])
            blocks[name] = Dense(change(others[key], theta0[name]))
        else:
            layer = layers[key.removesuffix(".weight")]
            made = _blocks(layer, config, backbone, name)
            twice = made.keys() & blocks.keys()  # a bias that was trained in full, too
            blocks |= made | {n: Dense(blocks[n].dense() + made[n].dense()) for n in twice}
    if not blocks:
        raise BadCheckpoint(
            f"the adapter {folder} changes {list(layers)[:3] or 'no layer'}, and nothing of the "
            f"base model {backbone.spec}; give an adapter of this base"
        )
    is_trained = False
    for name, block in blocks.items():  # products of finite factors may be infinite
        value = block.dense()
        require_like(name, value, theta0[name])
        is_trained |= bool(value.any())
    if not is_trained:
        raise BadCheckpoint(f"the adapter {folder} changes nothing: it was never trained")
    vector = TaskVector(task, backbone.digest, "ordinary", blocks)
    aside = {key: others[key] for key in found.aside if key in others}
    return ImportedVector(vector, found.aside, _notes(config), classifier_rows(aside))


# -- what the files say


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG).read_text())
        return dict(config)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadCheckpoint(f"{folder / CONFIG} is no adapter's configuration: {error}") from error


def _tensors(folder: Path) -> dict[str, Tensor]:
    files = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    if not files:
        raise BadCheckpoint(f"the adapter {folder} has no weights: none of {', '.join(WEIGHTS)}")
    tensors = read_tensors(files[0])
    foreign = [key for key in tensors if not key.startswith(WRAPPER)]
    if foreign:
        raise BadCheckpoint(f"{files[0]} holds {foreign[:3]}; PEFT's names begin with {WRAPPER}")
    return {key.removeprefix(WRAPPER): value for key, value in tensors.items()}


def _require_understood(config: Mapping[str, Any], folder: Path) -> None:
    if config.get("peft_type") != "LORA":
        raise BadCheckpoint(
            f"the adapter {folder} is of type {config.get('peft_type')}; only LORA is a change of "
            "the weights that can be read from its file. Merge it (merge_and_unload) and import "
            "the checkpoint"
        )
    start = config.get("init_lora_weights", True)
    if start not in UNCHANGED_BASE:
        raise BadCheckpoint(
            f"the adapter {folder} was started as {start!r}, which changes the base's weights too; "
            "save it again with path_initial_model_for_weight_conversion, or merge it"
        )
    odd = sorted(k for k, value in config.items() if value and k not in HARMLESS | USED)
    if odd:
        raise BadCheckpoint(
            f"the adapter {folder} uses {', '.join(odd)}, which this version does not know how to "
            "add to weights. Merge it (merge_and_unload) and import the checkpoint"
        )


def _notes(config: Mapping[str, Any]) -> tuple[str, ...]:
    name = config.get("base_model_name_or_path")
    return (f"the adapter says that it was trained on {name}",) if name else ()


# -- layers


@dataclass
class AdapterLayer:
    """The tensors in the file of one layer, by PEFT's names of the parts."""

    name: str
    parts: dict[str, Tensor] = field(default_factory=dict)

    def part(self, name: str) -> Tensor:
        if name not in self.parts:
            raise BadCheckpoint(f"the adapter has no {name} of {self.name}, and the rest of it")
        require_float(f"{name} of {self.name}", self.parts[name])
        return self.parts[name]

    def matrix(self, name: str) -> Tensor:
        """A factor as a float32 matrix, that of a convolution flattened."""
        value = self.part(name).float()
        if value.ndim < 2 or not value.numel():
            raise BadCheckpoint(f"{name} of {self.name} is {list(value.shape)}, and no matrix")
        return value.flatten(1)


def _layers(tensors: Mapping[str, Tensor]) -> tuple[dict[str, AdapterLayer], dict[str, Tensor]]:
    """The adapted layers, and the tensors that were trained in full."""
    layers: dict[str, AdapterLayer] = {}
    others: dict[str, Tensor] = {}
    for key, value in tensors.items():
        part = next((part for part in PARTS if key.endswith(f".{part}")), None)
        if part is not None:
            name = key.removesuffix(f".{part}")
            layers.setdefault(name, AdapterLayer(name)).parts[part] = value
        elif "lora_" in key:
            raise BadCheckpoint(f"the adapter's {key} is no part of a linear or convolution layer")
        else:
            others[key.replace(".base_layer.", ".").replace(".modules_to_save.", ".")] = value
    twice = [name for name in layers if f"{name}.weight" in others]
    if twice:
        raise BadCheckpoint(
            f"the adapter has weights in full and LoRA matrices of {twice[:3]}; merge it "
            "(merge_and_unload) and import the checkpoint"
        )
    return layers, others


def _blocks(
    layer: AdapterLayer, config: Mapping[str, Any], backbone: Backbone, name: str
) -> dict[str, Block]:
    """The changes of one layer's weight and bias; `name` is the weight's."""
    module = backbone.encoder.get_submodule(name.rpartition(".")[0])
    theta0 = backbone.encoder.state_dict()[name].cpu()
    transposed = _is_transposed(module)
    if transposed != bool(config.get("fan_in_fan_out")):
        raise BadCheckpoint(f"fan_in_fan_out of the adapter does not fit the base's {name}")
    weight = _low_rank(layer, config, theta0, transposed)
    blocks: dict[str, Block] = {name: weight}
    if config.get("use_dora"):
        if transposed or theta0.ndim != 2:
            raise BadCheckpoint(f"DoRA is understood on linear layers, and {name} is none")
        length_O = layer.part(PARTS[3]).float().flatten()
        require_like(f"{layer.name}.{PARTS[3]}", length_O, theta0[:, 0])
        blocks[name] = Dense(_dora(weight.dense(), theta0.float(), length_O))
    if "lora_B.bias" in layer.parts:
        value = _scale(layer, config) * layer.part("lora_B.bias").float()
        bias = name.removesuffix("weight") + "bias"
        if bias not in backbone.encoder.state_dict():
            raise BadCheckpoint(
                f"the adapter has a bias (lora_bias) for {layer.name}, and the base has none "
                "there; give an adapter of this base"
            )
        require_like(bias, value, backbone.encoder.get_parameter(bias))
        blocks[bias] = Dense(value)
    return blocks


def _is_transposed(module: nn.Module) -> bool:
    """Whether it is a Conv1D of transformers, as in GPT-2, whose weight is [inputs, outputs]."""
    layers = sys.modules.get("transformers.pytorch_utils")
    return layers is not None and isinstance(module, layers.Conv1D)


def _low_rank(
    layer: AdapterLayer, config: Mapping[str, Any], theta0: Tensor, transposed: bool
) -> LowRank:
    """scale * B A in the shape of the weight."""
    right_RI = layer.matrix("lora_A.weight")
    left_OR = _scale(layer, config) * layer.matrix("lora_B.weight")
    shape_OI = (theta0.T if transposed else theta0.flatten(1)).shape
    if left_OR.shape[1] != right_RI.shape[0] or shape_OI != (len(left_OR), right_RI.shape[1]):
        raise BadCheckpoint(
            f"the adapter of {layer.name} is {list(left_OR.shape)} times {list(right_RI.shape)}, "
            f"and the base's weight is {list(theta0.shape)}; give an adapter of this base"
        )
    require_like(layer.name, left_OR, left_OR)
    require_like(layer.name, right_RI, right_RI)
    if transposed:
        left_OR, right_RI = right_RI.T, left_OR.T
    return LowRank(left_OR.contiguous(), right_RI.contiguous(), tuple(theta0.shape))


def _scale(layer: AdapterLayer, config: Mapping[str, Any]) -> float:
    rank = layer.part("lora_A.weight").shape[0]
    said = _pattern(config.get("rank_pattern"), layer.name, config.get("r"))
    if rank != said:
        raise BadCheckpoint(
            f"the adapter of {layer.name} has rank {rank}, and its configuration says {said}"
        )
    alpha = _pattern(config.get("alpha_pattern"), layer.name, config.get("lora_alpha"))
    if not isinstance(alpha, int | float) or not abs(alpha) <= sys.float_info.max:
        raise BadCheckpoint(f"the adapter's configuration says no lora_alpha for {layer.name}")
    return alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank


def _pattern(table: Mapping[str, Any] | None, layer: str, default: Any) -> Any:
    """The value of the first pattern that matches the end of the layer's name, or the default."""
    try:
        _require_matched_soon(table or {}, layer)
        fits = (k for k in table or () if re.match(rf"(.*\.)?({k})$", layer))
        return (table or {}).get(next(fits, ""), default)
    except (re.error, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise BadCheckpoint(f"a pattern of the adapter cannot be read: {error}") from error


def _require_matched_soon(patterns: Iterable[str], layer: str) -> None:
    """Raises BadCheckpoint if matching may take too long, by the number of ways to be tried."""
    total = 0
    for pattern in patterns:
        if len(pattern) > LONGEST or REPEATED.search(pattern):
            total = MOST_WAYS
        else:
            total += TO_READ * (40 + len(pattern)) + _ways(pattern, len(layer))
        if total >= MOST_WAYS:
            raise BadCheckpoint(
                f"the adapter's pattern {pattern[:100]!r} may take for ever to match: it repeats "
                "a group, or has too many choices; name its layers by fewer, simpler ones"
            )


def _ways(pattern: str, length: int) -> int:
    """An upper bound of the ways to match a pattern that repeats no group: where each repetition
    ends, which of each group's alternatives is taken, and whether each optional part is."""
    repetitions = sum(map(pattern.count, "*+{"))
    alternatives = math.prod(part.count("|") + 1 for part in re.split("[()]", pattern))
    optional = pattern.replace("(?", "(").count("?")
    return math.comb(length + repetitions, repetitions) * alternatives * 2**optional


def _dora(change_OI: Tensor, theta0_OI: Tensor, length_O: Tensor) -> Tensor:
    """m (W0 + BA) / |W0 + BA|, row by row, less W0 (arXiv 2402.09353, equation 5)."""
    sum_OI = theta0_OI + change_OI
    rows_O1 = torch.linalg.norm(sum_OI, dim=1, keepdim=True)
    return length_O.view(-1, 1) * sum_OI / rows_O1 - theta0_OI
