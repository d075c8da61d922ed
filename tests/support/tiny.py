"""A base and tasks small enough to train in seconds: a random transformer, patterns under noise."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.tasks import GENERIC, Arrival, Options, Shard, Submission, VectorRef
from cluster.domain.work import Lease, Leave, Progress, Trained, TrainWork
from cluster.learner import training
from cluster.scheduler.leases import SHORTEST
from cluster.storage import samples
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home, Settings, write
from tacl.embedded.parquet import png

SIDE = 32
TREES = ("ash", "birch", "cedar", "date")


def base(folder: Path) -> str:
    """The spec of a vision transformer of 0.3 million random weights, written into `folder`."""
    import safetensors.torch
    import timm
    import torch

    torch.manual_seed(0)
    model = timm.create_model("test_vit", pretrained=False, num_classes=0)
    path = folder / "tiny.safetensors"
    safetensors.torch.save_file(model.state_dict(), path)
    return f"timm:test_vit@{path}?size={SIDE}"


def pictures(
    rows: int, classes: int = 4, seed: int = 0, noise: float = 60.0, task: int = 0
) -> tuple[list[bytes], list[int]]:
    """PNG images and labels; each class is one coarse pattern of its task, each row adds noise."""
    patterns = np.random.default_rng([1, task]).integers(40, 216, (classes, 4, 4, 3))
    random = np.random.default_rng([2, task, seed])
    labels = [row % classes for row in range(rows)]
    return [_png(patterns[label], noise, random) for label in labels], labels


def folder_of(path: Path, rows: int, task: int, seed: int = 0) -> Path:
    """Pictures as users keep them: a folder per class."""
    for row, (image, label) in enumerate(zip(*pictures(rows, seed=seed, task=task), strict=True)):
        file = path / TREES[label] / f"{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(image)
    return path


def _png(pattern: np.ndarray, noise: float, random: np.random.Generator) -> bytes:
    pixels = np.kron(pattern, np.ones((SIDE // 4, SIDE // 4, 1)))
    pixels = pixels + random.normal(0, noise, pixels.shape)
    return png(pixels.clip(0, 255).astype(np.uint8))


def home(folder: Path, spec: str | None = None, generic_rows: int = 40) -> Home:
    """A home as `tacl up` leaves it: the tiny base or another, other patterns as generic shard."""
    from cluster.learner.learner import Learner

    folder.mkdir(parents=True, exist_ok=True)
    place = Home(folder)
    described = Learner(str(folder), known=LeaseClient()).describe_base(spec or base(folder))
    blobs = Blobs(folder / "blobs")
    images, _ = pictures(generic_rows, classes=8, task=99)
    shard = samples.store_shard(blobs, images, _probe(generic_rows))
    settings = Settings(base=described, generic=shard, blobs=str(folder / "blobs"))
    write(place.settings_file, settings)
    return place


def submission(
    place: Home, task: int, rows: int = 96, test_rows: int = 40, noise: float = 60.0, **options: Any
) -> Submission:
    """Task number `task` of patterns; `options` are fields of Options."""
    sizes = {"train": rows, "validation": 40, "test": test_rows}
    parts = {
        part: pictures(count, seed=seed, noise=noise, task=task)
        for seed, (part, count) in enumerate(sizes.items())
    }
    return stored(place, f"task{task}", TREES, parts, **options)


def stored(
    place: Home,
    name: str,
    classes: Sequence[str],
    parts: Mapping[str, tuple[Sequence[samples.Raw], Sequence[int]]],
    **options: Any,
) -> Submission:
    """A task whose rows are in the home's blobs; all training inputs are its shard."""
    blobs = place.blobs()
    images, _ = parts["train"]
    refs: dict[str, Any] = {part: samples.store_rows(blobs, *rows) for part, rows in parts.items()}
    return Submission(
        request_id=f"request-{name}",
        name=name,
        owner="ann",
        modality="image",
        classes=tuple(classes),
        shard=samples.store_shard(blobs, images, _probe(len(images))),
        options=Options(**options),
        **refs,
    )


def generic(place: Home) -> Shard:
    settings = place.settings()
    assert settings is not None
    return Shard(task=GENERIC, ordinal=0, blob=settings.generic)


def train_work(place: Home, task: Submission, attempt: int = 1) -> TrainWork:
    settings = place.settings()
    assert settings is not None
    return TrainWork(
        run_id=f"run-{task.name}", base=settings.base, submission=task, attempt=attempt
    )


def _probe(rows: int) -> list[bool]:
    return [row % 6 == 0 for row in range(rows)]


class LeaseClient:
    """A coordinator that lists the same shards at every step, and from `joining` on also
    `newcomer`. With -1 `seconds`, each lease is one step.

    Raises ConnectionError before step `dies_at`. `gives_way_at`: numbers of the reports of progress
    after which work is to give way.
    """

    seconds = SHORTEST

    def __init__(
        self,
        *shards: Shard,
        newcomer: Shard | None = None,
        joining: int = 0,
        dies_at: int | None = None,
        gives_way_at: Collection[int] = (),
    ) -> None:
        self.gives_way_at = gives_way_at
        self.shards, self.newcomer, self.joining, self.dies_at = shards, newcomer, joining, dies_at
        self.asked: list[tuple[int, Progress | None]] = []
        self.statistics: list[str] = []
        self.told: list[Progress] = []

    def __call__(self, asked: Lease) -> Leave:
        steps = range(asked.first, asked.last + 1)
        self.asked.append((asked.first, asked.progress))
        if self.dies_at in steps:
            raise ConnectionError("the machine went away")
        told = [Arrival(step=0, shard=shard) for shard in self.shards] if asked.since < 0 else []
        if self.newcomer is not None and self.joining in steps:
            told.append(Arrival(step=self.joining, shard=self.newcomer))
        return Leave(tuple(told), self.seconds)

    def publish_statistics(self, run_id: str, statistics: str, attempt: int) -> None:
        self.statistics.append(statistics)

    def report_progress(self, run_id: str, progress: Progress, attempt: int) -> bool:
        self.told.append(progress)
        return len(self.told) in self.gives_way_at

    def lease(self, asked: Lease) -> Leave:
        """For calls of the method by name, when this is an actor."""
        return self(asked)

    def asked_by_now(self) -> list[int]:
        return [step for step, _ in self.asked]


class Mortal(LeaseClient):
    """The process that requests step `dies_at` is killed; before, every step is requested, and
    stored as a checkpoint."""

    seconds = -1.0

    def __call__(self, asked: Lease) -> Leave:
        training.CHECKPOINT_SECONDS = -1.0
        if asked.first == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(asked)


def shard_of(task: Submission, ordinal: int = 1) -> Shard:
    return Shard(task=task.name, ordinal=ordinal, blob=task.shard)


def published(task: Submission, trained: Trained, version: int = 1) -> VectorRef:
    """A finished run's vector, as the coordinator refers to it."""
    return VectorRef(
        task=task.name,
        version=version,
        digest=trained.vector_digest,
        blob=trained.vector_blob,
        head_blob=trained.head_blob,
        run_id=f"run-{task.name}",
    )


def composition(*terms: tuple[float, VectorRef]) -> Composition:
    recipe = [(coefficient, ref.digest) for coefficient, ref in terms]
    return Composition(
        digest=hashlib.sha256(repr(recipe).encode()).hexdigest(),
        user="alice",
        terms=tuple(RecipeTerm(coefficient=c, vector=ref) for c, ref in terms),
    )
