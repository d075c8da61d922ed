"""Labelled rows as heads see them under a sum of vectors, kept in a file.

A row is measured when it is new. Then, a few at a time, those that were measured longest ago are
measured again under the sums of now: so a fit costs the same however many tasks there are, and
rows follow the vectors that arrive.
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
    """Of one row: what f(x) + J(x) sum tau was in its turn."""

    turn: int
    moved_D: Tensor


def due(seen: Mapping[int, CachedRow], chosen: Sequence[int], again: int) -> list[int]:
    """Of the chosen rows those that are new, and of the others the `again` that were measured
    longest ago."""
    new = [row for row in chosen if row not in seen]
    old = sorted((row for row in chosen if row in seen), key=lambda row: (seen[row].turn, row))
    return new + old[:again]


def read(path: Path) -> dict[int, CachedRow]:
    """By number of the row."""
    if not (found := _whole(path)).keys() >= {"rows", "turns", "moved"}:
        return {}
    columns = found["rows"].tolist(), found["turns"].tolist(), found["moved"]
    return {row: CachedRow(turn, moved_D) for row, turn, moved_D in zip(*columns, strict=True)}


class Writer(NamedTuple):
    """The run that wrote a file last, and the tasks whose vectors were in any of its sums."""

    run_id: str = ""
    tasks: frozenset[str] = frozenset()


def written_by(path: Path) -> Writer:
    """An earlier version kept no tasks."""
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
    """What is in the file by this name; None where there is no whole file."""
    return _whole(path).get(name)


def kept(path: Path, make: Callable[[], Tensor], name: str = "features") -> Tensor:
    """What is in the file by this name, or else is made and then is."""
    if (features_ND := tensor_of(path, name)) is None:
        features_ND = make()
        _keep(path, {name: features_ND.contiguous()})
    return features_ND


def _whole(path: Path) -> dict[str, Tensor]:
    """Nothing where there is no whole file: it can be made again."""
    try:
        return load_file(path)
    except (OSError, SafetensorError):
        return {}


def _keep(path: Path, tensors: dict[str, Tensor], about: dict[str, str] | None = None) -> None:
    """Whole or not at all; where that cannot be, it is made again when it is needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as draft:
            save_file(tensors, draft, about)
    except (OSError, SafetensorError):
        LOG.exception("%s is not kept: it is made again when it is needed", path.name)
