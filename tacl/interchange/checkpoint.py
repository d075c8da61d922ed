"""A fine-tuned model of the same base as a vector: theta - theta0 (arXiv 2212.04089)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tacl.backbone import Backbone
from tacl.errors import BadCheckpoint, BaseMismatch
from tacl.interchange.names import matched
from tacl.interchange.reading import read_tensors
from tacl.vectors import Dense, Params, TaskVector

CLASSIFIER = re.compile(r"(.*\.)?(classifier(\.out_proj)?|score|head(\.fc)?|fc)\.weight")
# Narrower weights, and integers, are numbers only together with scales, which are not read.
WEIGHTS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
KIN = 0.5  # cosine of theta and theta0; fine-tuning stays near 1, another pre-training is near 0


@dataclass(frozen=True)
class ImportedVector:
    """`vector` has a block for every tensor of the encoder that differs from theta0, including
    statistics of normalisation layers. `aside` names the file's tensors that are not part of the
    encoder, and `classifier` is the number of rows of the classifier among these."""

    vector: TaskVector
    aside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    classifier: int | None = None


def vector_of_checkpoint(task: str, backbone: Backbone, path: Path) -> ImportedVector:
    """The checkpoint at `path` as a vector. Raises BadCheckpoint when it cannot be read or lacks,
    adds or reshapes tensors, BaseMismatch when its weights are unrelated to theta0."""
    tensors = read_tensors(path)
    found = matched(backbone, tensors)
    theta0 = backbone.encoder.state_dict()
    theta = {name: tensors[key] for name, key in found.keys.items()}
    _require_whole(backbone, theta, path)
    for name, value in theta.items():
        require_like(name, value, theta0[name])
    _require_kin(backbone, theta, path)
    blocks = {name: Dense(delta) for name, delta in _changes(theta, theta0).items()}
    if not blocks:
        raise BadCheckpoint(f"{path} holds the weights of the base {backbone.spec}, unchanged")
    rows = classifier_rows({key: tensors[key] for key in found.aside})
    vector = TaskVector(task, backbone.digest, "ordinary", blocks)
    return ImportedVector(vector, found.aside, classifier=rows)


def classifier_rows(aside: Mapping[str, Tensor]) -> int | None:
    """Rows of the classifier among tensors outside the encoder; None unless there is just one."""
    found = [v for key, v in aside.items() if CLASSIFIER.fullmatch(key) and v.ndim == 2]
    return found[0].shape[0] if len(found) == 1 else None


def change(value: Tensor, theta0: Tensor) -> Tensor:
    """theta - theta0, float32. theta0 is first rounded to the file's precision, so that the change
    of an untrained weight is exactly 0."""
    return value.float() - theta0.cpu().to(value.dtype).float()


def require_like(name: str, value: Tensor, theta0: Tensor) -> None:
    """Raises BadCheckpoint for a shape other than theta0's, for weights that are no floating-point
    numbers of 16 bits or more, and for what is infinite or NaN, also as float32."""
    if value.shape != theta0.shape:
        raise BadCheckpoint(
            f"{name} has shape {list(value.shape)}, and {list(theta0.shape)} in the base; give a "
            "checkpoint of this base"
        )
    if not theta0.is_floating_point():
        return
    require_float(name, value)
    if not bool(torch.isfinite(value.float()).all()):
        raise BadCheckpoint(f"{name} holds infinities or NaN, or what float32 cannot hold")


def require_float(name: str, value: Tensor) -> None:
    """Raises BadCheckpoint unless the weights are floating-point numbers of 16 bits or more."""
    if value.dtype not in WEIGHTS:
        raise BadCheckpoint(
            f"{name} holds {str(value.dtype).removeprefix('torch.')}; give the weights as "
            "floating-point numbers of 16 bits or more, dequantised"
        )


def _changes(theta: Mapping[str, Tensor], theta0: Mapping[str, Tensor]) -> Params:
    deltas = {
        name: change(value, theta0[name])
        for name, value in theta.items()
        if theta0[name].is_floating_point()
    }
    return {name: delta for name, delta in deltas.items() if bool(delta.any())}


def _require_whole(backbone: Backbone, theta: Mapping[str, Tensor], path: Path) -> None:
    """Raises BadCheckpoint if a parameter is missing; buffers are often left out of files."""
    names = [name for name, _ in backbone.encoder.named_parameters()]
    missing = [name for name in names if name not in theta]
    if missing:
        raise BadCheckpoint(
            f"{path} lacks {len(missing)} of the {len(names)} parameters of the base "
            f"{backbone.spec}, such as {missing[:3]}; give a whole checkpoint of this base"
        )


def _require_kin(backbone: Backbone, theta: Mapping[str, Tensor], path: Path) -> None:
    """Raises BaseMismatch if theta is unlike theta0: two pre-trainings may have equal shapes."""
    matrices = {n: p for n, p in backbone.encoder.named_parameters() if p.ndim > 1}
    inner = left = right = 0.0
    for name, theta0 in matrices.items():
        one, other = theta[name].double().flatten(), theta0.detach().cpu().double().flatten()
        inner += torch.dot(one, other).item()
        left += torch.dot(one, one).item()
        right += torch.dot(other, other).item()
    cosine = inner / math.sqrt(left * right) if left and right else 0.0
    if cosine < KIN:
        raise BaseMismatch(
            f"the weights in {path} have the shapes of {backbone.spec} and another origin: their "
            f"cosine with the base is {cosine:.2f}, where fine-tuning leaves it near 1. Give a "
            "checkpoint that was fine-tuned from this base"
        )
