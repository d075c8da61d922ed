"""The growing store of unlabelled samples: which shards are known, and the rows of one.

A shard is a Parquet blob with the columns `input` (binary: an image's original bytes, or string: a
text) and `probe` (bool). Probe rows are for measuring tau_jp: no step ever trains on them. A data
blob has the columns `input` and `label` (int64). Which shard a step uses is not decided here.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.domain.base import BlobRef
from cluster.storage.blobs import Blobs
from tacl.errors import CorruptBlob

Raw = bytes | str  # one input as it was submitted


def store_shard(blobs: Blobs, inputs: Sequence[Raw], probe: Sequence[bool]) -> BlobRef:
    """Write a shard blob; `probe[i]` says whether row i is for measuring only."""
    return _store(blobs, {"input": inputs, "probe": pa.array(probe, pa.bool_())})


def store_rows(blobs: Blobs, inputs: Sequence[Raw], labels: Sequence[int]) -> BlobRef:
    """Write a data blob of labelled rows."""
    return _store(blobs, {"input": inputs, "label": pa.array(labels, pa.int64())})


def training_inputs(blobs: Blobs, shard: BlobRef) -> list[Raw]:
    """The rows of a shard that steps may use. CorruptBlob if the file is missing or damaged."""
    inputs, probe = _columns(blobs, shard, "probe")
    return [row for row, is_probe in zip(inputs, probe, strict=True) if not is_probe]


def probe_inputs(blobs: Blobs, shard: BlobRef) -> list[Raw]:
    """The probe rows of a shard. CorruptBlob if the file is missing or damaged."""
    inputs, probe = _columns(blobs, shard, "probe")
    return [row for row, is_probe in zip(inputs, probe, strict=True) if is_probe]


def labelled_rows(blobs: Blobs, data: BlobRef) -> tuple[list[Raw], list[int]]:
    """Inputs and labels of a data blob. CorruptBlob if the file is missing or damaged."""
    return _columns(blobs, data, "label")


def grown(blobs: Blobs, old: BlobRef, new: BlobRef) -> BlobRef:
    """The shard with the rows of `old`, followed by the rows of `new` that are not in `old`.

    Old rows keep their role, so a row that a step may have trained on never becomes a probe row.
    Without a new row the result is `old` itself.
    """
    inputs, probe = _columns(blobs, old, "probe")
    seen = set(inputs)
    for row, is_probe in zip(*_columns(blobs, new, "probe"), strict=True):
        if row not in seen:
            seen.add(row)
            inputs.append(row)
            probe.append(is_probe)
    return old if len(inputs) == old.rows else store_shard(blobs, inputs, probe)


def _store(blobs: Blobs, columns: dict[str, object]) -> BlobRef:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return BlobRef(digest=blobs.put(memoryview(sink.getvalue())), rows=table.num_rows)


def _columns(blobs: Blobs, blob: BlobRef, second: str) -> tuple[list, list]:
    """`input` and one more column of a blob, each `blob.rows` long."""
    try:
        table = pq.read_table(pa.BufferReader(blobs.read(blob.digest)), columns=["input", second])
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise CorruptBlob(
            f"blob {blob.digest} is not a Parquet file of samples: {error}"
        ) from error
    if table.column_names != ["input", second] or table.num_rows != blob.rows:
        raise CorruptBlob(
            f"blob {blob.digest} should hold {blob.rows} rows of input and {second}; it holds "
            f"{table.num_rows} rows of {', '.join(table.column_names) or 'nothing'}"
        )
    return table["input"].to_pylist(), table[second].to_pylist()
