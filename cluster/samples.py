"""The growing store of unlabelled samples: which shards are known, and the rows of one.

A shard is a Parquet blob with the columns `input` (binary: an image's original bytes, or string: a
text) and `probe` (bool). Probe rows are for measuring tau_jp: no step ever trains on them. A data
blob has the columns `input` and `label` (int64). Which shard a step looks at is not decided here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.blobs import Blobs
from cluster.messages import Arrival, BlobRef, Shard
from cluster.sight import ALL, Sight
from tacl.errors import CorruptBlob

Raw = bytes | str  # one input as it was submitted


def known(
    shards: Iterable[Shard], own: str, sight: Sight = ALL, withheld: Collection[str] = ()
) -> tuple[Shard, ...]:
    """The shards a run of task `own` trains against: all others that its owner sees, by arrival,
    generic first. Of tasks that withhold their samples, those whose statistics are there."""
    others = (shard for shard in shards if shard.task != own and sight.of(shard.task))
    given = (shard for shard in others if shard.statistics or shard.task not in withheld)
    return tuple(sorted(given, key=lambda shard: shard.ordinal))


class Arrivals:
    """Which shards a run was told of, and from which step on: recorded once, replayed for ever.

    Args:
        reached: the highest step that was told, -1 for none.
        log: in the order in which they were recorded.
    """

    def __init__(self, reached: int, log: Iterable[Arrival]) -> None:
        self.reached = reached
        self._log = list(log)
        self._settle()

    def newcomers(self, step: int, current: Iterable[Shard]) -> list[Shard]:
        """Of the current shards, those that join at `step`; none at a step told before."""
        if step <= self.reached:
            return []
        told = {(shard.task, shard.version) for shard in self.at(step)}
        return [shard for shard in current if (shard.task, shard.version) not in told]

    def leavers(self, step: int, current: Iterable[Shard]) -> set[str]:
        """Tasks whose samples were withdrawn, and that `step` is the first not to see."""
        if step <= self.reached:
            return set()
        return {shard.task for shard in self.at(step)} - {shard.task for shard in current}

    def record(
        self, step: int, newcomers: Collection[Shard], leavers: Collection[str] = ()
    ) -> None:
        for number, one in enumerate(self._log):
            if one.shard.task in leavers and one.left is None:
                self._log[number] = one.model_copy(update={"left": step})
        self._log.extend(Arrival(step=step, shard=shard) for shard in newcomers)
        self.reached = max(self.reached, step)
        if newcomers or leavers:
            self._settle()

    def at(self, step: int) -> tuple[Shard, ...]:
        """What `step` was told: of every task the latest version then, by arrival of the task."""
        return self._last if step >= self._settled else self._at(step)

    def _settle(self) -> None:
        """Most steps are told what the one before was: that is worked out once."""
        self._settled = max((one.left or one.step for one in self._log), default=0)
        self._last = self._at(self._settled)

    def _at(self, step: int) -> tuple[Shard, ...]:
        there = (one for one in self._log if one.step <= step)
        there = (one.shard for one in there if one.left is None or step < one.left)
        latest = {shard.task: shard for shard in there}
        return tuple(sorted(latest.values(), key=lambda shard: shard.ordinal))


def store_shard(blobs: Blobs, inputs: Sequence[Raw], probe: Sequence[bool]) -> BlobRef:
    """Write a shard blob; `probe[i]` says whether row i is for measuring only."""
    return _store(blobs, {"input": inputs, "probe": pa.array(probe, pa.bool_())})


def store_rows(blobs: Blobs, inputs: Sequence[Raw], labels: Sequence[int]) -> BlobRef:
    """Write a data blob of labelled rows."""
    return _store(blobs, {"input": inputs, "label": pa.array(labels, pa.int64())})


def training_inputs(blobs: Blobs, shard: BlobRef) -> list[Raw]:
    """The rows of a shard that steps may see. CorruptBlob when the file is not what it should."""
    inputs, probe = _columns(blobs, shard, "probe")
    return [row for row, is_probe in zip(inputs, probe, strict=True) if not is_probe]


def probe_inputs(blobs: Blobs, shard: BlobRef) -> list[Raw]:
    """The probe rows of a shard. CorruptBlob when the file is not what it should."""
    inputs, probe = _columns(blobs, shard, "probe")
    return [row for row, is_probe in zip(inputs, probe, strict=True) if is_probe]


def labelled_rows(blobs: Blobs, data: BlobRef) -> tuple[list[Raw], list[int]]:
    """Inputs and labels of a data blob. CorruptBlob when the file is not what it should."""
    return _columns(blobs, data, "label")


def grown(blobs: Blobs, old: BlobRef, new: BlobRef) -> BlobRef:
    """The shard that holds the rows of `old`, then those of `new` that `old` does not hold.

    Old rows keep their role, so what a step may have trained on never becomes a probe row. Without
    a new row it is `old` itself.
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
    return BlobRef(digest=blobs.put(sink.getvalue().to_pybytes()), rows=table.num_rows)


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
