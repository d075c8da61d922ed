"""Read a data set, check every row, split it, sample it, and only then store it.

Runs where the data are. What leaves this file are digests and counts: `Submission`'s parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from datasets import Dataset
from datasets import Image as ImageColumn

from cluster.data.columns import find_input, find_label, is_unlabelled, marked_label, read_classes
from cluster.data.sources import Data, Splits, opened
from cluster.data.validation import checked_image, checked_text
from cluster.domain.base import BlobRef, Modality
from cluster.domain.compositions import Fit
from cluster.storage.blobs import Blobs
from cluster.storage.samples import Raw, store_rows, store_shard
from tacl.data.splits import sample_rows, split_rows
from tacl.errors import BadConfig, BadSample, EmptySplit

SAMPLES = 1024  # unlabelled rows a task shares
PROBE = 64  # of them, on which no step ever trains
BATCH = 256
HELD_OUT = ("test", "validation", "valid", "val", "dev")  # to test on, the first there is

Progress = Callable[[int, int], None]  # rows checked, rows to check


@dataclass(frozen=True)
class Ingested:
    """What a task's data became: blobs, and how the columns were understood. `left_out` are splits
    whose labels are not given."""

    modality: Modality
    classes: tuple[str, ...]
    train: BlobRef
    validation: BlobRef
    test: BlobRef
    shard: BlobRef
    input_column: str
    label_column: str
    left_out: tuple[str, ...] = ()


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
    off. One whose labels are all -1 is left out. Validation is always cut from the training split
    (`tacl.data.splits`). The probe rows of the shared samples leave the training rows.
    Raises DataNotFound, BadColumns, BadSample, EmptySplit, TooFewClasses, LabelOutOfRange,
    ModalityMismatch.
    """
    with opened(data) as source:
        found = source.splits
        train = found[_training(found)]
        label = find_label(train, label_column, taken=input_column)
        column = find_input(train, modality, input_column, label)
        splits, left_out = _train_and_test(found, label)
        task = read_classes(splits, label, classes)
        cut = split_rows(labels := task.labels["train"].tolist(), seed, has_test="test" in splits)
        probe = _probe(sampled := sample_rows(cut.train, SAMPLES, seed), labels, seed)
        inputs = _checked(splits, column, modality, source.folders, progress)

    def stored(split: str, rows: Sequence[int]) -> BlobRef:
        chosen = [inputs[split][row] for row in rows]
        return store_rows(blobs, chosen, task.labels[split][rows].tolist())

    given_test = range(len(inputs.get("test", ())))
    return Ingested(
        modality,
        task.names,
        train=stored("train", [row for row in cut.train if row not in probe]),
        validation=stored("train", cut.validation),
        test=stored("test", given_test) if given_test else stored("train", cut.test),
        shard=_shard(blobs, inputs["train"], sampled, probe),
        input_column=column,
        label_column=label,
        left_out=left_out,
    )


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
    with opened(data) as source:
        found = source.splits
        split = found[_training(found)]
        column = find_input(split, modality, input_column, marked_label(split))
        sampled = sample_rows(range(split.num_rows), SAMPLES, seed)
        chosen = split.select(sampled)
        inputs = _checked({"train": chosen}, column, modality, source.folders, progress)["train"]
    rows = range(len(inputs))
    return _shard(blobs, inputs, rows, _probe(rows, None, seed))


