"""Task vectors as they are stored: the change that one task made, by block, in a tensor file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from tacl.errors import BaseMismatch, CorruptBlob
from tacl.vectors import files, params
from tacl.vectors.blocks import KINDS, Block, Dense, Storage, stored
from tacl.vectors.params import Params

FORMAT = 1

Regime = Literal["linearized", "ordinary"]
REGIMES = ("linearized", "ordinary")


@dataclass(frozen=True, eq=False)
class TaskVector:
    """theta - theta0 of one task, block by block, in the shapes of the base model's blocks.

    Args:
        task: its name.
        base: the digest of the base model that it belongs to, `Backbone.digest`.
        regime: the model in which it was trained, and so in which it may be added: linearized at
            theta0, or ordinary.
        blocks: by the name of the parameter; `to_params` returns them dense, in float32.

    Raises ValueError for any other regime.
    Source: arXiv 2212.04089 (task vectors); arXiv 2305.12827 (linearized).
    """

    task: str
    base: str
    regime: Regime
    blocks: Mapping[str, Block]

    def __post_init__(self) -> None:
        if self.regime not in REGIMES:
            raise ValueError(f"regime {self.regime!r} is none of {REGIMES}")

    @staticmethod
    def of_params(task: str, base: str, regime: Regime, tau: Mapping[str, Tensor]) -> TaskVector:
        """A vector of tensors by block, such as `LinearizedEncoder.tau_dict`, in their own dtype.

        Blocks are on the CPU and without a graph, and share the tensors' memory if possible. They
        are not compared with the base model here: `LinearizedEncoder.load_tau` refuses those that
        do not fit. Raises ValueError for any other regime.
        """
        blocks = {n: Dense(v.detach().cpu().contiguous()) for n, v in tau.items()}
        return TaskVector(task, base, regime, blocks)

    def require_base(self, digest: str, what: str, here: str = "this home's") -> None:
        """Raises BaseMismatch unless the vector is of the base model with this digest."""
        if self.base != digest:
            raise BaseMismatch(
                f"{what} belongs to the base {self.base[:12]}, and {here} is {digest[:12]}; use "
                "the base that it was made with, or a vector of this one"
            )

    def stored(self, storage: Storage) -> TaskVector:
        """A copy with blocks of another storage; lost precision cannot be restored.

        `storage`: "float32", "bfloat16", "int8" or "int4"; see `tacl/vectors/blocks.py`.
        """
        blocks = {name: stored(block.dense(), storage) for name, block in self.blocks.items()}
        return replace(self, blocks=blocks)

    def to_params(self) -> Params:
        """tau by block: dense, float32, of the base model's shapes."""
        return {name: block.dense() for name, block in self.blocks.items()}

    @cached_property
    def digest(self) -> str:
        """sha256 in hex over head and tensors as stored, whatever their order in a file."""
        head = json.dumps(self._head(), sort_keys=True)
        return hashlib.sha256(f"{head}\0{params.digest(self._parts())}".encode()).hexdigest()

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, as stored."""
        return sum(part.nbytes for part in self._parts().values())

    def save(self, path: Path) -> None:
        """Writes a safetensors file; equal vectors give equal bytes.

        Raises safetensors.SafetensorError if it cannot be written.
        """
        files.write(path, {**self._head(), "digest": self.digest}, self._parts())

    @staticmethod
    def load(path: Path) -> TaskVector:
        """The vector of a file, with tensors mapped from it. Raises CorruptBlob if the file is
        truncated, altered or foreign."""
        vector, head = files.read(path, "is not a complete task vector", _assembled)
        if vector.digest != (written := head.get("digest")):
            raise CorruptBlob(
                f"{path} was altered: its content has digest {vector.digest}, "
                f"and it was written with {written}"
            )
        return vector

    def _head(self) -> dict[str, Any]:
        blocks = {n: {"kind": b.kind, "shape": list(b.shape)} for n, b in self.blocks.items()}
        return {
            "format": FORMAT,
            "task": self.task,
            "base": self.base,
            "regime": self.regime,
            "blocks": blocks,
        }

    def _parts(self) -> Params:
        return {
            f"{part}:{name}": value
            for name, block in self.blocks.items()
            for part, value in block.parts().items()
        }


def _assembled(head: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> TaskVector:
    if head["format"] != FORMAT:
        raise ValueError(f"format {head['format']}; this version reads format {FORMAT}")
    if not all(isinstance(head[name], str) for name in ("task", "base")):
        raise ValueError("the names of its task and its base are no texts")
    parts: dict[str, Params] = {}
    for key, value in tensors.items():
        part, _, name = key.partition(":")
        parts.setdefault(name, {})[part] = value
    blocks = {
        name: KINDS[entry["kind"]].of_parts(parts[name], tuple(entry["shape"]))
        for name, entry in head["blocks"].items()
    }
    return TaskVector(head["task"], head["base"], head["regime"], blocks)
