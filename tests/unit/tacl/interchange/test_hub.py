"""Repositories of a hub, against a stand-in of its HTTP API that the real client asks."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from huggingface_hub import constants
from hypothesis import given
from hypothesis import strategies as st

from tacl.errors import (
    BadCheckpoint,
    BadConfig,
    BadName,
    NotAllowed,
    NotAuthenticated,
    StorageUnavailable,
)
from tacl.interchange.hub import Repository, fetched, pushed, require_pushable, wanted
from tests.support.hub import TOKEN, Hub

MOST = 1000
WEIGHTS = b"w" * 100


def fetch(text: str) -> tuple[dict[str, bytes], str]:
    with fetched(Repository.parse(text), MOST) as (folder, origin):
        files = [path for path in folder.iterdir() if path.is_file()]
        return {path.name: path.read_bytes() for path in files}, origin


def test_a_name_is_owner_and_name() -> None:
    assert Repository.parse("hf:ann/news") == Repository("ann/news")
    assert str(Repository.parse("hf:ann/news@v1.0")) == "hf:ann/news@v1.0"
    for text in ("hf:news", "hf:ann/news@", "hf:../news", "hf:ann/../x", "hf:a/b/c", "hf:a/b?x"):
        with pytest.raises(BadName, match="OWNER/NAME"):
            Repository.parse(text)


# -- in


def test_weights_alone_are_fetched_of_one_commit(hub: Hub) -> None:
    files = {"model.safetensors": WEIGHTS, "config.json": b"{}", "run.py": b"evil()"}
    first = hub.put("bob/model", files | {"model.safetensors": b"old"})
    newest = hub.put("bob/model", files | {"pytorch_model.bin": pickle.dumps({})})
    assert fetch("hf:bob/model") == ({"model.safetensors": WEIGHTS}, f"hf:bob/model@{newest}")
    assert fetch(f"hf:bob/model@{first}") == (
        {"model.safetensors": b"old"},
        f"hf:bob/model@{first}",
    )
    assert set(hub.fetched) == {"model.safetensors"}


def test_a_checkpoint_in_parts(hub: Hub) -> None:
    parts = {f"model-0000{n}-of-00002.safetensors": WEIGHTS for n in (1, 2)}
    index = {"model.safetensors.index.json": json.dumps({"weight_map": {}}).encode()}
    hub.put("bob/model", {**parts, **index, "optimizer.safetensors": WEIGHTS})
    assert fetch("hf:bob/model")[0].keys() == {*parts, *index}
    whole = {"model.safetensors": WEIGHTS}
    hub.put("bob/model", {**parts, **index, **whole})
    assert fetch("hf:bob/model")[0] == whole


def test_an_adapter_and_a_vector(hub: Hub) -> None:
    adapter = {"adapter_config.json": b"{}", "adapter_model.safetensors": WEIGHTS}
    hub.put("bob/adapter", adapter | {"adapter_model.bin": b"pickle"})
    assert fetch("hf:bob/adapter")[0] == adapter
    vector = {"vector.safetensors": WEIGHTS, "heads.safetensors": WEIGHTS}
    hub.put("bob/vector", vector | {"README.md": b"x"})
    assert fetch("hf:bob/vector")[0] == vector


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"pytorch_model.bin": pickle.dumps({})}, "could be a program"),
        ({"adapter_config.json": b"{}", "adapter_model.bin": b"x"}, "could be a program"),
        ({"model.safetensors": WEIGHTS, "../../.bashrc": b"x"}, "other folders"),
        ({"model.safetensors": WEIGHTS, "/etc/passwd": b"x"}, "other folders"),
        ({"model.safetensors": WEIGHTS, "a\\..\\b": b"x"}, "other folders"),
        ({"model.safetensors": WEIGHTS, "a\n../b": b"x"}, "other folders"),
        ({"model.safetensors": b"x" * (MOST + 1)}, "at most 1000"),
        ({"README.md": b"nothing"}, "no weights"),
        ({"sub/model.safetensors": WEIGHTS}, "no weights"),
    ],
)
def test_of_a_hostile_repository_nothing_is_fetched(
    hub: Hub, files: dict[str, bytes], said: str
) -> None:
    hub.put("eve/model", files)
    with pytest.raises(BadCheckpoint, match=said):
        fetch("hf:eve/model")
    assert not hub.fetched


def test_a_file_that_is_larger_than_it_was_told(hub: Hub) -> None:
    hub.put("eve/model", {"model.safetensors": WEIGHTS})
    hub.repos["eve/model"].claims["model.safetensors"] = 7
    with pytest.raises(BadCheckpoint, match="was to have 7"):
        fetch("hf:eve/model")


KNOWN = """vector.safetensors model.safetensors model.safetensors.index.json x/y.safetensors
adapter_config.json adapter_model.safetensors pytorch_model.bin weights.pt setup.py
model-00001-of-00001.safetensors open_clip_model.safetensors"""
NAMES = st.sampled_from(KNOWN.split())


@given(st.dictionaries(NAMES | st.text(min_size=1), st.none() | st.integers(0, 2 * MOST)))
def test_whatever_is_fetched_is_small_plain_and_no_pickle(sizes: dict[str, int | None]) -> None:
    try:
        names = wanted(Repository("eve/model"), sizes, MOST)
    except BadCheckpoint:
        return
    assert names
    assert sum(sizes[name] or 0 for name in names) <= MOST
    assert all(Path(name).name == name and sizes[name] is not None for name in names)
    assert {Path(name).suffix for name in names} <= {".safetensors", ".json"}


def test_what_is_not_there_is_said(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.put("bob/model", {"model.safetensors": WEIGHTS})
    hub.put("bob/secret", {"model.safetensors": WEIGHTS}, private=True)
    with pytest.raises(BadCheckpoint, match="no revision v9"):
        fetch("hf:bob/model@v9")
    with pytest.raises(BadCheckpoint, match="no hf:bob/other.*HF_TOKEN"):
        fetch("hf:bob/other")
    with pytest.raises(BadCheckpoint, match="none that you may read"):
        fetch("hf:bob/secret")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fetch("hf:bob/secret")[0]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(StorageUnavailable, match="HF_HUB_OFFLINE"):
        fetch("hf:bob/model")


# -- out


def folder_of(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, data in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(data)
    return path


def test_a_push_is_one_commit_without_the_weights_of_before(
    hub: Hub, ann: None, tmp_path: Path
) -> None:
    place = Repository.parse("hf:ann/model")
    old = {"old.safetensors": WEIGHTS, "README.md": b"---\n---\nold"}
    old |= {"model.safetensors.index.json": b"{}", "adapter_config.json": b"{}"}
    old |= {"pytorch_model.bin.index.json": b"{}", "old/adapter_config.json": b"{}"}
    before = pushed(folder_of(tmp_path / "old", old), place, False, "first")
    new = {"model.safetensors": WEIGHTS, "README.md": b"new", "1_Pooling/config.json": b"{}"}
    where = pushed(folder_of(tmp_path / "new", new), place, False, "second")
    assert hub.files("ann/model") == {".gitattributes": b"", **new}
    assert len(hub.repos["ann/model"].commits) == 3  # it was made, and pushed to twice
    assert hub.repos["ann/model"].private
    assert fetch(where) == ({"model.safetensors": WEIGHTS}, where)
    assert fetch(before)[0].keys() == {"model.safetensors.index.json"}


def test_who_may_not_push_is_told_before_anything_is_computed(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = Repository("ann/model")
    with pytest.raises(NotAuthenticated, match="HF_TOKEN"):
        require_pushable(place, False)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(NotAuthenticated, match="does not know your token") as refusal:
        require_pushable(place, False)
    assert "hf_wrong" not in str(refusal.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    require_pushable(place, False)
    with pytest.raises(BadConfig, match="leave the revision out"):
        require_pushable(Repository("ann/model", "v1"), False)
    with pytest.raises(NotAllowed, match="may not"):
        pushed(folder_of(tmp_path / "x", {"a": b""}), Repository("bob/model"), False, "mine")
    assert not hub.repos


def test_nothing_becomes_public_that_was_not_meant_to(hub: Hub, ann: None, tmp_path: Path) -> None:
    place = Repository("ann/model")
    require_pushable(place, public=True)
    pushed(folder_of(tmp_path / "x", {"README.md": b"x"}), place, True, "for all")
    assert not hub.repos["ann/model"].private
    with pytest.raises(BadConfig, match="is public; say --public"):
        require_pushable(place, public=False)


def test_what_is_private_is_not_said_to_become_public(hub: Hub, ann: None) -> None:
    hub.put("ann/model", {"README.md": b"x"}, private=True)
    place = Repository("ann/model")
    require_pushable(place, public=False)
    with pytest.raises(BadConfig, match="is private, .*make it public on the hub"):
        require_pushable(place, public=True)
