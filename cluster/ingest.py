"""Read a data set, check every row, split it, sample it, and only then store it.

Runs where the data are. What leaves this file are digests and counts: `Submission`'s parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset
from datasets import Image as ImageColumn

from cluster.checked import checked_image, checked_text
from cluster.columns import Labels, find_input, find_label, marked_label, read_classes
from cluster.messages import BlobRef, Modality
from cluster.reading import Data, Splits, opened
from tacl.errors import BadSample, EmptySplit
from tacl.splits import sample_rows, split_rows

if TYPE_CHECKING:
    from cluster.blobs import Blobs

SAMPLES = 1024  # unlabelled rows a task shares
PROBE = 64  # of them, on which no step ever trains
BATCH = 256

Progress = Callable[[int, int], None]  # rows checked, rows to check


@dataclass(frozen=True)
class Ingested:
    """What a task's data became: blobs, and how the columns were understood."""

    modality: Modality
    classes: tuple[str, ...]
    train: BlobRef
    validation: BlobRef
    test: BlobRef
    shard: BlobRef
    input_column: str
    label_column: str


def ingest(
    data: Data,
    blobs: Blobs,
    modality: Modality,
    *,
    input_column: str | None = None,
    label_column: str | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Ingested:
    """Check and store a labelled data set; nothing is stored unless every row is good.

    A split named `test` is the test; without one, a validation split is; without any, 10 % are cut
    off. Validation is always cut from the training split (`tacl.splits`). The probe rows of the
    shared samples leave the training rows.
    Raises DataNotFound, BadColumns, BadSample, EmptySplit, TooFewClasses, LabelOutOfRange,
    ModalityMismatch.
    """
    with opened(data) as found:
        splits = _train_and_test(found)
        label = find_label(splits["train"], label_column, taken=input_column)
        column = find_input(splits["train"], modality, input_column, label)
        task = read_classes(splits, label, classes)
        parts = _parts(splits, task.labels, seed)
        with TemporaryDirectory(prefix="tacl-blobs-") as folder:
            writer = _Writer(Path(folder), column, modality, progress)
            writer.expect(sum(len(part.rows) for part in parts.values()))
            for name, part in parts.items():
                writer.write(name, splits[part.split], part)
            refs = {
                name: BlobRef(digest=blobs.put(writer.path(name)), rows=len(part.rows))
                for name, part in parts.items()
            }
    return Ingested(modality, task.names, **refs, input_column=column, label_column=label)


def ingest_samples(
    data: Data,
    blobs: Blobs,
    modality: Modality,
    *,
    input_column: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> BlobRef:
    """Check and store unlabelled samples, at most 1,024 chosen by seed: labels are ignored."""
    with opened(data) as found, TemporaryDirectory(prefix="tacl-blobs-") as folder:
        split = _train_and_test(found)["train"]
        column = find_input(split, modality, input_column, marked_label(split))
        shard = _shard(list(range(split.num_rows)), None, seed)
        writer = _Writer(Path(folder), column, modality, progress)
        writer.expect(len(shard.rows))
        writer.write("shard", split, shard)
        return BlobRef(digest=blobs.put(writer.path("shard")), rows=len(shard.rows))


@dataclass(frozen=True)
class _Part:
    """Rows of one split that become one blob, with their `label` or `probe` column."""

    split: str
    rows: list[int]
    extra: pa.Field
    values: list[int] | list[bool]


def _train_and_test(found: Splits) -> Splits:
    """The split to train on, and the one to test on where there is one."""
    names = list(found)
    train = "train" if "train" in names else names[0]
    held_out = [
        n for n in ("test", "validation", "valid", "val", "dev") if n in names and n != train
    ]
    test = {"test": found[held_out[0]]} if held_out else {}
    return {"train": found[train], **test}


def _parts(splits: Splits, labels: dict[str, Labels], seed: int) -> dict[str, _Part]:
    train = labels["train"].tolist()
    cut = split_rows(train, seed, has_test="test" in splits)
    shard = _shard(cut.train, train, seed)
    probe = {row for row, held_out in zip(shard.rows, shard.values, strict=True) if held_out}
    test = ("train", cut.test)
    if "test" in splits:
        test = ("test", list(range(splits["test"].num_rows)))

    def labelled(split: str, rows: list[int]) -> _Part:
        chosen = labels[split][rows].tolist()
        return _Part(split, rows, pa.field("label", pa.int64()), chosen)

    return {
        "train": labelled("train", [row for row in cut.train if row not in probe]),
        "validation": labelled("train", cut.validation),
        "test": labelled(*test),
        "shard": shard,
    }


def _shard(rows: list[int], labels: list[int] | None, seed: int) -> _Part:
    """Samples of `rows`; a probe never takes the only row of its class."""
    sampled = sample_rows(rows, SAMPLES, seed)
    firsts = set() if labels is None else set({labels[r]: r for r in reversed(rows)}.values())
    spare = [row for row in sampled if row not in firsts]
    probe = set(sample_rows(spare, min(PROBE, max(1, len(rows) // 4)), seed))
    if not probe or len(probe) == len(sampled):
        raise EmptySplit(f"{len(rows)} training rows are too few to share samples of; give more")
    field = pa.field("probe", pa.bool_())
    return _Part("train", sampled, field, [row in probe for row in sampled])


class _Writer:
    """Writes checked rows as Parquet files into a folder."""

    def __init__(
        self, folder: Path, column: str, modality: Modality, progress: Progress | None
    ) -> None:
        self.folder, self.column, self.modality = folder, column, modality
        self.progress = progress or (lambda done, total: None)
        self.done = self.total = 0

    def expect(self, rows: int) -> None:
        self.total = rows

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def write(self, name: str, dataset: Dataset, part: _Part) -> None:
        kind = pa.binary() if self.modality == "image" else pa.string()
        schema = pa.schema([pa.field("input", kind), part.extra])
        with pq.ParquetWriter(self.path(name), schema, compression="zstd") as file:
            for start in range(0, len(part.rows), BATCH):
                rows = part.rows[start : start + BATCH]
                extra = part.values[start : start + BATCH]
                inputs = list(self._checked(dataset, rows, part.split))
                file.write_table(pa.table([inputs, extra], schema=schema))
                self.done += len(rows)
                self.progress(self.done, self.total)

    def _checked(self, dataset: Dataset, rows: list[int], split: str) -> Iterator[bytes | str]:
        check = checked_image if self.modality == "image" else checked_text
        chosen = dataset.select(rows).select_columns([self.column])
        if isinstance(chosen.features[self.column], ImageColumn):
            chosen = chosen.cast_column(self.column, ImageColumn(decode=False))
        try:
            values = chosen[:][self.column]
        except UnicodeDecodeError as error:
            raise BadSample(
                f"rows {rows[0]} to {rows[-1]} of split {split}: column {self.column!r} holds "
                f"bytes that are not text: {error}"
            ) from error
        for row, value in zip(rows, values, strict=True):
            yield check(value, f"row {row} of split {split}")
