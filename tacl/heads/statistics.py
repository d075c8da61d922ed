"""What is kept of a task's labelled rows: enough to solve heads of any sum of tasks.

Features of a row of task t in a model with coefficient a are f + a J tau_t: what the vectors of
other tasks add there is left out (results/heads-choice.md has what that costs). Counts, class sums
and the scatter around class means add up over rows and over tasks. A scatter tells a lot about few
rows: whoever may not see the rows may not see the statistics.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tacl.errors import BadRecipe, CorruptBlob, EmptySplit, LabelOutOfRange
from tacl.heads.expansion import IDENTITY, Expansion
from tacl.vectors import params
from tacl.vectors.params import Params

FORMAT = 1
METADATA_KEY = "tacl"
LEAST_ROWS = 5  # of a class: the sum of one row is the row


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Of one task under one vector of the encoder `base`; both are digests.

    sums_KCD and scatter_KP are the terms of polynomials in the coefficient a: class sums of f and
    J tau; the upper triangles of S_ff, S_ft + S_tf and S_tt around class means. With an expansion
    that is not the identity they have one term each, for a = 1.
    """

    task: str
    base: str
    vector: str
    classes: tuple[str, ...]
    expansion: Expansion
    counts_C: Tensor
    sums_KCD: Tensor
    scatter_KP: Tensor

    @property
    def rows(self) -> int:
        return int(self.counts_C.sum())

    @property
    def dimension(self) -> int:
        """Of phi."""
        return self.sums_KCD.shape[2]

    def sums_at(self, coefficient: float) -> Tensor:
        """Sums of phi over the rows of each class, [C, D] float64. BadRecipe: see `powers`."""
        powers_K = self._powers(coefficient, len(self.sums_KCD))
        return torch.einsum("k,kcd->cd", powers_K, self.sums_KCD.double())

    def scatter_at(self, coefficient: float) -> Tensor:
        """S_ff + a (S_ft + S_tf) + a^2 S_tt, a triangle [P] float64. BadRecipe as `sums_at`."""
        powers_K = self._powers(coefficient, len(self.scatter_KP))
        return powers_K @ self.scatter_KP.double()

    @cached_property
    def digest(self) -> str:
        head = json.dumps(self._head(), sort_keys=True)
        return hashlib.sha256(f"{head}\0{params.digest(self._tensors())}".encode()).hexdigest()

    def save(self, path: Path) -> None:
        """One safetensors file; equal statistics give equal bytes."""
        text = json.dumps({**self._head(), "digest": self.digest}, sort_keys=True)
        save_file(self._tensors(), path, metadata={METADATA_KEY: text})

    @staticmethod
    def load(path: Path) -> HeadStatistics:
        """CorruptBlob: it is truncated, altered, foreign, or holds what no statistics can be."""
        try:
            with safe_open(path, framework="pt") as file:
                head = json.loads((file.metadata() or {})[METADATA_KEY])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            found = _assembled(head, tensors)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise CorruptBlob(f"{path} holds no whole head statistics: {error!r}") from error
        if found.digest != head["digest"]:
            raise CorruptBlob(
                f"{path} was altered: its content has digest {found.digest}, "
                f"and it was written with {head['digest']}"
            )
        return found

    def _powers(self, coefficient: float, terms: int) -> Tensor:
        if self.expansion != IDENTITY and coefficient != 1:
            raise BadRecipe(
                f"{self.task} at coefficient {coefficient:g}: its statistics are of expanded "
                f"features and hold for coefficient 1 alone; use those of plain features"
            )
        return torch.tensor([coefficient**k for k in range(terms)], dtype=torch.float64)

    def _head(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "task": self.task,
            "base": self.base,
            "vector": self.vector,
            "classes": list(self.classes),
            "expansion": [self.expansion.width, self.expansion.seed],
        }

    def _tensors(self) -> Params:
        found = {"counts": self.counts_C, "sums": self.sums_KCD, "scatter": self.scatter_KP}
        return {name: value.cpu().contiguous() for name, value in found.items()}


