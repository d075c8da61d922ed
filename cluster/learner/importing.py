"""Turns a model that was fine-tuned elsewhere into a task's vector, and measures what that costs.

`converted` runs where the checkpoint is, so that nothing is stored before it fits. The rest is a
run like a training, in which the vector is measured instead of trained. A checkpoint was fine-tuned
as an ordinary model; here its change is added in the linearized model, so both accuracies are
measured. A vector of another home was trained in that model, and is imported bit for bit.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cluster.domain.status import Phase
from cluster.domain.work import Trained, TrainWork
from cluster.learner.artifacts import BATCH, Materials, given_device
from cluster.learner.progress import Begins
from cluster.learner.training import stored_with_head, validated
from cluster.storage.home import Home
from tacl.backbone import Backbone
from tacl.compose.materialized import materialized, materialized_features
from tacl.data.batches import Labelled
from tacl.errors import BadCheckpoint
from tacl.evaluation.metrics import accuracy
from tacl.heads.head import Head
from tacl.interchange import hub
from tacl.interchange.adapter import folder_of_adapter, vector_of_adapter
from tacl.interchange.checkpoint import ImportedVector, vector_of_checkpoint
from tacl.interchange.stated import Stated, stated
from tacl.interchange.vector_file import VECTOR, is_vector, vector_of_file
from tacl.models.frozen import trainable_blocks
from tacl.vectors import params
from tacl.vectors.blocks import Block
from tacl.vectors.vector import TaskVector

# Factor of the encoder's size: a checkpoint may also have a text tower or a classifier, perhaps in
# double precision.
AROUND = 8
SMALL = 64 << 20  # bytes; the parts beside a small encoder may be larger than it


class Converted(NamedTuple):
    """The file of a vector, notes for the user, and the classes that the checkpoint states."""

    vector: Path
    notes: tuple[str, ...]
    classes: Stated | None


@contextmanager
def converted(name: str, checkpoint: str, home: Home) -> Iterator[Converted]:
    """Converts a checkpoint to a vector's file, which exists for as long as the context.

    `checkpoint`: a path, or hf:OWNER/NAME[@REVISION]. Raises BadCheckpoint, BaseMismatch and, for a
    hub, BadName, StorageUnavailable.
    """
    backbone = Materials(home, home.founded().base).backbone
    with _at_hand(checkpoint, backbone) as (path, origin):
        found = _read(name, backbone, path)
        classes = stated(path, found.classifier)
    kept, outside = split(found.vector, backbone)
    if not kept:
        raise BadCheckpoint(
            f"{checkpoint} changes only what vectors do not move in this home, such as "
            f"{sorted(outside)[:3]}; they move {', '.join(backbone.trainable)}"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / VECTOR
        found.vector.save(file)
        yield Converted(file, (*origin, *found.notes, *_notes(found.aside, outside)), classes)


@contextmanager
def _at_hand(checkpoint: str, backbone: Backbone) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yields the path of the checkpoint's files, and a note on their origin if it is a hub."""
    if not hub.is_repository(checkpoint):
        yield Path(os.path.expanduser(checkpoint)), ()
        return
    encoder = sum(value.nbytes for value in backbone.encoder.state_dict().values())
    with hub.fetched(hub.Repository.parse(checkpoint), AROUND * encoder + SMALL) as (folder, from_):
        yield folder, (f"from {from_}",)


def _read(name: str, backbone: Backbone, path: Path) -> ImportedVector:
    if is_vector(path):
        return vector_of_file(name, backbone, path)
    if folder := folder_of_adapter(path):
        return vector_of_adapter(name, backbone, folder)
    return vector_of_checkpoint(name, backbone, path)


def _notes(aside: tuple[str, ...], outside: dict[str, Block]) -> Iterator[str]:
    if aside:
        yield f"left aside, because no part of the base model: {_some(aside)}"
    if outside:
        yield f"changed in the checkpoint and not moved by vectors here: {_some(outside)}"


def _some(names: tuple[str, ...] | dict[str, Block]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(sorted(names)[:3]) + more


def split(vector: TaskVector, backbone: Backbone) -> tuple[dict[str, Block], dict[str, Block]]:
    """The vector's blocks, divided into those that vectors have in this home and the others."""
    trained = set(trainable_blocks(backbone.encoder, backbone.trainable))
    kept = {name: block for name, block in vector.blocks.items() if name in trained}
    return kept, {name: block for name, block in vector.blocks.items() if name not in trained}


def import_task(work: TrainWork, home: Home, begins: Begins) -> Trained:
    """Measures the vector that came with the submission; blobs of the result are stored on return.
    `begins` is called with each phase.

    Metrics beside those of a training: validation_checkpoint, the accuracy of a checkpoint as the
    ordinary model that it is; outside, the share of its change that vectors here do not have.
    """
    started = time.monotonic()
    begins(Phase.LOADING)
    submission = work.submission
    device = given_device(submission.options.gpus_per_worker)
    materials = Materials(home, work.base, device)
    source = _source(work, materials)
    begins(Phase.HEAD)
    train = partial(materials.labelled, submission.train)
    head = materials.head_from(submission.classes, train, submission.templates)
    begins(Phase.MEASURING)
    validation = materials.labelled(submission.validation)
    kept, outside = split(source, materials.backbone)
    vector = TaskVector(submission.name, work.base.digest, "linearized", kept)
    tau = vector.to_params()
    lost = {name: block.dense() for name, block in outside.items()}
    size, left = params.norm(tau), params.norm(lost)
    found = validated(materials, tau, head, validation)
    found |= _as_it_was(source, materials, head, validation)
    found["outside"] = left / max((left**2 + size**2) ** 0.5, 1e-30)
    return Trained(
        **stored_with_head(materials, submission, vector, head),
        config={"imported": True, "blocks": [*sorted(kept)], "outside": [*sorted(outside)]},
        metrics=found | {"seconds": time.monotonic() - started},
        curves={},
    )


def _as_it_was(
    source: TaskVector, materials: Materials, head: Head, validation: Labelled
) -> dict[str, float]:
    """Accuracy of a checkpoint as an ordinary model; empty for a vector of the linearized model."""
    if source.regime == "linearized":
        return {}
    theta = materialized(materials.backbone.encoder, source.to_params())
    features_ND = materialized_features(materials.backbone, theta, validation.items, BATCH)
    return {"validation_checkpoint": accuracy(head.logits(features_ND), validation.labels)}


def _source(work: TrainWork, materials: Materials) -> TaskVector:
    assert work.submission.vector_blob is not None  # else it is a training
    vector = TaskVector.load(materials.blobs.local_path(work.submission.vector_blob))
    vector.require_base(materials.backbone.digest, f"the vector of {work.submission.name}")
    return vector
