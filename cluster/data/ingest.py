"""Reads a data set, checks every row, splits it, samples it, and only then stores it.

Runs where the data are. Only digests and counts are sent on, as parts of `Submission`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from datasets import Dataset

from cluster.data.bad_rows import Bad, RowNames, require_good
from cluster.data.columns import FEWEST, Classes, find_input, marked_label
from cluster.data.labelled import Progress, checked, labelled, training
from cluster.data.sources import Data, Opened, opened
from cluster.domain.base import BlobRef, Modality
from cluster.domain.compositions import Fit
from cluster.domain.tasks import UNSAID, Reading
from cluster.storage.blobs import Blobs
from cluster.storage.samples import Raw, store_shard
from tacl.data.splits import sample_rows, split_rows
from tacl.errors import BadConfig, BadSample, EmptySplit

SAMPLES = 1024  # unlabelled rows a task shares
PROBE = 64  # of them, on which no step ever trains
RARE = 5  # rows; a class with fewer gets a warning


@dataclass(frozen=True)
class Ingested:
    """A stored data set: its blobs, and how the columns were understood. `left_out`: splits whose
    labels are withheld; `probe`: number of training rows on which no step trains; `skipped`: number
    of bad rows; `notes` are for the submitter; `rows` is a digest of all rows and classes."""

    modality: Modality
    classes: tuple[str, ...]
    train: BlobRef
    validation: BlobRef
    test: BlobRef
    shard: BlobRef
    input_column: str
    label_column: str
    probe: int
    left_out: tuple[str, ...] = ()
    skipped: int = 0
    notes: tuple[str, ...] = ()
    rows: str = ""


def ingest(
    data: Data,
    blobs: Blobs,
    modality: Modality,
    reading: Reading = UNSAID,
    *,
    seed: int = 0,
    skip_bad: bool = False,
    agree: Callable[[Sequence[str]], None] | None = None,
    progress: Progress | None = None,
) -> Ingested:
    """Check and store a labelled data set. Nothing is stored if a row is bad, unless `skip_bad`, or
    if `agree`, which receives the classes, raises.

    The test rows are the split named `test`, else a validation split, else 10 % of the rows. A
    split whose labels are all -1 is left out. Validation rows are always cut from the training
    split (`tacl.data.splits`). The probe rows of the shared samples are not trained on.
    Raises DataNotFound, BadColumns, BadSample, EmptySplit, TooFewClasses, LabelOutOfRange,
    ModalityMismatch.
    """
    found = labelled(data, modality, reading, progress, FEWEST, skip_bad)
    if agree is not None:
        agree(found.task.names)
    labels, inputs = found.task.labels["train"].tolist(), found.inputs["train"]
    inputs_of_all = [raw for raws in found.inputs.values() for raw in raws]
    cut = split_rows(labels, seed, has_test="test" in found.inputs)
    probe = _probe(sampled := sample_rows(cut.train, SAMPLES, seed), labels, seed)
    stored = partial(found.stored, blobs)
    given_test = range(len(found.inputs.get("test", ())))
    return Ingested(
        modality,
        found.task.names,
        train=stored("train", [row for row in cut.train if row not in probe]),
        validation=stored("train", cut.validation),
        test=stored("test", given_test) if given_test else stored("train", cut.test),
        shard=_shard(blobs, inputs, sampled, probe),
        input_column=found.columns[0],
        label_column=found.columns[1],
        probe=len(probe),
        left_out=found.left_out,
        skipped=found.skipped,
        notes=(*found.notes, *_rare(found.task), *_repeated(inputs_of_all), *_joined(found.task)),
        rows=found.digest(),
    )


def _rare(task: Classes) -> list[str]:
    """A warning about classes with few rows, if there are any."""
    counts = np.bincount(task.labels["train"], minlength=len(task.names)).tolist()
    rare = [f"{name} ({n})" for name, n in zip(task.names, counts, strict=True) if n < RARE]
    more = f" and {len(rare) - 10} more" if len(rare) > 10 else ""
    said = f"classes with fewer than {RARE} rows are hardly learned: {', '.join(rare[:10])}{more}"
    return [said] if rare else []


def _repeated(inputs: Sequence[Raw]) -> list[str]:
    """A warning if more than 1 % of the rows are copies of others."""
    copies = len(inputs) - len(set(inputs))
    said = (
        f"{copies} of {len(inputs)} rows are copies of others: what is tested on may have been "
        "trained on, and accuracies be too good"
    )
    return [said] if copies > len(inputs) / 100 else []


def _joined(task: Classes) -> list[str]:
    """A warning about classes that look like lists of labels, such as `a`, `b` and `a|b`."""
    for separator in "|;,":
        parts = {name: {one.strip() for one in name.split(separator)} for name in task.names}
        times = Counter(part for found in parts.values() for part in found)
        lists = [n for n in task.names if len(parts[n]) > 1 and any(times[p] > 1 for p in parts[n])]
        if len(lists) > 1 or (lists and parts[lists[0]] <= set(task.names)):
            return [
                f"each of {len(lists)} classes such as {lists[0]!r} is one class; several labels "
                "of a row (multi-label) are not supported"
            ]
    return []


def ingest_samples(
    data: Data,
    blobs: Blobs,
    modality: Modality,
    reading: Reading = UNSAID,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> BlobRef:
    """Check and store unlabelled samples, at most 1,024 drawn by `seed`. The label column, named or
    recognised, is ignored."""
    named = reading.input_column, reading.label_column
    with opened(data, named) as source:
        split = source.splits[training(source.splits)]
        chosen = split.select(sample_rows(range(split.num_rows), SAMPLES, seed))
        source = replace(source, places=RowNames())  # the chosen rows are numbered anew
        raws = _inputs("train", chosen, source, modality, *named, progress)
    return _shard(blobs, raws, range(len(raws)), _probe(range(len(raws)), None, seed))


def inputs_of(data: Data, modality: Modality, input_column: str | None = None) -> list[Raw]:
    """The inputs of a data set for a query: the rows of its only split, in order; a column of
    classes is ignored. Raises BadConfig for several splits, BadSample for a bad row, and the errors
    of `opened` and `find_input`."""
    with opened(data, (input_column,)) as source:
        if len(source.splits) > 1:
            names = ", ".join(source.splits)
            raise BadConfig(f"the data have the splits {names}; give the rows of one")
        ((name, split),) = source.splits.items()
        return _inputs(name, split, source, modality, input_column)


def _inputs(
    name: str,
    split: Dataset,
    source: Opened,
    modality: Modality,
    column: str | None,
    label: str | None = None,
    progress: Progress | None = None,
) -> list[Raw]:
    """The checked inputs of all rows of a split. Raises BadSample if one is bad."""
    column = find_input(split, modality, column, marked_label(split, label))
    found = checked({name: split}, column, modality, source, progress)
    require_good(found.values(), BadSample)
    return [raw for raw in found[name] if not isinstance(raw, Bad)]


def ingest_shots(
    data: Data,
    blobs: Blobs,
    modality: Modality,
    shots: int,
    reading: Reading = UNSAID,
    progress: Progress | None = None,
) -> Fit:
    """Check and store `shots` labelled rows of each class, drawn by seed 0, to fit a composition
    to; at most 1,024 rows of the test split, else of the remaining rows, are held out to judge it.

    Raises what `ingest` raises, and EmptySplit when a class has too few rows; nothing is stored
    then.
    """
    found = labelled(data, modality, reading, progress)
    inputs = found.inputs
    chosen = _of_each(found.task.labels["train"].tolist(), found.task.names, shots)
    judge = "test" if "test" in inputs else "train"
    left = [row for row in range(len(inputs[judge])) if judge == "test" or row not in chosen]
    held_out = found.stored(blobs, judge, sample_rows(left, SAMPLES, 0)) if left else None
    shown = found.stored(blobs, "train", sorted(chosen))
    return Fit(classes=found.task.names, shots=shown, held_out=held_out)


def _of_each(labels: Sequence[int], names: Sequence[str], shots: int) -> set[int]:
    """`shots` rows of each class. Raises EmptySplit if a class has fewer."""
    chosen: set[int] = set()
    every: list[list[int]] = [[] for _ in names]
    for row, label in enumerate(labels):
        every[label].append(row)
    for name, rows in zip(names, every, strict=True):
        if len(rows) < shots:
            raise EmptySplit(
                f"class {name} has {len(rows)} training rows, and {shots} of each class are to be "
                "learned from; give more rows of it, or ask for fewer shots"
            )
        chosen.update(sample_rows(rows, shots, 0))
    return chosen


def _probe(rows: Sequence[int], labels: Sequence[int] | None, seed: int) -> set[int]:
    """The probe rows: 64 of the rows to be shared, a quarter of a small set, never the first row of
    a class. Raises EmptySplit if there are too few rows."""
    firsts = {} if labels is None else {labels[row]: row for row in reversed(rows)}
    spare = set(rows) - set(firsts.values())
    probe = set(sample_rows(sorted(spare), min(PROBE, max(1, len(rows) // 4)), seed))
    if not probe or len(probe) == len(rows):
        raise EmptySplit(f"{len(rows)} training rows are too few to share samples of; give more")
    return probe


def _shard(blobs: Blobs, inputs: list[Raw], rows: Sequence[int], probe: set[int]) -> BlobRef:
    return store_shard(blobs, [inputs[row] for row in rows], [row in probe for row in rows])
