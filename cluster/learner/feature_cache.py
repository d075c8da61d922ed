"""A cache, in files, of labelled rows' features under sums of vectors.

A row is measured when it is new. Later, a few at a time, the rows that were measured longest ago
are measured again under the current sums: so the cost of a fit does not depend on the number of
tasks, and rows follow the vectors that arrive.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from cluster.storage.drafts import atomic_path

LOG = logging.getLogger(__name__)


class CachedRow(NamedTuple):
    """f(x) + J(x) sum tau of one row, and the turn in which it was measured."""

    turn: int
    moved_D: Tensor


def due(seen: Mapping[int, CachedRow], chosen: Sequence[int], again: int) -> list[int]:
    """The chosen rows that are new, and the `again` others that were measured longest ago."""
    new = [row for row in chosen if row not in seen]
    old = sorted((row for row in chosen if row in seen), key=lambda row: (seen[row].turn, row))
    return new + old[:again]


def read(path: Path) -> dict[int, CachedRow]:
    """The rows in the file, by their number; empty if there is no complete file."""
    if not (found := _whole(path)).keys() >= {"rows", "turns", "moved"}:
        return {}
    columns = found["rows"].tolist(), found["turns"].tolist(), found["moved"]
    return {row: CachedRow(turn, moved_D) for row, turn, moved_D in zip(*columns, strict=True)}


class Writer(NamedTuple):
    """The run that wrote a file last, and the tasks whose vectors were in any of its sums."""

    run_id: str = ""
    tasks: frozenset[str] = frozenset()


def written_by(path: Path) -> Writer:
    """Files of an earlier version name no tasks."""
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
    except (OSError, SafetensorError):
        return Writer()
    return Writer(about.get("run", ""), frozenset(json.loads(about.get("tasks", "[]"))))


def write(path: Path, seen: Mapping[int, CachedRow], writer: Writer) -> None:
    turns, moved = zip(*seen.values(), strict=True)
    tensors = {
        "rows": torch.tensor(list(seen)),
        "turns": torch.tensor(turns),
        "moved": torch.stack(moved),
    }
    _keep(path, tensors, {"run": writer.run_id, "tasks": json.dumps(sorted(writer.tasks))})


def tensor_of(path: Path, name: str) -> Tensor | None:
    """The file's tensor of this name; None if there is no complete file."""
    return _whole(path).get(name)


def kept(path: Path, make: Callable[[], Tensor], name: str = "features") -> Tensor:
    """The file's tensor of this name; if it is missing, `make` makes it and it is stored."""
    if (features_ND := tensor_of(path, name)) is None:
        features_ND = make()
        _keep(path, {name: features_ND.contiguous()})
    return features_ND


def _whole(path: Path) -> dict[str, Tensor]:
    """The file's tensors; empty if there is no complete file, as it can be computed again."""
    try:
        return load_file(path)
    except (OSError, SafetensorError):
        return {}


def _keep(path: Path, tensors: dict[str, Tensor], about: dict[str, str] | None = None) -> None:
    """Writes the file completely or not at all; if that fails, it is recomputed when needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as draft:
            save_file(tensors, draft, about)
    except (OSError, SafetensorError):
        LOG.exception("%s is not kept: it is made again when it is needed", path.name)
