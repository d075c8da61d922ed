"""Task vectors as they are kept: what one task changed, block by block, in a file of tensors.

A block is dense, low-rank or quantised; all become dense float32 when they are used: whole, or in
pieces of a few rows [O, I] (O is the first axis, I all others; a vector is one row), so that many
vectors can be added up without a dense copy of any.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tacl import params
from tacl.errors import CorruptBlob
from tacl.params import Params

FORMAT = 1
METADATA_KEY = "tacl"  # one key: several would be written in no particular order

Regime = Literal["linearized", "ordinary"]
REGIMES = ("linearized", "ordinary")


@dataclass(frozen=True, eq=False)
class Dense:
    value: Tensor
    kind: ClassVar[str] = "dense"

    def dense(self) -> Tensor:
        return self.value.float()

    def pieces(self, rows: int) -> Iterable[Tensor]:
        whole = as_rows(self.value).split(rows)
        return whole if self.value.dtype == torch.float32 else map(Tensor.float, whole)

    def parts(self) -> Params:
        return {"value": self.value}

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @staticmethod
    def of_parts(parts: Mapping[str, Tensor], shape: tuple[int, ...]) -> Dense:
        return Dense(parts["value"])


@dataclass(frozen=True, eq=False)
class LowRank:
    """left_OR @ right_RI, seen in `shape`."""

    left_OR: Tensor
    right_RI: Tensor
    shape: tuple[int, ...]
    kind: ClassVar[str] = "low_rank"

    @staticmethod
    def of(value: Tensor, rank: int) -> LowRank:
        """The closest block of this rank (truncated singular value decomposition)."""
        u, s, v = torch.linalg.svd(as_rows(value).float(), full_matrices=False)
        return LowRank(u[:, :rank] * s[:rank], v[:rank].contiguous(), tuple(value.shape))

    def dense(self) -> Tensor:
        return (self.left_OR.float() @ self.right_RI.float()).view(self.shape)

    def pieces(self, rows: int) -> Iterable[Tensor]:
        right_RI = self.right_RI.float()
        return (left_OR.float() @ right_RI for left_OR in self.left_OR.split(rows))

    def parts(self) -> Params:
        return {"left": self.left_OR, "right": self.right_RI}

    @staticmethod
    def of_parts(parts: Mapping[str, Tensor], shape: tuple[int, ...]) -> LowRank:
        return LowRank(parts["left"], parts["right"], shape)


@dataclass(frozen=True, eq=False)
class Quantised:
    """int8 codes_OI times one float32 scale per row O, seen in `shape`."""

    codes_OI: Tensor
    scales_O: Tensor
    shape: tuple[int, ...]
    kind: ClassVar[str] = "quantised"

    @staticmethod
    def of(value: Tensor) -> Quantised:
        """Symmetric rounding; the error of an entry is at most half of its row's scale."""
        rows_OI = as_rows(value).float()
        scales_O = rows_OI.abs().amax(1) / 127
        steps_O1 = torch.where(scales_O > 0, scales_O, 1).unsqueeze(1)
        codes_OI = (rows_OI / steps_O1).round().to(torch.int8)
        return Quantised(codes_OI, scales_O, tuple(value.shape))

    def dense(self) -> Tensor:
        return _scaled(self.codes_OI, self.scales_O).view(self.shape)

    def pieces(self, rows: int) -> Iterable[Tensor]:
        return map(_scaled, self.codes_OI.split(rows), self.scales_O.split(rows))

    def parts(self) -> Params:
        return {"codes": self.codes_OI, "scales": self.scales_O}

    @staticmethod
    def of_parts(parts: Mapping[str, Tensor], shape: tuple[int, ...]) -> Quantised:
        return Quantised(parts["codes"], parts["scales"], shape)


def _scaled(codes_OI: Tensor, scales_O: Tensor) -> Tensor:
    return codes_OI * scales_O.unsqueeze(1)


Block = Dense | LowRank | Quantised
KINDS = {"dense": Dense, "low_rank": LowRank, "quantised": Quantised}


@dataclass(frozen=True, eq=False)
class TaskVector:
    """theta - theta0 of one task. `base` is the digest of the encoder that it belongs to.

    `regime` says in which model it was trained, and so in which it may be added: linearized at
    theta0, or ordinary.
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
        blocks = {n: Dense(v.detach().cpu().contiguous()) for n, v in tau.items()}
        return TaskVector(task, base, regime, blocks)

    def to_params(self) -> Params:
        """Dense float32 blocks."""
        return {name: block.dense() for name, block in self.blocks.items()}

    @cached_property
    def digest(self) -> str:
        """sha256 over content, head and tensors as kept; not over the order of a file."""
        head = json.dumps(self._head(), sort_keys=True)
        return hashlib.sha256(f"{head}\0{params.digest(self._parts())}".encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Equal vectors give equal bytes."""
        text = json.dumps({**self._head(), "digest": self.digest}, sort_keys=True)
        tensors = {name: part.contiguous() for name, part in self._parts().items()}
        save_file(tensors, path, metadata={METADATA_KEY: text})

    @staticmethod
    def load(path: Path) -> TaskVector:
        """Tensors are mapped from the file. CorruptBlob: it is truncated, altered or foreign."""
        try:
            with safe_open(path, framework="pt") as file:
                head = json.loads((file.metadata() or {})[METADATA_KEY])
                parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            vector = _assembled(head, parts)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise CorruptBlob(f"{path} is no whole task vector: {error!r}") from error
        if vector.digest != head["digest"]:
            raise CorruptBlob(
                f"{path} was altered: its content has digest {vector.digest}, "
                f"and it was written with {head['digest']}"
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
    parts: dict[str, Params] = {}
    for key, value in tensors.items():
        part, _, name = key.partition(":")
        parts.setdefault(name, {})[part] = value
    blocks = {
        name: KINDS[entry["kind"]].of_parts(parts[name], tuple(entry["shape"]))
        for name, entry in head["blocks"].items()
    }
    return TaskVector(head["task"], head["base"], head["regime"], blocks)


def as_rows(value: Tensor) -> Tensor:
    """[O, I]: the first axis, and all others."""
    return value.reshape(1, -1) if value.ndim < 2 else value.flatten(1)
