"""The encoders: four schemes on tiny random models, their preprocessing, and clear refusals."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file

from tacl.backbone import Backbone, BaseSpec, hub, load_backbone
from tacl.backbone.inputs import Images
from tacl.errors import BadBase, BadSample, BaseNotFound, ModalityMismatch
from tests.support import bases


def png(array: np.ndarray | None = None, width: int = 40, height: int = 32) -> bytes:
    if array is None:
        array = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bases.bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bases.gpt2(tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bases.clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="session")
def lite0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import timm

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("timm") / "weights.safetensors"
    save_file(timm.create_model("tf_efficientnet_lite0").state_dict(), path)
    return path


def trained(backbone: Backbone) -> set[str]:
    names = [name for name, _ in backbone.encoder.named_parameters()]
    return {n for n in names if any(fnmatchcase(n, p) for p in backbone.trainable)}


def frozen(backbone: Backbone) -> set[str]:
    return {name for name, _ in backbone.encoder.named_parameters()} - trained(backbone)


def is_usable(backbone: Backbone) -> None:
    assert not any(module.training for module in backbone.encoder.modules())
    assert not any(p.requires_grad for p in backbone.encoder.parameters())
    assert {p.dtype for p in backbone.encoder.parameters()} == {torch.float32}
    assert len(backbone.digest) == 64


# names


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("embedded", BaseSpec("embedded")),
        ("hf:org/model", BaseSpec("hf", "org/model")),
        ("hf:org/model@main", BaseSpec("hf", "org/model", "main")),
        ("hf:../odd@name/x?size=64", BaseSpec("hf", "../odd@name/x", None, 64)),
        ("open_clip:ViT-B-32@openai", BaseSpec("open_clip", "ViT-B-32", "openai")),
        ("timm:net@a/b@c.safetensors?size=96", BaseSpec("timm", "net", "a/b@c.safetensors", 96)),
    ],
)
def test_specs_are_read_and_written(text: str, spec: BaseSpec) -> None:
    assert BaseSpec.parse(text) == spec
    assert str(spec) == text


@given(
    st.sampled_from(["hf", "open_clip", "timm"]),
    st.from_regex(r"[a-zA-Z0-9_-]{1,8}", fullmatch=True),
    st.none() | st.from_regex(r"[a-zA-Z0-9_./-]{1,8}", fullmatch=True),
    st.none() | st.integers(1, 99999),
)
def test_specs_survive_writing_and_reading(
    scheme: str, name: str, weights: str | None, size: int | None
) -> None:
    spec = BaseSpec(scheme, name, weights, size)
    assert BaseSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    "text",
    ["", "x", "resnet:18", "hf:", "timm:net@", "embedded:x", "hf:a?size=0", "hf:a?size=x",
     "hf:a?colour=1", "hf:a?"],
)  # fmt: skip
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises(BadBase) as caught:
        BaseSpec.parse(text)
    assert repr(text) in str(caught.value)


# transformers


def test_bert_pools_the_mean_of_real_tokens(bert: Path) -> None:
    backbone = load_backbone(f"hf:{bert}")
    is_usable(backbone)
    assert (backbone.modality, backbone.head_kind, backbone.logit_scale) == ("text", "text", 20.0)
    assert backbone.templates == ("This is about {}.",)
    items = [backbone.prepare(text) for text in ("the cat", "a dog ran over the road")]
    batch = backbone.collate(items)
    assert isinstance(batch, dict)
    assert batch["attention_mask"].tolist() == [[1] * 4 + [0] * 4, [1] * 8]
    features = backbone.encoder(batch)
    model: Any = backbone.encoder.model
    for row, item in enumerate(items):  # alone, without padding
        tokens = model(input_ids=item[None]).last_hidden_state[0]
        torch.testing.assert_close(features[row], tokens.mean(0), rtol=1e-4, atol=1e-5)


def test_bert_trains_its_layers_and_not_its_embeddings(bert: Path) -> None:
    backbone = load_backbone(f"hf:{bert}")
    assert all(name.startswith("model.encoder.layer.") for name in trained(backbone))
    assert len(trained(backbone)) == 2 * 16
    assert all(name.startswith("model.embeddings.") for name in frozen(backbone))


def test_pooling_is_read_from_the_encoders_folder(bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "cls")
    (tmp_path / "cls" / "1_Pooling").mkdir()
    settings = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    path = tmp_path / "cls" / "1_Pooling" / "config.json"
    path.write_text(json.dumps(settings))
    backbone = load_backbone(f"hf:{tmp_path / 'cls'}")
    batch = backbone.collate([backbone.prepare("the cat"), backbone.prepare("a dog ran")])
    model: Any = backbone.encoder.model
    assert isinstance(batch, dict)
    expected = model(**batch).last_hidden_state[:, 0]
    torch.testing.assert_close(backbone.encoder(batch), expected)
    assert backbone.digest != load_backbone(f"hf:{bert}").digest
    path.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(BadBase, match="pooling"):
        load_backbone(f"hf:{tmp_path / 'cls'}")


def test_gpt2_gives_the_last_real_token(gpt2: Path) -> None:
    backbone = load_backbone(f"hf:{gpt2}")
    is_usable(backbone)
    items = [backbone.prepare(text) for text in ("the cat", "a dog ran over the road")]
    features = backbone.encoder(backbone.collate(items))
    model: Any = backbone.encoder.model
    for row, item in enumerate(items):
        last = model(input_ids=item[None]).last_hidden_state[0, -1]
        torch.testing.assert_close(features[row], last, rtol=1e-4, atol=1e-5)
    assert frozen(backbone) == {"model.wte.weight", "model.wpe.weight"}


def test_texts_are_cut_at_the_size(bert: Path) -> None:
    long = "the cat sat on the mat " * 60
    assert load_backbone(f"hf:{bert}").prepare(long).shape == (128,)
    item = load_backbone(f"hf:{bert}?size=9").prepare(long)
    assert item.shape == (9,)
    assert item.dtype == torch.int64
    assert item[-1] == 3  # the end is still marked
    short = load_backbone(f"hf:{bert}?size=9")
    assert short.is_cut(long)
    assert [short.is_cut("cat " * words) for words in (7, 8)] == [False, True]
    with pytest.raises(BadBase, match="160 positions"):
        load_backbone(f"hf:{bert}?size=161")


def test_texts_as_bytes_and_what_is_no_text(bert: Path, gpt2: Path) -> None:
    backbone = load_backbone(f"hf:{bert}")
    assert torch.equal(backbone.prepare(b"the cat"), backbone.prepare("the cat"))
    with pytest.raises(BadSample, match="UTF-8"):
        backbone.prepare(png())
    with pytest.raises(BadSample, match="no tokens"):
        load_backbone(f"hf:{gpt2}").prepare("")


def test_encoded_texts_are_the_encoders_features(bert: Path) -> None:
    backbone = load_backbone(f"hf:{bert}")
    texts = [f"the {'cat ' * (i % 5)}" for i in range(70)]  # more than one pass
    features = backbone.encode_texts(texts)
    assert features.shape == (70, 16)
    for row in (0, 3, 69):
        alone = backbone.encoder(backbone.collate([backbone.prepare(texts[row])]))[0]
        torch.testing.assert_close(features[row], alone, rtol=1e-4, atol=1e-5)


# open_clip


def test_clip_gives_features_of_images_and_texts_in_one_space(clip: Path) -> None:
    backbone = load_backbone(f"open_clip:{clip}")
    is_usable(backbone)
    assert (backbone.modality, backbone.head_kind) == ("image", "text")
    assert backbone.logit_scale == pytest.approx(1 / 0.07, rel=1e-5)
    assert backbone.inputs == Images(32, (0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
    item = backbone.prepare(png())
    assert backbone.encoder(backbone.collate([item, item])).shape == (2, 12)
    assert backbone.encode_texts(["a cat", "a dog", "a road"]).shape == (3, 12)


def test_clip_trains_all_but_its_lookup_tables(clip: Path) -> None:
    backbone = load_backbone(f"open_clip:{clip}")
    assert frozen(backbone) == {"class_embedding", "positional_embedding"}


def test_clip_residual_networks_too(tmp_path: Path) -> None:
    vision = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    backbone = load_backbone(f"open_clip:{bases.clip(tmp_path, vision)}")
    item = backbone.prepare(png())
    assert backbone.encoder(backbone.collate([item])).shape == (1, 12)
    assert frozen(backbone) == {"attnpool.positional_embedding"}


def test_clip_weights_from_a_file_need_a_known_name(clip: Path, tmp_path: Path) -> None:
    weights = clip / "open_clip_model.safetensors"
    with pytest.raises(BadBase, match="not usable as ViT-S-32"):
        load_backbone(f"open_clip:ViT-S-32@{weights}")
    (tmp_path / "weights.bin").write_bytes(b"pickle")
    with pytest.raises(BadBase, match=r"no \.safetensors"):
        load_backbone(f"open_clip:ViT-S-32@{tmp_path / 'weights.bin'}")


def test_a_clip_of_another_size(clip: Path) -> None:
    backbone = load_backbone(f"open_clip:{clip}?size=48")
    item = backbone.prepare(png())
    assert item.shape == (3, 48, 48)
    assert backbone.encoder(backbone.collate([item])).shape == (1, 12)


def test_quick_gelu_is_another_base(clip: Path, tmp_path: Path) -> None:
    """The weights fit both functions, so the digest must tell them apart."""
    shutil.copytree(clip, tmp_path / "quick")
    path = tmp_path / "quick" / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["quick_gelu"] = True
    path.write_text(json.dumps(config))
    one, two = load_backbone(f"open_clip:{clip}"), load_backbone(f"open_clip:{tmp_path / 'quick'}")
    assert one.digest != two.digest


# timm


def test_timm_gives_pooled_features_and_has_no_text_tower(lite0: Path) -> None:
    backbone = load_backbone(f"timm:tf_efficientnet_lite0@{lite0}?size=64")
    is_usable(backbone)
    assert (backbone.modality, backbone.head_kind, backbone.logit_scale) == (
        "image",
        "prototype",
        16.0,
    )
    assert backbone.inputs == Images(64, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    item = backbone.prepare(png())
    assert backbone.encoder(backbone.collate([item])).shape == (1, 1280)
    assert not frozen(backbone)
    with pytest.raises(BadBase, match="no text tower"):
        backbone.encode_texts(["a cat"])


def test_timm_weights_are_the_files(lite0: Path) -> None:
    backbone = load_backbone(f"timm:tf_efficientnet_lite0@{lite0}")
    state = load_file(lite0)
    for name, value in backbone.encoder.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert "classifier.weight" in state


def test_a_timm_transformer_of_another_size(tmp_path: Path) -> None:
    import timm

    model = timm.create_model("test_vit", num_classes=0)
    save_file(model.state_dict(), tmp_path / "vit.safetensors")
    backbone = load_backbone(f"timm:test_vit@{tmp_path / 'vit.safetensors'}?size=64")
    item = backbone.prepare(png())
    assert backbone.encoder(backbone.collate([item])).ndim == 2


# pictures


def test_pictures_are_resized_cropped_in_the_centre_and_normalised() -> None:
    array = np.zeros((10, 30, 3), np.uint8)
    array[:, 10:20, 0] = 200  # the central square is red
    inputs = Images(10, (0.5, 0.0, 0.25), (0.5, 1.0, 2.0))
    item = inputs.prepare(png(array))
    assert item.dtype == torch.uint8
    assert item[0].eq(200).all()
    assert item[1:].eq(0).all()
    batch = inputs.collate([item], torch.device("cpu"))
    expected = torch.tensor([(200 / 255 - 0.5) / 0.5, 0.0, -0.125])
    torch.testing.assert_close(batch[0, :, 4, 4], expected)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 24))
def test_every_picture_becomes_a_square(width: int, height: int, size: int) -> None:
    inputs = Images(size, (0.5,) * 3, (0.5,) * 3)
    if max(width, height) > 50 * min(width, height):
        with pytest.raises(BadSample, match="narrow"):
            inputs.prepare(png(width=width, height=height))
    else:
        assert inputs.prepare(png(width=width, height=height)).shape == (3, size, size)


@pytest.mark.parametrize(("width", "height"), [(53, 37), (37, 54), (16, 16), (9, 20), (200, 33)])
def test_resize_and_crop_are_the_reference(width: int, height: int) -> None:
    from torchvision.transforms import v2

    raw = png(width=width, height=height)
    reference = v2.Compose(
        [
            v2.Resize(16, interpolation=v2.InterpolationMode.BICUBIC),
            v2.CenterCrop(16),
            v2.PILToTensor(),
        ]
    )(Image.open(io.BytesIO(raw)).convert("RGB"))
    item = Images(16, (0.0,) * 3, (1.0,) * 3).prepare(raw)
    assert torch.equal(item, reference)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "LA"])
def test_every_mode_of_picture_becomes_rgb(mode: str) -> None:
    buffer = io.BytesIO()
    kind = "TIFF" if mode == "CMYK" else "PNG"
    Image.new("RGB", (8, 8), "white").convert(mode).save(buffer, kind)
    item = Images(8, (0.0,) * 3, (1.0,) * 3).prepare(buffer.getvalue())
    assert item.eq(255).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_broken_pictures_are_refused(kind: str) -> None:
    array = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, kind)
    inputs = Images(8, (0.0,) * 3, (1.0,) * 3)
    whole = buffer.getvalue()
    inputs.prepare(whole)
    for raw in (b"", b"no picture", whole[: len(whole) // 2], whole[:30]):
        with pytest.raises(BadSample, match="unreadable image"):
            inputs.prepare(raw)


def test_a_text_is_no_picture() -> None:
    with pytest.raises(ModalityMismatch, match="hello"):
        Images(8, (0.0,) * 3, (1.0,) * 3).prepare("hello")


# identity


def test_the_digest_follows_weights_and_preprocessing(clip: Path, tmp_path: Path) -> None:
    digest = load_backbone(f"open_clip:{clip}").digest
    shutil.copytree(clip, tmp_path / "moved")
    assert load_backbone(f"open_clip:{tmp_path / 'moved'}").digest == digest

    weights = tmp_path / "moved" / "open_clip_model.safetensors"
    state = load_file(weights)
    state["visual.proj"][0, 0] += 1e-3
    save_file(state, weights)
    assert load_backbone(f"open_clip:{tmp_path / 'moved'}").digest != digest

    shutil.rmtree(tmp_path / "moved")
    shutil.copytree(clip, tmp_path / "moved")
    config = tmp_path / "moved" / "open_clip_config.json"
    config.write_text(config.read_text().replace("0.4", "0.41"))
    assert load_backbone(f"open_clip:{tmp_path / 'moved'}").digest != digest


def test_the_size_of_texts_is_part_of_the_identity(bert: Path) -> None:
    digests = {load_backbone(f"hf:{bert}{size}").digest for size in ("", "?size=64")}
    assert len(digests) == 2


# refusals


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hf:/no/such/place", ["/no/such/place", "no directory"]),
        ("hf:./nowhere", ["nowhere", "no directory"]),
        ("hf:nobody/nothing", ["nobody/nothing", "cache", "HF_HUB_OFFLINE", "give a directory"]),
        ("hf:what is this", ["neither a directory nor a hub id"]),
        ("open_clip:ViT-B-23@openai", ["ViT-B-23", "did you mean", "ViT-B-32"]),
        ("open_clip:ViT-B-32@nobody", ["nobody", "openai"]),
        ("open_clip:ViT-B-32", ["@TAG or @FILE", "openai"]),
        ("open_clip:/no/such/place", ["/no/such/place"]),
        ("timm:resnet_eighteen", ["resnet_eighteen", "no model"]),
        ("timm:resnet18@/no/such/file", ["/no/such/file"]),
        ("timm:resnet18", ["cache", "HF_HUB_OFFLINE", "@FILE"]),
    ],
)
def test_a_base_that_is_not_there(text: str, words: list[str]) -> None:
    with pytest.raises((BaseNotFound, BadBase)) as caught:
        load_backbone(text)
    for word in [text, *words]:
        assert word in str(caught.value)


def test_a_known_tag_that_cannot_be_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(BaseNotFound, match=r"HF_HUB_OFFLINE.*@FILE"):
        load_backbone("open_clip:ViT-B-32@openai")


def test_folders_without_config_weights_or_tokenizer(
    bert: Path, clip: Path, tmp_path: Path
) -> None:
    with pytest.raises(BaseNotFound, match=r"config\.json"):
        load_backbone(f"hf:{tmp_path}")
    with pytest.raises(BaseNotFound, match="open_clip_config"):
        load_backbone(f"open_clip:{tmp_path}")
    shutil.copytree(bert, tmp_path / "bert")
    os.remove(tmp_path / "bert" / "model.safetensors")
    with pytest.raises(BaseNotFound, match=r"model\.safetensors"):
        load_backbone(f"hf:{tmp_path / 'bert'}")
    shutil.copy(clip / "open_clip_config.json", tmp_path)
    with pytest.raises(BaseNotFound, match=r"no \.safetensors"):
        load_backbone(f"open_clip:{tmp_path}")


def test_weights_with_other_keys(bert: Path, clip: Path, lite0: Path, tmp_path: Path) -> None:
    def lose(path: Path, key: str) -> None:
        state = load_file(path)
        state[key + "_of_another"] = state.pop(key)
        save_file(state, path, metadata={"format": "pt"})

    shutil.copytree(bert, tmp_path / "bert")
    lose(tmp_path / "bert" / "model.safetensors", "encoder.layer.1.output.dense.weight")
    with pytest.raises(BadBase, match=r"lack 1 .*encoder\.layer\.1\.output\.dense\.weight"):
        load_backbone(f"hf:{tmp_path / 'bert'}")

    shutil.copytree(clip, tmp_path / "clip")
    lose(tmp_path / "clip" / "open_clip_model.safetensors", "visual.proj")
    with pytest.raises(BadBase, match=r"visual\.proj"):
        load_backbone(f"open_clip:{tmp_path / 'clip'}")

    shutil.copy(lite0, tmp_path / "lite0.safetensors")
    lose(tmp_path / "lite0.safetensors", "conv_head.weight")
    with pytest.raises(BadBase, match=r"conv_head\.weight"):
        load_backbone(f"timm:tf_efficientnet_lite0@{tmp_path / 'lite0.safetensors'}")


def test_damaged_weights(bert: Path, clip: Path, lite0: Path, tmp_path: Path) -> None:
    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-100])

    shutil.copytree(bert, tmp_path / "bert")
    cut(tmp_path / "bert" / "model.safetensors")
    with pytest.raises(BadBase, match="file not fully covered"):
        load_backbone(f"hf:{tmp_path / 'bert'}")
    shutil.copytree(clip, tmp_path / "clip")
    cut(tmp_path / "clip" / "open_clip_model.safetensors")
    with pytest.raises(BadBase, match="not usable"):
        load_backbone(f"open_clip:{tmp_path / 'clip'}")
    shutil.copy(lite0, tmp_path / "lite0.safetensors")
    cut(tmp_path / "lite0.safetensors")
    with pytest.raises(BadBase, match="no whole safetensors"):
        load_backbone(f"timm:tf_efficientnet_lite0@{tmp_path / 'lite0.safetensors'}")


def test_a_silent_hub_is_waited_for_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(hub, "SECONDS", 0.5)
        begin = time.monotonic()
        with pytest.raises(BaseNotFound, match=r"gave no answer within 0\.5 s"):
            load_backbone("hf:nobody/nothing")
        assert time.monotonic() - begin < 10
        assert constants.HF_HUB_OFFLINE is False  # as it was


# real encoders, where they lie


def test_minilm_puts_similar_sentences_together(shared: Path) -> None:
    backbone = load_backbone(f"hf:{shared / 'models' / 'minilm'}")
    features = backbone.encode_texts(
        ["The stock market fell.", "Shares lost value today.", "A cat sleeps on the sofa."]
    )
    unit = torch.nn.functional.normalize(features, dim=-1)
    assert features.shape == (3, 384)
    assert unit[0] @ unit[1] > unit[0] @ unit[2] + 0.3
    assert len(trained(backbone)) == 6 * 16


def test_efficientnet_lite0_tells_pictures_apart(shared: Path) -> None:
    weights = shared / "models" / "efficientnet_lite0" / "model.safetensors"
    backbone = load_backbone(f"timm:tf_efficientnet_lite0@{weights}?size=96")
    items = [backbone.prepare(png(width=w)) for w in (40, 32)]
    features = backbone.encoder(backbone.collate(items))
    assert features.shape == (2, 1280)
    assert 5 < features.norm(dim=-1).mean() < 100


# the embedded encoder


def test_embedded_is_the_open_clip_model_that_is_shipped(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import open_clip

    name = f"local-dir:{clip}"
    shipped = open_clip.create_model(name), open_clip.get_tokenizer(name)
    monkeypatch.setattr("tacl.embedded.load", lambda: shipped)
    backbone = load_backbone("embedded")
    is_usable(backbone)
    assert (backbone.modality, backbone.head_kind) == ("image", "text")
    assert backbone.digest == load_backbone(f"open_clip:{clip}").digest
    assert backbone.encode_texts(["a cat"]).shape == (1, 12)
    assert load_backbone("embedded?size=32").digest == backbone.digest
    with pytest.raises(BadBase, match="its own size"):
        load_backbone("embedded?size=64")
