"""Measures how large a file becomes in memory, before a library reads all of it.

The footer of a Parquet file has the size of its encoded values: a dictionary of one long text and a
million references to it are a few hundred bytes. So rows are read in small parts, in which they
stay references, and their decoded sizes are added up. Of a packed file the unpacked bytes are
counted, and not kept.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets.utils.extract import Extractor

from cluster.data.amounts import VALUE_BYTES, decoded_bytes
from cluster.data.csv_dialect import PACKED
from tacl.errors import BadSample, TooLarge

ROWS = 4096  # read at once; fewer where rows of pictures cannot stay references
NESTED_ROWS = 16
PLAIN = (".parquet", ".csv", ".tsv", ".jsonl", ".json")


def require_bearable(path: Path) -> None:
    """Raises TooLarge for a file that becomes too large, BadSample for one that is compressed but
    not named so, and what pyarrow raises for one that is not Parquet."""
    suffix = path.suffix.lower()
    if suffix in PLAIN and (packed := Extractor.infer_extractor_format(path)):
        raise BadSample(f"{path.name} is a {packed} file; unpack it, and give what is in it")
    if suffix == ".parquet":
        _require_parquet(path)
    elif suffix in PACKED:
        _require_packed(path)


def _require_packed(path: Path) -> None:
    most, found = decoded_bytes(path.stat().st_size), 0
    with PACKED[path.suffix.lower()](path, "rb") as file:
        while block := file.read(1 << 20):
            found += len(block)
            _require(path, found, most)


def _require_parquet(path: Path) -> None:
    most = decoded_bytes(path.stat().st_size)
    with pq.ParquetFile(path) as file:
        _require(path, _declared(file.metadata), most)
        nested = any("." in column.path for column in file.schema)
        flat = [
            c.path for c in file.schema if c.physical_type == "BYTE_ARRAY" and "." not in c.path
        ]
    found = 0
    with pq.ParquetFile(path, read_dictionary=flat, pre_buffer=False) as file:
        rows = NESTED_ROWS if nested else ROWS
        for batch in file.iter_batches(batch_size=rows, use_threads=False):
            found += sum(map(_bytes, batch.columns))
            _require(path, found, most)


def _require(path: Path, found: int, most: int) -> None:
    if found > most:
        raise TooLarge(
            f"{path.name} becomes more than {most >> 20} MiB when it is read, and has "
            f"{path.stat().st_size:,} bytes; give it in several data sets, or without the columns "
            "that are not needed"
        )


def _declared(about: pq.FileMetaData) -> int:
    """The least size in bytes by the footer: of the unpacked pages, and of VALUE_BYTES a value."""
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    values = sum(group.column(c).num_values for group in groups for c in range(group.num_columns))
    return max(sum(group.total_byte_size for group in groups), VALUE_BYTES * values)


def _bytes(column: pa.Array) -> int:
    """Bytes of a column in memory, with every reference replaced by its value."""
    if not isinstance(column, pa.DictionaryArray):
        return column.nbytes + VALUE_BYTES * len(column)
    lengths = pc.call_function("binary_length", [column.dictionary]).to_numpy(zero_copy_only=False)
    referred = column.indices.drop_null().to_numpy()
    return int(lengths[referred].sum(dtype="int64")) + VALUE_BYTES * len(column)
