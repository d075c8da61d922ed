"""Vectors and models to a hub and back: two homes of one base, and a stand-in of the hub."""

from __future__ import annotations

import contextlib
import io
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from cluster.client.client import Client
from cluster.storage.home import Home
from jobs.cli.main import app
from tacl.errors import (
    BadCheckpoint,
    BadConfig,
    BadRecipe,
    NotAllowed,
    NotAuthenticated,
    SameData,
    UnknownVector,
)
from tacl.vectors.vector import TaskVector
from tests.support import tiny
from tests.support.hub import Hub
from tests.support.inline import Inline
from tests.support.instant import InProcess


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures per class."""
    return tiny.folder_of(tmp_path_factory.mktemp("data"), 80, task=5)


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[list[Client]]:
    """The first has trained a task."""
    clients, coordinators = [], []
    for name in ("one", "other"):
        home = tiny.home(tmp_path_factory.mktemp(name))
        coordinators.append(InProcess(home.path, Inline(home=home)))
        clients.append(Client(home.path, coordinators[-1]))
    training: dict[str, Any] = {"steps": 6, "engine": "plain", "keep_as": "int8"}
    clients[0].submit("trees", data, seed=3, grow_strength=True, **training)
    clients[0].wait()
    yield clients
    for coordinator in coordinators:
        coordinator.close()


def test_a_vector_goes_to_another_home_bit_for_bit(
    hub: Hub, ann: None, homes: list[Client], data: Path
) -> None:
    one, other = homes
    (trained,) = one.vectors("trees")
    found = one.export_vector("trees@champion", "hf:ann/trees", licence="mit")
    commit = list(hub.repos["ann/trees"].commits)[-1]
    assert found.out == f"hf:ann/trees@{commit}"
    assert found.files == ("README.md", "heads.safetensors", "vector.safetensors")
    assert hub.repos["ann/trees"].private
    told = other.import_checkpoint("trees", found.out, data)
    assert f"from {found.out}" in told.notes
    other.wait()
    (imported,) = other.vectors("trees")
    assert imported.digest == trained.digest == found.digest
    assert "validation_checkpoint" not in imported.metrics
    card = hub.files("ann/trees")["README.md"].decode()
    said = metadata(card)
    assert (said["license"], said["tags"]) == ("mit", ["task-vectors"])
    accuracy = f"{100 * trained.metrics['validation_accuracy']:.1f}"
    for words in (trained.digest, "ash, birch", f"`heads.safetensors` | {accuracy} |"):
        assert words in card
    parsed(card, "import", "submit")
    assert "--keep-as int8 --engine plain --seed 3" in card
    assert "--grow-strength" in card


def test_the_program_of_the_card_of_a_vector(homes: list[Client], tmp_path: Path) -> None:
    one = homes[0]
    one.export_vector("trees@v1", tmp_path / "trees")
    picture = tiny.pictures(1, task=5)[0][0]
    (tmp_path / "trees" / "picture.png").write_bytes(picture)
    card = (tmp_path / "trees" / "README.md").read_text()
    assert str(one.home.path.parent) not in card  # no folder of this machine
    program = card.partition("```python\n")[2].partition("```")[0]
    name = program.partition('tacl.load("')[2].partition('"')[0]
    program = program.replace(name, one.base().spec)  # a base of this machine, by its whole path
    printed = io.StringIO()
    with contextlib.chdir(tmp_path / "trees"), contextlib.redirect_stdout(printed):
        exec(program, {})
    assert printed.getvalue().strip() in tiny.TREES


def test_a_model_goes_to_a_hub_and_comes_back_as_a_checkpoint(
    hub: Hub, ann: None, homes: list[Client], data: Path
) -> None:
    one, other = homes
    one.compose("alice", ["+0.5*trees@v1"])
    one.export("alice", "hf:ann/alice", "timm", accept=True, public=True)
    assert not hub.repos["ann/alice"].private
    files = hub.files("ann/alice")
    assert {"README.md", "config.json", "heads.safetensors", "model.safetensors"} <= files.keys()
    card = files["README.md"].decode()
    measured = one.evaluate("alice")
    for share in (measured.absolute, measured.frozen_known, measured.frozen_unknown):
        assert share is None or f"{100 * share:.1f}" in card
    assert "| these files |" in card
    assert "tacl compose alice '+0.5*trees@v1'" in card
    assert "tacl export alice --out hf:ann/alice --format timm" in card
    assert "hf download ann/alice --local-dir alice" in card
    parsed(card, "import", "compose", "export")
    other.import_checkpoint("forest", "hf:ann/alice", data, again=True)
    other.wait()
    (imported,) = other.vectors("forest")
    assert "validation_checkpoint" in imported.metrics
    half = tau(one, "trees")
    for name, value in tau(other, "forest").items():
        torch.testing.assert_close(value, 0.5 * half[name], atol=1e-6, rtol=0)


def tau(client: Client, task: str) -> dict[str, torch.Tensor]:
    (found,) = client.vectors(task)
    return TaskVector.load(client.home.blobs().local_path(found.blob)).to_params()


def metadata(card: str) -> dict[str, Any]:
    return yaml.safe_load(card.removeprefix("---\n").partition("\n---\n")[0])


def parsed(card: str, *verbs: str) -> None:
    """The commands of the card are commands, and flags of theirs."""
    from typer.main import get_command

    tree: Any = get_command(app)
    blocks = [part.partition("```")[0] for part in card.split("```sh\n")[1:]]
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    lines = [line[1:] for line in lines if line[0] == "tacl"]
    assert {line[0] for line in lines} == set(verbs)
    for verb, *words in lines:
        tree.commands[verb].make_context("tacl", words)


def test_what_cannot_be_pushed_is_said_before_it_is_measured(
    hub: Hub, homes: list[Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = homes[0]
    one.compose("alice", ["+trees"])
    monkeypatch.setattr(one, "evaluate", None)  # nobody asks
    with pytest.raises(NotAuthenticated, match="HF_TOKEN"):
        one.export("alice", "hf:ann/alice", "timm")
    with pytest.raises(NotAuthenticated, match="HF_TOKEN"):
        one.export_vector("trees", "hf:ann/trees")
    with pytest.raises(BadConfig, match="--public is for a repository"):
        one.export_vector("trees", tmp_path / "there", public=True)
    with pytest.raises(UnknownVector, match="trees@v7"):
        one.export_vector("trees@v7", tmp_path / "there")
    for scaled in ("-trees@v1", "0.5*trees@v1"):
        with pytest.raises(BadRecipe, match="exported as it is.*ask for trees@v1"):
            one.export_vector(scaled, tmp_path / "there")
    assert not hub.repos
    assert not list(tmp_path.iterdir())


def test_a_hostile_repository_stores_nothing(hub: Hub, homes: list[Client], data: Path) -> None:
    other = homes[1]
    before, tasks = files_of(other.home), [task.name for task in other.status().tasks]
    one = other.base().digest.encode()
    hub.put("eve/pickle", {"pytorch_model.bin": b"run me"})
    hub.put("eve/torn", {"vector.safetensors": b"torn" + one})
    hub.put("eve/large", {"vector.safetensors": b"x"})
    hub.repos["eve/large"].claims["vector.safetensors"] = 1 << 40
    for name in ("pickle", "torn", "large"):
        with pytest.raises(BadCheckpoint):
            other.import_checkpoint("eve", f"hf:eve/{name}", data)
    assert hub.fetched.count("vector.safetensors") == 2  # of the torn one: asked for, and read
    assert files_of(other.home) == before
    assert [task.name for task in other.status().tasks] == tasks


def files_of(home: Home) -> set[Path]:
    return {path for path in (home.path / "blobs").rglob("*") if path.is_file()}


def test_a_server_asks_no_hub_for_anybody(hub: Hub, data: Path) -> None:
    far = Client("http://127.0.0.1:9", token="t")
    with pytest.raises(NotAllowed, match="where the home is"):
        far.import_checkpoint("eve", "hf:eve/model", data)
    with pytest.raises(NotAllowed, match="where the home is"):
        far.export_vector("eve", "hf:eve/model")
    assert not hub.fetched


def test_a_folder_is_as_good_as_a_hub(homes: list[Client], data: Path, tmp_path: Path) -> None:
    """Another name is another task, with the same change; split as in training, no row of which
    it was trained on is judged by."""
    one, other = homes
    one.export_vector("trees", tmp_path / "trees")
    with pytest.raises(SameData, match="trees has exactly these rows"):
        other.import_checkpoint("woods", tmp_path / "trees", data, seed=3)
    other.import_checkpoint("woods", tmp_path / "trees", data, seed=3, again=True)
    other.wait()
    (woods,) = other.vectors("woods")
    (trees,) = one.vectors("trees")
    assert woods.digest != trees.digest  # of the name
    source = load_file(tmp_path / "trees" / "vector.safetensors")
    assert load_file(other.home.blobs().local_path(woods.blob)).keys() == source.keys()
    assert woods.metrics["validation_accuracy"] == pytest.approx(
        trees.metrics["validation_accuracy"]
    )