def measured(
    task: str,
    base: str,
    vector: str,
    classes: Sequence[str],
    features_ND: Tensor,
    tangents_ND: Tensor,
    labels_N: Tensor,
    expansion: Expansion = IDENTITY,
) -> HeadStatistics:
    """From f(x; theta0) and J(x) tau of the task's own labelled rows; summed in float64.

    LabelOutOfRange; EmptySplit: a class has fewer than LEAST_ROWS rows.
    """
    if len(labels_N) and not 0 <= int(labels_N.min()) <= int(labels_N.max()) < len(classes):
        raise LabelOutOfRange(f"labels {labels_N.min()}..{labels_N.max()}, {len(classes)} classes")
    counts_C = torch.bincount(labels_N, minlength=len(classes))
    few = [
        name for name, count in zip(classes, counts_C.tolist(), strict=True) if count < LEAST_ROWS
    ]
    if few:
        raise EmptySplit(f"{task}: the classes {few} have fewer than {LEAST_ROWS} labelled rows")
    pair = features_ND.double(), tangents_ND.double()
    parts = list(pair) if expansion == IDENTITY else [expansion(pair[0] + pair[1])]
    sums = [
        part.new_zeros(len(classes), part.shape[1]).index_add_(0, labels_N, part) for part in parts
    ]
    centred = [
        part - (total / counts_C.unsqueeze(1))[labels_N]
        for part, total in zip(parts, sums, strict=True)
    ]
    facts = (task, base, vector, tuple(classes), expansion, counts_C)
    return HeadStatistics(*facts, torch.stack(sums).float(), _scatter(centred).float())


def merged(parts: Sequence[HeadStatistics]) -> HeadStatistics:
    """Of the rows of all parts together: the same task and vector, measured in several places.

    A class's scatter grows by n m / (n + m) d d', where d is what lies between the two means.
    """
    first, *rest = sorted(parts, key=lambda part: part.digest)
    for part in rest:
        if part._head() != first._head():
            raise ValueError(f"not of one measurement: {first._head()} and {part._head()}")
        first = _added(first, part)
    return first


def _added(left: HeadStatistics, right: HeadStatistics) -> HeadStatistics:
    n_C, m_C = left.counts_C.double(), right.counts_C.double()
    between_KCD = left.sums_KCD.double() / n_C[:, None] - right.sums_KCD.double() / m_C[:, None]
    weighted = [(n_C * m_C / (n_C + m_C)).sqrt()[:, None] * part_CD for part_CD in between_KCD]
    scatter_KP = left.scatter_KP.double() + right.scatter_KP.double() + _scatter(weighted)
    return replace(
        left,
        counts_C=left.counts_C + right.counts_C,
        sums_KCD=(left.sums_KCD.double() + right.sums_KCD.double()).float(),
        scatter_KP=scatter_KP.float(),
    )


def _scatter(parts: Sequence[Tensor]) -> Tensor:
    """Triangles of the products of one part of the features, or of two: [1, P] or [3, P]."""
    if len(parts) == 1:
        return triangle(parts[0].T @ parts[0]).unsqueeze(0)
    plain_ND, moved_ND = parts
    mixed_DD = plain_ND.T @ moved_ND
    squares = (plain_ND.T @ plain_ND, mixed_DD + mixed_DD.T, moved_ND.T @ moved_ND)
    return torch.stack([triangle(one) for one in squares])


def triangle(symmetric_DD: Tensor) -> Tensor:
    """Its entries on and above the diagonal, [D (D + 1) / 2]."""
    row_P, column_P = torch.triu_indices(*symmetric_DD.shape)
    return symmetric_DD[row_P, column_P]


def symmetric(triangle_P: Tensor, dimension: int) -> Tensor:
    """The matrix of a triangle, [D, D]."""
    row_P, column_P = torch.triu_indices(dimension, dimension)
    found_DD = triangle_P.new_empty(dimension, dimension)
    found_DD[row_P, column_P] = triangle_P
    found_DD[column_P, row_P] = triangle_P
    return found_DD


def _assembled(head: Mapping[str, Any], tensors: Params) -> HeadStatistics:
    if head["format"] != FORMAT:
        raise ValueError(f"format {head['format']}; this version reads format {FORMAT}")
    expansion = Expansion(*head["expansion"])
    counts_C, sums_KCD, scatter_KP = (tensors[name] for name in ("counts", "sums", "scatter"))
    classes, (terms, _, dimension) = tuple(head["classes"]), sums_KCD.shape
    squares = (3, 2) if expansion == IDENTITY else (1, 1)
    expected = [(len(classes),), (squares[1], len(classes), dimension)]
    expected.append((squares[0], dimension * (dimension + 1) // 2))
    found = [tuple(value.shape) for value in (counts_C, sums_KCD, scatter_KP)]
    if found != expected or terms != squares[1]:
        raise ValueError(f"shapes {found} where {expected} belong")
    if not sums_KCD.isfinite().all() or not scatter_KP.isfinite().all():
        raise ValueError("a value is not finite")
    if counts_C.dtype != torch.int64 or int(counts_C.min()) < LEAST_ROWS:
        raise ValueError(f"a class has fewer than {LEAST_ROWS} rows: {counts_C.tolist()}")
    facts = (head["task"], head["base"], head["vector"], classes, expansion)
    return HeadStatistics(*facts, counts_C, sums_KCD, scatter_KP)
