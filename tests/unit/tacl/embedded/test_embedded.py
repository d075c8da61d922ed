"""The embedded tasks and the shipped encoder: deterministic, balanced, small, worth training."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import load_dataset

from tacl import embedded
from tacl.embedded import model
from tacl.embedded.canvas import SIZE

ROWS = 40


@pytest.fixture(scope="module")
def encoder():
    return model.load()


def test_there_are_at_least_five_tasks_with_distinct_readable_classes():
    names = [name for task in embedded.tasks() for name in embedded.classes(task)]
    assert len(embedded.tasks()) >= 5
    assert all(6 <= len(embedded.classes(task)) <= 10 for task in embedded.tasks())
    assert len(set(names)) == len(names)
    assert all(name.replace(" ", "").isalpha() for name in names)


@pytest.mark.parametrize("task", embedded.tasks())
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(task):
    images, labels = embedded.generate(task, ROWS, seed=3)
    again, labels_again = embedded.generate(task, ROWS, seed=3)
    other, _ = embedded.generate(task, ROWS, seed=4)
    assert images.shape == (ROWS, SIZE, SIZE, 3)
    assert images.dtype == np.uint8
    assert images.tobytes() == again.tobytes()
    assert np.array_equal(labels, labels_again)
    assert len(np.unique(np.concatenate([images, other]).reshape(2 * ROWS, -1), axis=0)) == 2 * ROWS


@pytest.mark.parametrize("task", embedded.tasks())
def test_classes_are_balanced_and_a_row_does_not_depend_on_how_many_are_made(task):
    images, labels = embedded.generate(task, 3 * len(embedded.classes(task)), seed=0)
    few, _ = embedded.generate(task, 5, seed=0)
    assert set(np.bincount(labels)) == {3}
    assert np.array_equal(few, images[:5])


def test_render_draws_the_class_that_was_asked_for():
    rng = np.random.default_rng(0)
    assert embedded.render("shapes", "star", rng).shape == (SIZE, SIZE, 3)
    with pytest.raises(KeyError, match="dodecahedron"):
        embedded.render("shapes", "dodecahedron", rng)


def test_a_written_task_is_a_data_set_that_datasets_reads(tmp_path: Path):
    embedded.write_parquet("signs", tmp_path / "signs", train_rows=27, test_rows=18, seed=5)
    found: Any = load_dataset(str(tmp_path / "signs"), cache_dir=str(tmp_path / "cache"))
    images, labels = embedded.generate("signs", 27, seed=5)
    assert found["train"].features["label"].names == list(embedded.classes("signs"))
    assert found["train"]["label"] == labels.tolist()
    assert np.array_equal(np.asarray(found["train"][7]["image"]), images[7])
    train = {np.asarray(row["image"]).tobytes() for row in found["train"]}
    test = {np.asarray(row["image"]).tobytes() for row in found["test"]}
    assert len(train) == 27
    assert len(test) == 18
    assert not train & test


def test_the_generic_shard_is_a_data_set_without_labels(tmp_path: Path):
    images = embedded.generic(12, seed=0)
    embedded.write_images(images, tmp_path / "generic")
    found = load_dataset(str(tmp_path / "generic"), cache_dir=str(tmp_path / "cache"))["train"]
    assert found.column_names == ["image"]
    assert np.array_equal(np.asarray(found[11]["image"]), images[11])


def test_captions_name_what_is_shown_and_rows_can_be_drawn_apart():
    images, captions = embedded.captioned(24, seed=1)
    late, late_captions = embedded.captioned(4, seed=1, start=20)
    assert captions[20:] == late_captions
    assert np.array_equal(images[20:], late)
    assert len(set(captions)) > 18


def test_the_shipped_files_belong_together_and_are_small():
    record = json.loads(model.RECORD.read_text())
    assert hashlib.sha256(model.WEIGHTS.read_bytes()).hexdigest() == record["sha256"]
    assert model.WEIGHTS.stat().st_size <= 8_000_000
    assert record["seconds"] <= 30 * 60
    assert set(record["zero_shot"]) == set(embedded.tasks())


def test_the_encoder_is_float32_in_eval_mode_with_both_towers(encoder):
    clip, words = encoder
    assert not clip.training
    assert {p.dtype for p in clip.parameters()} == {torch.float32}
    with torch.no_grad():
        images = clip.encode_image(torch.zeros(2, 3, SIZE, SIZE))
        texts = clip.encode_text(words(["a photo of a star.", "forest"]))
    assert images.shape == texts.shape == (2, model.config()["embed_dim"])
    assert int(words("zebra crossing, 7 Ångström").max()) < clip.token_embedding.num_embeddings


@pytest.mark.parametrize("task", embedded.tasks())
def test_zero_shot_is_well_above_chance_and_leaves_room(encoder, task):
    clip, words = encoder
    names = embedded.classes(task)
    images, labels = (torch.from_numpy(x) for x in embedded.generate(task, 200, seed=77))
    accuracy = model.zero_shot(clip, words, images, labels, names)
    assert 1.5 / len(names) < accuracy < 0.9


def test_the_encoder_is_what_open_clip_builds_from_its_configuration(encoder):
    from open_clip.tokenizer import SimpleTokenizer

    net, words = encoder
    built = model.build().eval()
    built.load_state_dict(net.state_dict(), strict=True)
    tokens = SimpleTokenizer(str(model.MERGES), context_length=words.length)
    texts = [f"a photo of a {c}." for task in embedded.tasks() for c in embedded.classes(task)]
    texts += [
        "It's  the 3rd\n Café, naïve &amp; X's 1234",
        "a " * 40,
        "",
        "disestablishment 日本語",
    ]
    assert torch.equal(words(texts), tokens(texts))
    images_NCHW = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(net.encode_text(words(texts)), built.encode_text(tokens(texts)))
        torch.testing.assert_close(
            net.encode_image(images_NCHW), built.encode_image(images_NCHW), rtol=1e-4, atol=1e-4
        )


def test_the_encoder_is_loaded_without_the_slow_libraries():
    slow = "{'open_clip', 'torchvision', 'timm', 'transformers', 'datasets', 'ray'}"
    load = "import sys; from tacl.backbone import load_backbone; load_backbone('embedded')"
    code = f"{load}; print({slow} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
