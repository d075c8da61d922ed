"""The encoders: four schemes on tiny random models, their preprocessing, and clear refusals."""

from __future__ import annotations

import json
import logging
import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tacl.backbone import Backbone, hf, load_backbone
from tacl.backbone.inputs import Images
from tacl.errors import BadBase, BadSample
from tacl.models.linearized import LinearizedEncoder, linearize
from tacl.spec import BaseSpec
from tacl.vectors import params
from tests.support import bases


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


def test_padding_that_changes_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadBase, match=r"padding changes its features, here by \d+\.\d%"):
        load_backbone(f"hf:{bases.convbert(tmp_path)}")


def test_bloom_is_trained_and_its_features_are_its_own(tmp_path: Path) -> None:
    backbone = load_backbone(f"hf:{bases.bloom(tmp_path)}")
    batch = backbone.collate([backbone.prepare("the cat"), backbone.prepare("a dog ran over")])
    model = linearize(backbone)
    torch.stack(model(batch)).sum().backward()
    assert all(one.grad is not None for one in model.parameters())
    own, _, pooling = hf.whole_model(backbone.spec)
    features_BD = hf.SentenceEncoder(own.eval(), pooling)(batch)
    torch.testing.assert_close(backbone.plain(batch), features_BD)
    own_digest = params.digest(hf.SentenceEncoder(own, pooling).state_dict())
    assert params.digest(backbone.encoder.state_dict()) == own_digest


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
        backbone.prepare(bases.png())
    with pytest.raises(BadSample, match="UTF-8"):
        backbone.prepare("of a shell in another encoding: \udcff")
    with pytest.raises(BadSample, match="found float 'nan', where a text should be"):
        backbone.prepare(float("nan"))  # pyright: ignore[reportArgumentType]
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
    item = backbone.prepare(bases.png())
    assert backbone.encoder(backbone.collate([item, item])).shape == (2, 12)
    assert backbone.encode_texts(["a cat", "a dog", "a road"]).shape == (3, 12)


def test_clip_trains_all_but_its_lookup_tables(clip: Path) -> None:
    backbone = load_backbone(f"open_clip:{clip}")
    assert frozen(backbone) == {"class_embedding", "positional_embedding"}


def test_clip_residual_networks_too(tmp_path: Path) -> None:
    vision = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    backbone = load_backbone(f"open_clip:{bases.clip(tmp_path, vision)}")
    item = backbone.prepare(bases.png())
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
    item = backbone.prepare(bases.png())
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
    item = backbone.prepare(bases.png())
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
    item = backbone.prepare(bases.png())
    assert backbone.encoder(backbone.collate([item])).ndim == 2


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
    items = [backbone.prepare(bases.png(width=w)) for w in (40, 32)]
    features = backbone.encoder(backbone.collate(items))
    assert features.shape == (2, 1280)
    assert 5 < features.norm(dim=-1).mean() < 100


def test_logs_that_were_off_stay_off(clip: Path) -> None:
    logging.disable(logging.INFO)
    try:
        load_backbone(f"open_clip:{clip}")
        assert logging.root.manager.disable == logging.INFO
    finally:
        logging.disable(logging.NOTSET)


# the embedded encoder


def test_embedded_is_the_open_clip_model_that_is_shipped(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import open_clip

    name = f"local-dir:{clip}"
    shipped = open_clip.create_model(name), open_clip.get_tokenizer(name)
    monkeypatch.setattr("tacl.embedded.model.load", lambda: shipped)
    backbone = load_backbone("embedded")
    is_usable(backbone)
    assert (backbone.modality, backbone.head_kind) == ("image", "text")
    assert backbone.digest == load_backbone(f"open_clip:{clip}").digest
    assert backbone.encode_texts(["a cat"]).shape == (1, 12)
    assert load_backbone("embedded?size=32").digest == backbone.digest
    with pytest.raises(BadBase, match="its own size"):
        load_backbone("embedded?size=64")


@pytest.mark.parametrize(("padding", "most"), [(None, 514), (1, 512)])
def test_positions_may_count_from_behind_the_padding(padding: int | None, most: int) -> None:
    """As those of RoBERTa do."""
    embeddings = nn.Module()
    embeddings.position_embeddings = nn.Embedding(514, 2, padding_idx=padding)
    model = SimpleNamespace(
        config=SimpleNamespace(max_position_embeddings=514), embeddings=embeddings
    )
    spec = BaseSpec.parse("hf:some/model")
    hf._require_positions(spec, model, most)
    with pytest.raises(BadBase, match=f"{most} positions"):
        hf._require_positions(spec, model, most + 1)


def test_a_family_without_fused_attention_is_loaded(tmp_path: Path) -> None:
    from transformers import MPNetConfig, MPNetModel

    torch.manual_seed(0)
    size = bases.tokenizer(tmp_path, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]")
    config = MPNetConfig(vocab_size=size, max_position_embeddings=160, **bases.BERT)
    MPNetModel(config).save_pretrained(tmp_path)
    base = load_backbone(f"hf:{tmp_path}")
    module = LinearizedEncoder(base.encoder, base.trainable)
    features_BD, _ = module(base.collate([base.prepare("the cat sat")]))
    assert features_BD.shape == (1, 16)
