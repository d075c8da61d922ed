"""One block of a task vector as it is stored: dense, low-rank, in eight bits or in four.

All kinds become dense float32 when they are used: whole, or in pieces of a few rows [O, I] (O is
the first axis, I all others; a tensor of one axis is one row), so that many vectors can be added
without a dense copy of any.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from tacl.vectors.params import Params

Storage = Literal["float32", "bfloat16", "int8", "int4"]
GROUP = 64  # entries of a row that share a scale in four bits


class _Kept:
    """Base of all kinds: access to their tensors by the names that they have in a file."""

    kind: ClassVar[str]
    names: ClassVar[dict[str, str]]  # name in a file -> field, in the order of the fields

    def parts(self) -> Params:
        return {name: getattr(self, field) for name, field in self.names.items()}

    @classmethod
    def of_parts(cls, parts: Mapping[str, Tensor], shape: tuple[int, ...]) -> Any:
        make: Any = cls
        return make(*(parts[name] for name in cls.names), shape)


@dataclass(frozen=True, eq=False)
class Dense(_Kept):
    value: Tensor
    kind = "dense"
    names = {"value": "value"}

    def dense(self) -> Tensor:
        return self.value.float()

    def pieces(self, rows: int) -> Iterable[Tensor]:
        whole = as_rows(self.value).split(rows)
        return whole if self.value.dtype == torch.float32 else map(Tensor.float, whole)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @classmethod
    def of_parts(cls, parts: Mapping[str, Tensor], shape: tuple[int, ...]) -> Dense:
        return cls(parts["value"])


@dataclass(frozen=True, eq=False)
class LowRank(_Kept):
    """left_OR @ right_RI, viewed in `shape`."""

    left_OR: Tensor
    right_RI: Tensor
    shape: tuple[int, ...]
    kind = "low_rank"
    names = {"left": "left_OR", "right": "right_RI"}

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


@dataclass(frozen=True, eq=False)
class EightBit(_Kept):
    """int8 codes_OI times one float32 scale per row O, viewed in `shape`."""

    codes_OI: Tensor
    scales_O: Tensor
    shape: tuple[int, ...]
    kind = "eight_bit"
    names = {"codes": "codes_OI", "scales": "scales_O"}

    @staticmethod
    def of(value: Tensor) -> EightBit:
        """Symmetric rounding; the error of an entry is at most half of its row's scale."""
        rows_OI = as_rows(value).float()
        scales_O = rows_OI.abs().amax(1) / 127
        steps_O1 = torch.where(scales_O > 0, scales_O, 1).unsqueeze(1)
        codes_OI = (rows_OI / steps_O1).round().to(torch.int8)
        return EightBit(codes_OI, scales_O, tuple(value.shape))

    def dense(self) -> Tensor:
        return _scaled(self.codes_OI, self.scales_O).view(self.shape)

    def pieces(self, rows: int) -> Iterable[Tensor]:
        return map(_scaled, self.codes_OI.split(rows), self.scales_O.split(rows))


def _scaled(codes_OI: Tensor, scales_O: Tensor) -> Tensor:
    return codes_OI * scales_O.unsqueeze(1)


@dataclass(frozen=True, eq=False)
class FourBit(_Kept):
    """Codes from -7 to 7, two to a byte, times one float32 scale per group G of a row O.

    pairs_OP: a code plus 8 in each half byte, the first one in the lower; viewed in `shape`.
    """

    pairs_OP: Tensor
    scales_OG: Tensor
    shape: tuple[int, ...]
    kind = "four_bit"
    names = {"pairs": "pairs_OP", "scales": "scales_OG"}

    @staticmethod
    def of(value: Tensor) -> FourBit:
        """Symmetric rounding; the error of an entry is at most half of its group's scale."""
        rows_OI = as_rows(value).float()
        missing = -rows_OI.shape[1] % GROUP
        groups_OGE = torch.nn.functional.pad(rows_OI, (0, missing)).unflatten(1, (-1, GROUP))
        scales_OG = groups_OGE.abs().amax(-1) / 7
        steps_OG1 = torch.where(scales_OG > 0, scales_OG, 1).unsqueeze(-1)
        codes_OE = ((groups_OGE / steps_OG1).round() + 8).flatten(1).to(torch.uint8)
        pairs_OP = codes_OE[:, 0::2] | codes_OE[:, 1::2] << 4
        return FourBit(pairs_OP, scales_OG, tuple(value.shape))

    def dense(self) -> Tensor:
        return self._values(self.pairs_OP, self.scales_OG).view(self.shape)

    def pieces(self, rows: int) -> Iterable[Tensor]:
        return map(self._values, self.pairs_OP.split(rows), self.scales_OG.split(rows))

    def _values(self, pairs_OP: Tensor, scales_OG: Tensor) -> Tensor:
        codes_OE = torch.stack((pairs_OP & 15, pairs_OP >> 4), -1).flatten(1)
        groups_OGE = (codes_OE.to(torch.int8) - 8).unflatten(1, (-1, GROUP))
        width = math.prod(self.shape[1:] if len(self.shape) > 1 else self.shape)
        return (groups_OGE * scales_OG.unsqueeze(-1)).flatten(1)[:, :width]


Block = Dense | LowRank | EightBit | FourBit
KINDS = {kind.kind: kind for kind in (Dense, LowRank, EightBit, FourBit)}


def stored(value: Tensor, storage: Storage) -> Block:
    """A block of this value. Biases and gains are small and stay float32."""
    if storage == "float32" or value.ndim < 2:
        return Dense(value.float())
    if storage == "bfloat16":
        return Dense(value.bfloat16())
    return EightBit.of(value) if storage == "int8" else FourBit.of(value)


def as_rows(value: Tensor) -> Tensor:
    """The tensor as [O, I]: the first axis, and all others; one row if it has fewer than two."""
    return value.reshape(1, -1) if value.ndim < 2 else value.flatten(1)
