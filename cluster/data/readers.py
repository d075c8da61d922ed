"""Changes the readers of `datasets` where they would read a file otherwise than it was written.

The type of a column follows from all of its files, local or of a hub: 007 is a text, not a 7.
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
# A code such as 007 is no number: it would become 7.
NUMBER = re.compile(r"\s*[+-]?((0|[1-9]\d{0,18})(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")
TRUTHS = ("true", "false")  # what pandas reads as truth values
ROWS = 10_000  # whose fields are checked at once
# Not that of `datasets`, which caches hub data by version, and reads them otherwise.
VERSION = "0.0.1"


def _in_one_block(lines: BytesIO, read_options: arrow_json.ReadOptions) -> pa.Table:
    """Read JSON lines in one block. Two things crash the process (pyarrow 26), and `datasets` has
    no option for them: a column with values of different types in different blocks, which is an
    error in one block; and a first row that is null, which becomes a row without values, as later
    ones do."""
    if NULL_FIRST.match(lines.getbuffer()):
        lines = BytesIO(NULL_FIRST.sub(b"{}", lines.getvalue()))
    size = lines.getbuffer().nbytes + 1
    options = arrow_json.ReadOptions(use_threads=False, block_size=size)
    return arrow_json.read_json(lines, read_options=options)


@dataclass
class OfWholeFiles(json_lines.JsonConfig):
    """Settings by which the type of a column follows from the whole file, not from its first 10 MB:
    a later part of several types would be read as JSON in quotes. This class is the default, since
    the reader of hub data takes no such option."""

    version: Any = VERSION
    chunksize: int = -1


@dataclass
class OfWholeTables(csv_files.CsvConfig):
    """Settings by which the type of a column follows from the whole file, not from its first 10,000
    lines. Only an empty field is a missing value: NA may be a class."""

    version: Any = VERSION
    chunksize: int = 2**31 - 1
    keep_default_na: bool = False
    na_values: str | list[str] | None = ""

    @property
    def pd_read_csv_kwargs(self) -> dict[str, Any]:
        usual = super().pd_read_csv_kwargs
        if self.engine not in (None, "c") or len(self.sep or "") != 1 or self.skipfooter:
            return usual  # pandas then uses another parser, which has no such option
        return usual | {"low_memory": False}  # with low memory, types follow from parts of a file


def _with_texts(self: csv_files.Csv, dl_manager: Any) -> list[Any]:
    """The files of every split, after all were searched for columns that hold texts."""
    splits, how = _splits_of_tables(self, dl_manager), self.config
    if isinstance(how, OfWholeTables) and how.features is None:  # else the data declare the types
        of_all = [files for split in splits for files in split.gen_kwargs["files_iterables"]]
        texts = _texts((file for files in of_all for file in files), how)
        how.converters = dict.fromkeys(texts, _as_written)
    return splits


def _texts(files: Iterable[str], how: OfWholeTables) -> set[Any]:
    """Columns that are texts in all files: in some file a field is no number, and in some file a
    field is no truth value."""
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
