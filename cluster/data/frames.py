"""Rows in a program's memory, as a data set of one split or as a file to upload.

Frames of pandas, polars and pyarrow are read through Arrow's C stream interface, without importing
pandas or polars.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict
from datasets.table import embed_table_storage

from tacl.errors import BadColumns, BadConfig, BadSample

BATCH = 256  # rows written at once, which may be pictures
PAIR = ("input", "label")  # the columns of rows without names
GIVEN = (
    "a path, a hub id, a datasets.Dataset, a frame of pandas, polars or pyarrow, a dict of "
    "columns, or a list of dicts, of (input, class) pairs or of inputs"
)


@runtime_checkable
class Frame(Protocol):
    """Anything that exports its columns through Arrow: pandas.DataFrame, pyarrow.Table ..."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Rows = Frame | Mapping[str, Sequence[Any]] | Sequence[Any]


def one_split(data: Rows | Dataset | DatasetDict) -> Dataset:
    """The rows as a data set. Raises BadColumns and BadSample for rows that make no table,
    BadConfig for data of another type or with several splits."""
    if isinstance(data, DatasetDict):
        if len(data) != 1:
            found = ", ".join(map(str, data)) or "none"
            raise BadConfig(f"one split is uploaded; found {found}; give one")
        return next(iter(data.values()))
    if isinstance(data, Dataset):
        return data
    try:
        if isinstance(data, Frame):
            return _framed(pa.table(data))
        if isinstance(data, Mapping):
            return Dataset.from_dict(dict(data))
        if isinstance(data, Sequence) and not isinstance(data, str | bytes):
            return Dataset.from_dict(_columns(data))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        text = " ".join(str(error).split())
        raise BadSample(f"the rows make no table of one type a column: {text}") from error
    raise BadConfig(f"the data are of type {type(data).__name__}; give {GIVEN}")


def write_rows(data: Rows | Dataset | DatasetDict, path: Path) -> None:
    """Write rows to a Parquet file, with the bytes of pictures that rows name as files, which
    another machine does not have. Raises what `one_split` raises, and BadSample for files that
    cannot be read."""
    split = one_split(data)
    if split.format["type"] == "custom":
        raise BadConfig(
            "the data set has a transform, which is not uploaded; give the rows that it makes, "
            "such as datasets.Dataset.from_list([*rows])"
        )
    with pq.ParquetWriter(path, split.features.arrow_schema) as file:
        for table in split.with_format("arrow").iter(BATCH):
            try:
                whole = embed_table_storage(table)
            except OSError as error:
                raise BadSample(f"a file that the rows name cannot be read: {error}") from error
            file.write_table(whole)


def _framed(table: pa.Table) -> Dataset:
    """The table as a data set, without the index that pandas adds to selected or sorted rows."""
    if twice := [name for name, times in Counter(table.column_names).items() if times > 1]:
        raise BadColumns(f"several columns have one name: {', '.join(twice)}; rename them")
    indexes = [name for name in table.column_names if name.startswith("__index_level_")]
    left = table.drop_columns(indexes)
    fields = [field.with_type(_named(field.type)).remove_metadata() for field in left.schema]
    return Dataset(cast(Any, left.cast(pa.schema(fields))))


def _named(kind: pa.DataType) -> pa.DataType:
    """The type to cast to: Arrow cannot decode polars' categories, dictionaries of string views."""
    views = pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type)
    return pa.dictionary(pa.int32(), pa.string()) if views else kind


def _columns(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Columns of rows that are dicts, pairs, or inputs alone; None if a dict lacks a name."""
    if all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}
    if not any(isinstance(row, tuple | list | Mapping) for row in rows):
        return {PAIR[0]: list(rows)}
    for number, row in enumerate(rows):
        if not isinstance(row, tuple | list) or len(row) != len(PAIR):
            raise BadColumns(f"row {number} is no pair of an input and a class: {str(row)[:80]}")
    return {name: [row[i] for row in rows] for i, name in enumerate(PAIR)}
