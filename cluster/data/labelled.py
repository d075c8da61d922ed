"""Checks each row of a data set; of a labelled one, returns the good rows with their classes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from datasets import Dataset, Json

from cluster.data.amounts import DecodedSoFar, of_data_set
from cluster.data.bad_rows import Bad, listed, require_good
from cluster.data.columns import (
    Classes,
    as_stored,
    class_names,
    find_input,
    find_label,
    is_unlabelled,
    known_classes,
    numbered,
    require_in_all,
    with_whole_numbers,
)
from cluster.data.sources import Data, Opened, Splits, opened
from cluster.data.validation import checked_image, checked_text
from cluster.domain.base import BlobRef, Modality
from cluster.domain.tasks import Reading
from cluster.storage.blobs import Blobs
from cluster.storage.samples import Raw, store_rows
from tacl.errors import BadSample, EmptySplit, LabelOutOfRange, TaclError, TooLarge

BATCH = 256
SKIP = ". Mend the data, or leave bad rows out: --skip-bad (Python and HTTP: skip_bad)"
HELD_OUT = ("test", "validation", "valid", "val", "dev")  # splits to test on: the first that exists

Progress = Callable[[int, int], None]  # rows checked, rows to check


@dataclass(frozen=True)
class LabelledSplits:
    """Good rows of the splits to train and to test on."""

    columns: tuple[str, str]  # of the inputs, of the classes
    task: Classes
    inputs: dict[str, list[Raw]]
    left_out: tuple[str, ...]
    skipped: int
    notes: tuple[str, ...]

    def digest(self) -> str:
        """sha256 hex of all rows with their classes, whatever their order and their splits."""
        rows = (
            hashlib.sha256(_bytes(raw) + b"\0" + self.task.names[label].encode()).digest()
            for split, raws in self.inputs.items()
            for raw, label in zip(raws, self.task.labels[split].tolist(), strict=True)
        )
        return hashlib.sha256(b"".join(sorted(rows))).hexdigest()

    def stored(self, blobs: Blobs, split: str, rows: Sequence[int]) -> BlobRef:
        chosen = [self.inputs[split][row] for row in rows]
        return store_rows(blobs, chosen, self.task.labels[split][rows].tolist())


def _bytes(raw: Raw) -> bytes:
    return raw.encode(errors="surrogatepass") if isinstance(raw, str) else raw


def labelled(
    data: Data,
    modality: Modality,
    reading: Reading,
    progress: Progress | None = None,
    fewest: int = 1,
    skip_bad: bool | None = None,
) -> LabelledSplits:
    """The good rows of a labelled data set. `fewest`: rows that it needs; `skip_bad`: whether bad
    rows are left out, None if the user has no such option.

    Raises the errors of `cluster.data.ingest.ingest`.
    """
    named, classes = (reading.input_column, reading.label_column), reading.classes
    with opened(data, named) as source:
        found = {name: with_whole_numbers(split, named[1]) for name, split in source.splits.items()}
        train = found[training(found)]
        if train.num_rows < fewest:
            raise EmptySplit(
                f"too few rows for a task: {train.num_rows}. Give {fewest} or more, better ten of "
                "each class: some are held out to validate and to test"
            )
        label = find_label(train, named[1], taken=named[0])
        column = find_input(train, modality, named[0], label)
        found = {name: with_whole_numbers(split, label) for name, split in found.items()}
        splits, left_out, unused = _train_and_test(found, label)
        require_in_all(splits, (column, label))
        names = class_names(splits, label, classes, source.places)
        advice = "" if skip_bad is None else SKIP
        if not skip_bad:
            about = known_classes(splits, label, classes)
            require_good(names.values(), LabelOutOfRange, about + advice)
        inputs = checked(splits, column, modality, source, progress, skip_bad=bool(skip_bad))
        if not skip_bad:
            require_good(inputs.values(), BadSample, advice)
        good, raws, wrong = _good(names, inputs)
        task = numbered(splits, label, good, classes, fewest)
    notes = [*source.notes, *(f"left out, no labels: split {name}" for name in left_out)]
    notes += [f"left out, not needed: split {name}" for name in unused]
    notes += [f"left out: {listed(wrong)}"] * bool(wrong)
    return LabelledSplits((column, label), task, raws, left_out, len(wrong), tuple(notes))


def _good(
    names: dict[str, list[str | Bad]], inputs: dict[str, list[Raw | Bad]]
) -> tuple[dict[str, list[str]], dict[str, list[Raw]], list[str]]:
    """Classes and inputs of the rows in which both are good, and why the others are not."""
    good: dict[str, list[str]] = {split: [] for split in names}
    raws: dict[str, list[Raw]] = {split: [] for split in names}
    wrong: list[str] = []
    for split in names:
        for name, raw in zip(names[split], inputs[split], strict=True):
            if isinstance(name, Bad):
                wrong.append(name.why)
            elif isinstance(raw, Bad):
                wrong.append(raw.why)
            else:
                good[split].append(name)
                raws[split].append(raw)
        if not good[split]:
            raise EmptySplit(f"split {split} has no good row: {listed(wrong)}")
    return good, raws, wrong


def training(found: Splits) -> str:
    """The split to train on."""
    return "train" if "train" in found else next(iter(found))


def _train_and_test(found: Splits, label: str) -> tuple[Splits, tuple[str, ...], list[str]]:
    """The splits to train on and, if one with labels exists, to test on; the names of splits
    without labels; and the names of those that are not used."""
    train = training(found)
    held_out = [name for name in HELD_OUT if name in found and name != train]
    left_out = [name for name in held_out if is_unlabelled(found[name], found[train], label)]
    tests = [name for name in held_out if name not in left_out][:1]
    splits = {"train": found[train]} | ({"test": found[tests[0]]} if tests else {})
    unused = [name for name in found if name not in (train, *left_out, *tests)]
    return splits, tuple(left_out), unused


def checked(
    splits: Splits,
    column: str,
    modality: Modality,
    source: Opened,
    progress: Progress | None,
    skip_bad: bool = False,
) -> dict[str, list[Raw | Bad]]:
    """The input of every row of every split, or what is wrong with it. Raises TooLarge at the first
    one that must not be decoded; with `skip_bad` only if all together must not be."""
    spent = DecodedSoFar(of_data_set(source.stored))
    folders = [folder.resolve() for folder in source.folders]
    image = partial(checked_image, folders=folders, spent=spent)
    check = image if modality == "image" else partial(checked_text, spent=spent)
    total = sum(split.num_rows for split in splits.values())
    found: dict[str, list[Raw | Bad]] = {name: [] for name in splits}
    for name, split in splits.items():
        own = split.format["type"] == "custom"  # a program's transform is its own
        view = split.select_columns([column]) if own else as_stored(split, column)
        place = partial(source.places.of, name)
        for start in range(0, split.num_rows, BATCH):
            rows = range(start, min(start + BATCH, split.num_rows))
            for one in _checked_rows(view, rows, column, check, place):
                if isinstance(one, TooLarge) and (not skip_bad or spent.is_over()):
                    raise one
                found[name].append(Bad(str(one)) if isinstance(one, TaclError) else one)
            if progress is not None:
                progress(sum(map(len, found.values())), total)
    return found


def _checked_rows(
    view: Dataset,
    rows: range,
    column: str,
    check: Callable[[Any, str], Raw],
    place: Callable[[int], str],
) -> Iterator[Raw | BadSample | TooLarge]:
    """The checked inputs of some rows. `view`: only their column, undecoded or transformed."""
    given = view[rows.start : rows.stop][column]
    try:
        values = given.to_pylist() if isinstance(given, pa.ChunkedArray) else given
    except UnicodeDecodeError as error:
        raise BadSample(
            f"{place(rows[0])} and the {len(rows) - 1} after it: column {column!r} holds bytes "
            f"that are not text: {error}"
        ) from error
    if isinstance(feature := view.features[column], Json):  # of rows of different types
        values = map(feature.decode_example, values)
    for row, value in zip(rows, values, strict=True):
        try:
            yield check(value, place(row))
        except (BadSample, TooLarge) as error:
            yield error