def ingest_shots(
    data: Data,
    blobs: Blobs,
    modality: Modality,
    shots: int,
    *,
    input_column: str | None = None,
    label_column: str | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Check and store `shots` labelled rows of each class, by seed, to fit a composition to; rows
    of the test split, or what is left, are held out to judge it, at most 1,024.

    Raises what `ingest` raises, and EmptySplit when a class has too few rows; nothing is stored
    then.
    """
    if shots < 1:
        raise BadConfig(f"{shots} shots were asked for; at least one row of each class is learned")
    with opened(data) as source:
        found = source.splits
        train = found[_training(found)]
        label = find_label(train, label_column, taken=input_column)
        column = find_input(train, modality, input_column, label)
        splits, _ = _train_and_test(found, label)
        task = read_classes(splits, label, classes)
        chosen = _of_each(task.labels["train"].tolist(), task.names, shots, seed)
        inputs = _checked(splits, column, modality, source.folders, progress)
    judge = "test" if "test" in inputs else "train"
    left = [row for row in range(len(inputs[judge])) if judge == "test" or row not in chosen]

    def stored(split: str, rows: Sequence[int]) -> BlobRef:
        raws = [inputs[split][row] for row in rows]
        return store_rows(blobs, raws, task.labels[split][rows].tolist())

    held_out = stored(judge, sample_rows(left, SAMPLES, seed)) if left else None
    return Fit(classes=task.names, shots=stored("train", sorted(chosen)), held_out=held_out)


def _of_each(labels: Sequence[int], names: Sequence[str], shots: int, seed: int) -> set[int]:
    """So many rows of each class. EmptySplit names a class that has fewer."""
    chosen: set[int] = set()
    for number, name in enumerate(names):
        rows = [row for row, label in enumerate(labels) if label == number]
        if len(rows) < shots:
            raise EmptySplit(
                f"class {name} has {len(rows)} training rows, and {shots} of each class are to be "
                "learned from; give more rows of it, or ask for fewer shots"
            )
        chosen.update(sample_rows(rows, shots, seed))
    return chosen


def _training(found: Splits) -> str:
    """The split to train on."""
    return "train" if "train" in found else next(iter(found))


def _train_and_test(found: Splits, label: str) -> tuple[Splits, tuple[str, ...]]:
    """The split to train on, and the one to test on where there is one with labels; and the names
    of those without."""
    train = _training(found)
    held_out = [name for name in HELD_OUT if name in found and name != train]
    left_out = [name for name in held_out if is_unlabelled(found[name], found[train], label)]
    labelled = [name for name in held_out if name not in left_out]
    test = {"test": found[labelled[0]]} if labelled else {}
    return {"train": found[train], **test}, tuple(left_out)


def _probe(rows: Sequence[int], labels: Sequence[int] | None, seed: int) -> set[int]:
    """64 of the rows to be shared, a quarter of a small set; never the first row of a class."""
    firsts = {} if labels is None else {labels[row]: row for row in reversed(rows)}
    spare = set(rows) - set(firsts.values())
    probe = set(sample_rows(sorted(spare), min(PROBE, max(1, len(rows) // 4)), seed))
    if not probe or len(probe) == len(rows):
        raise EmptySplit(f"{len(rows)} training rows are too few to share samples of; give more")
    return probe


def _shard(blobs: Blobs, inputs: list[Raw], rows: Sequence[int], probe: set[int]) -> BlobRef:
    return store_shard(blobs, [inputs[row] for row in rows], [row in probe for row in rows])


def _checked(
    splits: Splits,
    column: str,
    modality: Modality,
    folders: Sequence[Path],
    progress: Progress | None,
) -> dict[str, list[Raw]]:
    """The inputs of every row of every split. BadSample names the first bad row."""
    total = sum(split.num_rows for split in splits.values())
    checked: dict[str, list[Raw]] = {name: [] for name in splits}
    for name, split in splits.items():
        for start in range(0, split.num_rows, BATCH):
            rows = range(start, min(start + BATCH, split.num_rows))
            checked[name].extend(_checked_rows(split, rows, column, modality, folders, name))
            if progress is not None:
                progress(sum(map(len, checked.values())), total)
    return checked


def _checked_rows(
    dataset: Dataset,
    rows: range,
    column: str,
    modality: Modality,
    folders: Sequence[Path],
    split: str,
) -> Iterator[Raw]:
    check = partial(checked_image, folders=folders) if modality == "image" else checked_text
    chosen = dataset.select(rows).select_columns([column])
    if isinstance(chosen.features[column], ImageColumn):
        chosen = chosen.cast_column(column, ImageColumn(decode=False))
    try:
        values = chosen[:][column]
    except UnicodeDecodeError as error:
        raise BadSample(
            f"rows {rows[0]} to {rows[-1]} of split {split}: column {column!r} holds bytes that "
            f"are not text: {error}"
        ) from error
    for row, value in zip(rows, values, strict=True):
        yield check(value, f"row {row} of split {split}")
