"""Files of a folder that are in no split. `datasets` takes some names of files and folders for
those of splits (train, test, dev ...); where it finds one, it passes over all files without such a
name."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from datasets import DatasetBuilder
from datasets.data_files import resolve_pattern
from datasets.packaged_modules.folder_based_builder.folder_based_builder import FolderBasedBuilder

from cluster.domain.names import listed
from tacl.errors import BadConfig

SHOWN = 3  # of many files


def files_of(builder: DatasetBuilder) -> dict[str, list[str]]:
    """Those that are read, of every split."""
    splits: Any = builder.config.data_files or {}
    return {str(split): list(files) for split, files in splits.items()}


def note_left_out(data: str, folder: Path, builder: DatasetBuilder) -> list[str]:
    """A note of files that are of no split, if any. Raises BadConfig where the others cannot be all
    that is meant to be trained on: none is of the split train, or they are pictures among those
    that are left out."""
    splits = files_of(builder)
    used = {file for files in splits.values() for file in files}
    left = _left(folder, used, builder)
    if not left:
        return []
    shown = listed([os.path.relpath(file, folder) for file in left], SHOWN)
    if "train" not in splits or _are_among(left, used, builder):
        split, (one, *_) = next(iter(splits.items()))
        raise BadConfig(
            f"{data}: {shown} would be left out, since {os.path.relpath(one, folder)!r} is read as "
            f"split {split} by its name; rename such files or folders, or put all files into "
            "folders train and test"
        )
    return [f"left out, of no split: {shown}"]


def _left(folder: Path, used: Collection[str], builder: DatasetBuilder) -> list[str]:
    """Files of the same kinds as those that are read, in order."""
    try:
        there = resolve_pattern("**", str(folder))
    except FileNotFoundError:  # a README may name files that lie elsewhere
        return []
    kinds = {_kind(file) for file in used}
    if isinstance(builder, FolderBasedBuilder):  # whose tables only describe pictures
        kinds = {*builder.EXTENSIONS, *({".zip"} & kinds)}
    return sorted(file for file in there if file not in used and _kind(file) in kinds)


def _kind(file: str) -> str:
    return os.path.splitext(file)[1].lower()


def _are_among(left: Collection[str], used: Collection[str], builder: DatasetBuilder) -> bool:
    """Whether pictures of both lie in one folder, or in folders side by side, as of classes."""
    pictures = isinstance(builder, FolderBasedBuilder)
    return pictures and not {*map(_above, left)}.isdisjoint(map(_above, used))


def _above(file: str) -> str:
    return os.path.dirname(os.path.dirname(file))
