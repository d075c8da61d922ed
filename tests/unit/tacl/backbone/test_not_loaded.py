"""Base models that are not there, and damaged ones, are refused clearly."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path

import pytest
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from tacl.backbone import hub, load_backbone
from tacl.errors import BadBase, BaseNotFound


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hf:/no/such/place", ["/no/such/place", "no directory"]),
        ("hf:./nowhere", ["nowhere", "no directory"]),
        ("hf:nobody/nothing", ["nobody/nothing", "cache", "HF_HUB_OFFLINE", "give a directory"]),
        ("hf:what is this", ["neither a directory nor a hub id"]),
        ("hf:" + "x" * 300, ["cache", "HF_HUB_OFFLINE"]),
        ("open_clip:ViT-B-32@" + "x" * 300, ["neither a file nor a tag"]),
        ("timm:resnet18@" + "x" * 300, ["resnet18"]),
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


def test_a_tag_is_none_of_a_folder_here_that_has_the_name_of_the_architecture(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(clip, tmp_path / "ViT-B-32")
    monkeypatch.chdir(tmp_path)
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
    with pytest.raises(BadBase, match="not a complete safetensors"):
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
