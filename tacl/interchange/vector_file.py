"""A task vector's own file, from another home of the same base; hostile until checked."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tacl.backbone import Backbone
from tacl.errors import BadCheckpoint, CorruptBlob
from tacl.interchange.checkpoint import ImportedVector, require_like
from tacl.vectors.blocks import GROUP, Block, Dense, EightBit, LowRank, as_rows
from tacl.vectors.files import METADATA_KEY
from tacl.vectors.vector import TaskVector

VECTOR = "vector.safetensors"
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def is_vector(path: Path) -> bool:
    """Whether the file, or the folder's `vector.safetensors`, is a vector by its metadata."""
    file = path / VECTOR if path.is_dir() else path
    if not file.is_file() or file.suffix != ".safetensors":
        return False
    try:
        with safe_open(file, framework="pt") as opened:
            return METADATA_KEY in (opened.metadata() or {})
    except SafetensorError:
        return False


def vector_of_file(task: str, backbone: Backbone, path: Path) -> ImportedVector:
    """The file's vector, bit for bit, renamed to `task`. Raises BadCheckpoint if the file is
    damaged or does not fit the base, BaseMismatch for a vector of another base."""
    file = path / VECTOR if path.is_dir() else path
    try:
        vector = TaskVector.load(file)
    except CorruptBlob as error:
        raise BadCheckpoint(str(error)) from error
    vector.require_base(backbone.digest, f"the vector in {file}", str(backbone.spec))
    theta0 = backbone.encoder.state_dict()
    for name, block in vector.blocks.items():
        if name not in theta0 or not theta0[name].is_floating_point():
            raise BadCheckpoint(f"{file} changes {name[:80]!r}, which {backbone.spec} has not")
        _require_fitting(name, block, theta0[name])
    return ImportedVector(replace(vector, task=task))


def _require_fitting(name: str, block: Block, theta0: Tensor) -> None:
    """Checks shapes before the block is made dense, as its parts may claim any size."""
    if block.shape != tuple(theta0.shape) or not _fits(block, theta0):
        shapes = {part: list(value.shape) for part, value in block.parts().items()}
        raise BadCheckpoint(
            f"the {block.kind} block of {name}, {list(block.shape)} in {shapes}, is none of a "
            f"tensor {list(theta0.shape)}; give a vector of this base"
        )
    require_like(name, block.dense(), theta0)


def _fits(block: Block, theta0: Tensor) -> bool:
    rows, columns = as_rows(theta0).shape
    if isinstance(block, Dense):
        return _is(block.value, FLOATS, *theta0.shape)
    if isinstance(block, LowRank):
        rank = block.right_RI.shape[0] if block.right_RI.ndim else 0
        return _is(block.left_OR, FLOATS, rows, rank) and _is(block.right_RI, FLOATS, rank, columns)
    if isinstance(block, EightBit):
        return _is(block.codes_OI, (torch.int8,), rows, columns) and _is(
            block.scales_O, (torch.float32,), rows
        )
    groups = math.ceil(columns / GROUP)
    return _is(block.pairs_OP, (torch.uint8,), rows, groups * GROUP // 2) and _is(
        block.scales_OG, (torch.float32,), rows, groups
    )


def _is(part: Tensor, kinds: tuple[torch.dtype, ...], *shape: int) -> bool:
    return part.dtype in kinds and tuple(part.shape) == shape
