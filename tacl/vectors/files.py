"""Tensors with a head of facts in one safetensors file, as vectors and statistics are stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tacl.errors import CorruptBlob
from tacl.vectors.params import Params

T = TypeVar("T")
BROKEN = (SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError)
METADATA_KEY = "tacl"  # one key: several would be written in no particular order


def write(path: Path, head: Mapping[str, Any], tensors: Params) -> None:
    """Writes head and tensors; equal ones give equal bytes."""
    tensors = {name: value.cpu().contiguous() for name, value in tensors.items()}
    save_file(tensors, path, metadata={METADATA_KEY: json.dumps(head, sort_keys=True)})


def read(path: Path, what: str, assembled: Callable[[dict[str, Any], Params], T]) -> tuple[T, dict]:
    """The result of `assembled` for head and tensors, which are mapped from the file; and the head.

    Raises CorruptBlob, saying `what`, if the file is truncated or foreign, or `assembled` fails.
    """
    try:
        with safe_open(path, framework="pt") as file:
            head = json.loads((file.metadata() or {})[METADATA_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return assembled(head, tensors), head
    except BROKEN as error:
        raise CorruptBlob(f"{path} {what}: {error!r}") from error
