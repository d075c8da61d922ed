"""The data of one task under one seed, as `tacl submit` would store it; prepared when needed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence, Set
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from cluster.data.ingest import ingest
from cluster.domain.base import BlobRef, Modality
from cluster.storage import samples
from cluster.storage.blobs import Blobs
from jobs.experiments.cache import Cell, Cells, Made
from jobs.experiments.suites import Source
from tacl.backbone import Backbone, Item
from tacl.data.batches import Labelled
from tacl.data.nonsense import JUDGED, LEARNED, with_nonsense
from tacl.data.splits import sample_rows
from tacl.errors import DataNotFound, EmptySplit

LABELLED = ("train", "validation")  # parts with labels, for fitting
# Parts of a generic set with inputs of no task: to learn from, and to judge by.
NONE, NONE_PROBE = f"none, {LEARNED} of nonsense", f"none probe, {JUDGED} of nonsense"
SHARED: dict[str, Callable[[Blobs, BlobRef], list[samples.Raw]]] = {  # parts of the shard
    "shard": samples.training_inputs,
    "probe": samples.probe_inputs,
    NONE: lambda *given: with_nonsense(samples.training_inputs(*given), LEARNED),
    NONE_PROBE: lambda *given: with_nonsense(samples.probe_inputs(*given), JUDGED),
}


class Rows:
    """The rows of a task, in parts: `train`, `validation`, `test`, `shard` (without probe rows),
    `probe`; `test:300` is at most 300 of the test rows, chosen by seed, and `test:300-400` those
    of `test:400` that are not of `test:300`. A generic set also has NONE and NONE_PROBE."""

    def __init__(self, ingested: Cell, blobs: Blobs, backbone: Backbone, seed: int) -> None:
        self.facts = ingested.facts
        self.classes: tuple[str, ...] = tuple(self.facts["classes"])
        self._blobs, self._backbone, self._seed = blobs, backbone, seed

    def digest(self, part: str) -> str:
        """sha256 of the stored rows from which `part` is taken."""
        return self._ref(part).digest

    def count(self, part: str) -> int:
        """Number of rows of the whole split, or of all shared samples including probe rows."""
        return self._ref(part).rows

    def labels_N(self, part: str) -> Tensor:
        """Labels of a split or of a choice of its rows; no input is prepared."""
        _, labels = samples.labelled_rows(self._blobs, self._ref(part))
        return torch.tensor(labels)[self.places(part)]

    def items(self, part: str) -> list[Item]:
        """Inputs of a part, in the order of `labels_N`."""
        read = SHARED.get(part, lambda *given: samples.labelled_rows(*given)[0])
        raws = read(self._blobs, self._ref(part))
        return [self._backbone.prepare(raws[row]) for row in self.places(part, len(raws))]

    def labelled(self, part: str) -> Labelled:
        return Labelled(self.items(part), self.labels_N(part))

    @cached_property
    def train(self) -> Labelled:
        return self.labelled("train")

    def places(self, part: str, rows: int | None = None) -> list[int]:
        """The places of a part's rows in its split, ascending. `rows`: of the split, if fewer than
        are stored."""
        split = range(self.count(part) if rows is None else rows)
        _, _, most = part.partition(":")
        first, _, last = most.rpartition("-")
        chosen = sample_rows(split, int(last), self._seed) if last else split
        before = sample_rows(split, int(first), self._seed) if first else ()
        return sorted({*chosen} - {*before})

    def _ref(self, part: str) -> BlobRef:
        stored = "shard" if part in SHARED else part.partition(":")[0]
        return BlobRef(**self.facts[stored])


def stored_rows(
    cells: Cells, blobs: Blobs, data: Path, source: Source, modality: Modality, seed: int
) -> Cell:
    """Read, check and split a data set, once for each seed. DataNotFound if it does not exist."""
    where, content = _located(data, source)

    def make() -> Made:
        found = ingest(where, blobs, modality, seed=seed)
        parts = ("train", "validation", "test", "shard")
        refs = {part: getattr(found, part).model_dump(mode="json") for part in parts}
        return {"classes": list(found.classes), **refs}, {}

    decides = {"content": content, "modality": modality, "seed": seed}
    return cells.get("data", decides, make, source.name)


def without_test_rows(
    cells: Cells, blobs: Blobs, task: str, own: Cell, others: Sequence[Cell]
) -> Cell:
    """The data of a task without rows that are identical to test rows of `others`.

    A text in two sources would be trained on under one label and queried under another. Raises
    EmptySplit if no row is left.
    """
    tests = [BlobRef(**other.facts["test"]) for other in others]

    def make() -> Made:
        foreign = {raw for test in tests for raw in samples.labelled_rows(blobs, test)[0]}
        labelled = {
            part: _without(blobs, BlobRef(**own.facts[part]), foreign, f"{part} row of {task}")
            for part in LABELLED
        }
        shard = _shard_without(blobs, BlobRef(**own.facts["shard"]), foreign)
        refs = {**labelled, "shard": shard}
        return {**own.facts, **{p: ref.model_dump(mode="json") for p, ref in refs.items()}}, {}

    decides = {"own": own.key, "tests": [test.digest for test in tests]}
    return cells.get("apart", decides, make, f"{task} from the test rows of other tasks")


def _without(blobs: Blobs, ref: BlobRef, foreign: Set[samples.Raw], row: str) -> BlobRef:
    rows = list(zip(*samples.labelled_rows(blobs, ref), strict=True))
    kept = [row for row in rows if row[0] not in foreign]
    if not kept:
        raise EmptySplit(f"every {row} is a test row of another task; give each data set once")
    inputs, labels = zip(*kept, strict=True)
    return ref if len(kept) == len(rows) else samples.store_rows(blobs, inputs, labels)


def _shard_without(blobs: Blobs, ref: BlobRef, foreign: Set[samples.Raw]) -> BlobRef:
    kept = [
        (raw, is_probe)
        for is_probe, read in ((False, samples.training_inputs), (True, samples.probe_inputs))
        for raw in read(blobs, ref)
        if raw not in foreign
    ]
    inputs, probe = zip(*kept, strict=True)
    return ref if len(kept) == ref.rows else samples.store_shard(blobs, inputs, probe)


def _located(data: Path, source: Source) -> tuple[str, str]:
    """Where a data set is, and what identifies its content: the sha256 of its files, or its id."""
    folder = data / source.name
    if folder.exists():
        return str(folder), _content(folder)
    if source.hub is None:
        raise DataNotFound(f"no data of {source.name}: there is no folder {folder.absolute()}")
    return source.hub, f"hub:{source.hub}"


def _content(folder: Path) -> str:
    sha = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        sha.update(f"{path.relative_to(folder)}\0".encode())
        with path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()
