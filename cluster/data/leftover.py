"""Files of a folder that are in no split. `datasets` reads some names of files and folders as names
of splits (train, test, dev ...); if it finds one, it ignores all files without such a name."""

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
    """The files that are read, by split."""
    splits: Any = builder.config.data_files or {}
    return {str(split): list(files) for split, files in splits.items()}


def note_left_out(data: str, folder: Path, builder: DatasetBuilder) -> list[str]:
    """A note about files that are in no split, if any. Raises BadConfig if the files that are read
    are hardly all that was meant: none is in the split train, or they are pictures in the same
    folders as those that are left out."""
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
    """Files that are not read, of the same kinds as those that are, sorted."""
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
    """Whether pictures of both are in one folder, or in sibling folders such as class folders."""
    pictures = isinstance(builder, FolderBasedBuilder)
    return pictures and not {*map(_above, left)}.isdisjoint(map(_above, used))


def _above(file: str) -> str:
    return os.path.dirname(os.path.dirname(file))
