"""Compares the classes that a vector or a checkpoint states with those of the given rows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from tacl.errors import BadCheckpoint
from tacl.interchange.vector_file import VECTOR
from tacl.interchange.writing import HEADS
from tacl.vectors.files import BROKEN

SHOWN = 5  # names in a message


@dataclass(frozen=True)
class Stated:
    """The classes that a file states; `names` is empty if it has none. `is_own`: they are of the
    head that was exported with a vector; a checkpoint's classifier may be that of its
    pre-training."""

    where: str
    count: int
    names: tuple[str, ...] = ()
    is_own: bool = False

    def differing(self, classes: Sequence[str]) -> str | None:
        """A warning if the rows have other classes, else None. Raises BadCheckpoint if a vector's
        own head has another number of classes and the rows' are not a subset of them."""
        own, given = set(self.names), set(classes)
        if self.count == len(classes) and (own == given or not own):
            return None
        names = f" ({_some(self.names)})" if own else ""
        said = f"{self.where} is of {self.count} classes{names}, the rows are of {len(classes)}"
        said = f"{said} ({_some(classes)}): give the rows of its own task"
        if self.is_own and self.count != len(classes) and not given <= own:
            raise BadCheckpoint(said)
        return f"{said}, if these are not"


def stated(path: Path, rows: int | None) -> Stated | None:
    """The classes stated at `path`; None if there is nothing to compare. `rows`: number of rows of
    the checkpoint's classifier."""
    folder = path.parent if path.name == VECTOR else path
    if (names := _of_heads(folder / HEADS)) is not None:
        return Stated(HEADS, len(names), names, is_own=True)
    if rows is None:
        return None
    labels = _of_config(folder / "config.json")
    return Stated("its classifier", rows, labels if len(labels) == rows else ())


def _some(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > SHOWN else ""
    return ", ".join(name[:80] for name in names[:SHOWN]) + more


def _of_heads(file: Path) -> tuple[str, ...] | None:
    """The classes of the only head in the file; None if there are several."""
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            (head,) = json.loads((opened.metadata() or {})["heads"]).values()
        return _printable(head["classes"])
    except BROKEN:
        return None  # several heads, or somebody else's file


def _of_config(file: Path) -> tuple[str, ...]:
    """The names of the classes in a config.json of transformers; empty if there are none."""
    try:
        labels: Any = json.loads(file.read_text())["id2label"]
        names = _printable([labels[key] for key in sorted(labels, key=int)])
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return ()
    return () if all(re.fullmatch(r"LABEL_\d+", name) for name in names) else names


def _printable(names: Any) -> tuple[str, ...]:
    """The names as a tuple; raises ValueError if they cannot be shown on a terminal."""
    if not all(isinstance(name, str) and name.isprintable() for name in names):
        raise ValueError("names of classes that cannot be shown")
    return tuple(names)
