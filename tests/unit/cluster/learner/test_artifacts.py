"""What a learner reads and prepares of other tasks: what its steps see, and nothing twice."""

from __future__ import annotations

import tempfile
from functools import partial

import pytest
import torch

from cluster.domain.tasks import Shard
from cluster.learner.artifacts import Materials, Passes
from cluster.storage import samples
from tacl.backbone import Backbone
from tests.support import tiny
from tests.support.learned import Scene


def test_a_store_prepares_nothing_before_a_step_asks_for_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = tiny.shard_of(scene.tasks[1])
    prepare, asked = Backbone.prepare, list[object]()

    def counted(backbone: Backbone, raw: bytes | str) -> torch.Tensor:
        asked.append(raw)
        return prepare(backbone, raw)

    monkeypatch.setattr(Backbone, "prepare", counted)
    materials = scene.materials
    store = materials.store(shard, 1.0)
    assert store.items
    assert not asked
    raws = samples.training_inputs(materials.blobs, shard.blob)
    expected = partial(prepare, materials.backbone)
    assert torch.equal(store.items[3], expected(raws[3]))
    assert torch.equal(store.items[3], store.items[3])
    assert asked == [raws[3]]  # and stays so


def test_what_is_stored_does_not_pass_through_the_folder_of_temporary_files(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may be small, and keeps what killed processes leave."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    materials = scene.materials
    digest = materials.put_tensors({"a": torch.ones(2)})
    assert materials.blobs.exists(digest)
    assert not [*scene.home.path.glob("cache/drafts/*")]


def test_no_picture_is_read_to_count_texts_that_are_cut(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(samples, "labelled_rows")
    assert scene.materials.cut(scene.tasks[0].train) == 0


def test_the_features_of_a_probe_are_computed_once_on_a_machine(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training compares its task with all others, and needs the norms of all."""
    shard: Shard = tiny.shard_of(scene.tasks[1])
    first = Materials.features(scene.materials, scene.materials.probe_items(shard.blob))
    scene.materials.probe_features(shard.blob)
    monkeypatch.delattr(Passes, "features")
    later = scene.materials  # of another process
    assert torch.equal(later.probe_features(shard.blob), first)
    assert later.feature_norm(shard.blob) == pytest.approx(first.norm(dim=-1).mean().item())


def test_features_of_two_probes_are_in_memory_however_many_tasks_there_are(scene: Scene) -> None:
    """A training compares its own with that of one other after the other."""
    own, other = (tiny.shard_of(task).blob for task in scene.tasks)
    materials = scene.materials
    first = materials.probe_features(own)
    for one in (other, tiny.generic(scene.home).blob):
        materials.probe_features(one)
        assert materials.probe_features(own) is first
    assert len(materials._probed) == 2
