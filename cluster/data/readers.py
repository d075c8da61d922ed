"""The readers of `datasets`, where they would make something else of a file than was written.

What a column holds is told by all of its files, here and of a hub alike: 007 is a text, and no 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from datasets.packaged_modules.csv import csv as csv_files
from datasets.packaged_modules.folder_based_builder import folder_based_builder
from datasets.packaged_modules.json import json as json_lines
from pyarrow import json as arrow_json

NULL_FIRST = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*null")  # in JSON
# A code such as 007 is none: it would become 7.
NUMBER = re.compile(r"\s*[+-]?((0|[1-9]\d{0,18})(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")
TRUTHS = ("true", "false")  # what pandas takes for such
ROWS = 10_000  # whose fields are looked at together
# Not that of `datasets`, which keeps what it read of a hub by version, and reads it otherwise.
VERSION = "0.0.1"


def _in_one_block(lines: BytesIO, read_options: arrow_json.ReadOptions) -> pa.Table:
    """What crashes the process (pyarrow 26), and `datasets` has no option for: a column whose
    values are of one type in one block and of another in the next, which in one block is an error;
    and a first row that is null, which becomes what a later one is, a row without values."""
    if NULL_FIRST.match(lines.getbuffer()):
        lines = BytesIO(NULL_FIRST.sub(b"{}", lines.getvalue()))
    size = lines.getbuffer().nbytes + 1
    options = arrow_json.ReadOptions(use_threads=False, block_size=size)
    return arrow_json.read_json(lines, read_options=options)


@dataclass
class OfWholeFiles(json_lines.JsonConfig):
    """What a column holds is told by all of a file, not by its first 10 MB; a later part of several
    types would be read as JSON in quotes. Of a hub too, whose reader takes no such option."""

    version: Any = VERSION
    chunksize: int = -1


@dataclass
class OfWholeTables(csv_files.CsvConfig):
    """Likewise, not by its first 10,000 lines. Only an empty field is nothing: NA is a class."""

    version: Any = VERSION
    chunksize: int = 2**31 - 1
    keep_default_na: bool = False
    na_values: str | list[str] | None = ""

    @property
    def pd_read_csv_kwargs(self) -> dict[str, Any]:
        usual = super().pd_read_csv_kwargs
        if self.engine not in (None, "c") or len(self.sep or "") != 1 or self.skipfooter:
            return usual  # pandas reads it in another way, which knows no such option
        return usual | {"low_memory": False}  # which tells types by parts too


def _with_texts(self: csv_files.Csv, dl_manager: Any) -> list[Any]:
    """The files of every split, of which it was seen which columns hold texts."""
    splits, how = _splits_of_tables(self, dl_manager), self.config
    if isinstance(how, OfWholeTables) and how.features is None:  # else the data say what it holds
        of_all = [files for split in splits for files in split.gen_kwargs["files_iterables"]]
        texts = _texts((file for files in of_all for file in files), how)
        how.converters = dict.fromkeys(texts, _as_written)
    return splits


def _texts(files: Iterable[str], how: OfWholeTables) -> set[Any]:
    """Columns that hold more than numbers, or truths, in one of the files: so in all."""
    not_numbers, not_truths = set[Any](), set[Any]()
    for file in files:
        options = how.pd_read_csv_kwargs | {"dtype": str, "chunksize": ROWS}
        with csv_files.pd.read_csv(file, **options) as parts:
            for part in parts:
                for name in part:
                    fields = part[name].dropna()
                    if name not in not_numbers and not all(map(NUMBER.fullmatch, fields)):
                        not_numbers.add(name)
                    if name not in not_truths and not set(map(str.lower, fields)) <= {*TRUTHS}:
                        not_truths.add(name)
    return not_numbers & not_truths


def _as_written(field: str) -> str | None:
    return field or None


_splits_of_tables = csv_files.Csv._split_generators
_reader = SimpleNamespace(read_json=_in_one_block, ReadOptions=arrow_json.ReadOptions)
json_lines.paj = folder_based_builder.paj = _reader
json_lines.Json.BUILDER_CONFIG_CLASS = OfWholeFiles
csv_files.Csv.BUILDER_CONFIG_CLASS = OfWholeTables
csv_files.Csv._split_generators = _with_texts
