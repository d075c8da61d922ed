"""Homes with random vectors, in the state after training: serving does not depend on what a vector
does."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import torch

from cluster.domain.tasks import Options
from cluster.learner.artifacts import Materials
from cluster.storage.blobs import Blobs
from cluster.storage.home import EMBEDDED, Home, Settings, write
from cluster.storage.samples import store_rows, store_shard
from jobs.benchmarks.population import Filed, Population, submitted
from tacl.embedded import generate
from tacl.embedded.parquet import png
from tacl.heads.head import prototype_head
from tacl.vectors.vector import TaskVector

PICTURES = 16  # that are queried
CLASSES = ("ash", "birch", "cedar", "date")
SIZE = 0.05  # of a block, relative to theta0's standard deviation
WHOLE = "*"  # the blocks that a vector moves: all
SMALL = "layer2.*"  # a few: thousands of such vectors fit on any disk


def founded(folder: Path, tasks: int, moved: str = WHOLE, models: int = 0) -> Population:
    """A home with the embedded base model, `tasks` vectors and `models` models, whose cluster does
    not run."""
    from cluster.learner.learner import Learner

    home = Home(folder)
    folder.mkdir(parents=True, exist_ok=True)
    blobs = folder / "blobs"
    pictures = pictures_of(2 * PICTURES)
    base = Learner(str(folder)).describe_base(EMBEDDED)
    shard = store_shard(Blobs(blobs), pictures, [row == 0 for row in range(len(pictures))])
    settings = Settings(base=base, generic=shard, blobs=str(blobs))
    return populated(home, settings, pictures, tasks, moved, models)


def populated(
    home: Home,
    settings: Settings,
    pictures: Sequence[bytes],
    tasks: int,
    moved: str = WHOLE,
    models: int = 0,
) -> Population:
    """The home's registry and blobs as after the training of `tasks` tasks, t0, t1, ..., whose
    vectors move the blocks of the pattern `moved`; `models`: users who have composed."""
    write(home.settings_file, settings)
    materials = Materials(home, settings.base)
    stored, numbers = home.blobs(), range(len(pictures))
    data = store_rows(stored, list(pictures), [row % len(CLASSES) for row in numbers])
    shard = store_shard(stored, list(pictures), [row == 0 for row in numbers])
    rows, module = materials.labelled(data), materials.linearized()
    features_ND = materials.features(rows.items)
    theta0 = {name: module.theta0(name) for name in module.blocks if fnmatch(name, moved)}

    def filed(number: int) -> Filed:
        name, noise = f"t{number}", torch.Generator().manual_seed(number)
        tau = {
            block: SIZE * _std(value) * torch.randn(value.shape, generator=noise)
            for block, value in theta0.items()
        }
        vector = TaskVector.of_params(name, settings.base.digest, "linearized", tau)
        about = {"owner": "bench", "modality": "image", "classes": CLASSES, "shard": shard}
        task = submitted(name, data, **about, options=Options(heads="trained"))
        scale = 16.0 + number / tasks  # so that the heads differ
        head = prototype_head(features_ND, rows.labels, CLASSES, scale)
        blobs = materials.put(vector.save), materials.put_tensors(head.to_params())
        return Filed(task, [vector.digest], *blobs)

    population = Population(home, map(filed, range(tasks)), models)
    population.fill()
    return population


def pictures_of(count: int) -> list[bytes]:
    images_NHWC, _ = generate("digits", count, seed=7)
    return [png(image_HWC) for image_HWC in images_NHWC]


def _std(theta0: torch.Tensor) -> float:
    return theta0.std().item() if theta0.numel() > 1 else 1.0
