"""Checkpoints in and out of a home: the real coordinator and learner, in this process."""

from __future__ import annotations

import contextlib
import copy
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

from cluster.client import export
from cluster.client.client import Client
from cluster.domain.reports import VectorStatus
from cluster.learner.artifacts import Materials
from cluster.storage.home import Home
from tacl.backbone import load_backbone
from tacl.compose.materialized import materialized, materialized_features
from tacl.errors import BadCheckpoint, BadConfig, BadRecipe, Inexact, NameTaken, UnknownTask
from tacl.heads.head import prototype_head
from tacl.vectors.vector import TaskVector
from tests.support import tiny
from tests.support.inline import Inline
from tests.support.instant import InProcess

MODEL = "model.safetensors"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return tiny.home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def client(home: Home) -> Iterator[Client]:
    coordinator = InProcess(home.path, Inline(home=home))
    yield Client(home.path, coordinator)
    coordinator.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures per class."""
    return tiny.folder_of(tmp_path_factory.mktemp("data"), 160, task=5)


@pytest.fixture(scope="module")
def checkpoint(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ordinary fine-tuning of the base, as somebody else does it; saved with their classifier."""
    backbone = load_backbone(base_of(home))
    model: Any = copy.deepcopy(backbone.encoder).requires_grad_(True)
    images, labels = tiny.pictures(160, seed=7, task=5)
    batch: Any = backbone.collate([backbone.prepare(raw) for raw in images])
    with torch.no_grad():
        head = prototype_head(model(batch), torch.tensor(labels), tiny.TREES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(20):
        rows = torch.arange(32) + 32 * (step % 5)
        loss = cross_entropy(head.logits(model(batch[rows])), torch.tensor(labels)[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    path = tmp_path_factory.mktemp("checkpoint") / "fine-tuned.safetensors"
    theirs = {"head.weight": torch.ones(4, 64), "head.bias": torch.ones(4)}
    save_file({**{n: v.detach() for n, v in model.state_dict().items()}, **theirs}, path)
    return path


def base_of(home: Home) -> str:
    settings = home.settings()
    assert settings is not None
    return settings.base.spec


@pytest.fixture(scope="module")
def trees(client: Client, checkpoint: Path, data: Path) -> VectorStatus:
    """The imported task's first version."""
    told = client.import_checkpoint("trees", checkpoint, data)
    assert told.notes == ("left aside, because no part of the base model: head.bias, head.weight",)
    client.wait()
    return client.vectors("trees")[0]


def test_a_checkpoint_becomes_a_vector(
    client: Client, home: Home, trees: VectorStatus, checkpoint: Path
) -> None:
    """Published like a trained one: champion, measured pairs, accuracies before and after."""
    materials = Materials(home, home.settings().base)  # pyright: ignore
    vector = TaskVector.load(materials.blobs.local_path(trees.blob))
    assert (vector.task, vector.regime, trees.champion) == ("trees", "linearized", True)
    submission = client.task("trees").submission
    assert submission is not None
    validation = materials.labelled(submission.validation)
    head = materials.head(trees.head_blob)
    theta = {n: v for n, v in load_file(checkpoint).items() if not n.startswith("head.")}
    features = materialized_features(materials.backbone, theta, validation.items)
    share = (head.logits(features).argmax(-1) == validation.labels).double().mean().item()
    metrics = trees.metrics
    assert metrics["validation_checkpoint"] == pytest.approx(share)
    assert metrics["validation_checkpoint"] > metrics["validation_zero_shot"]
    assert metrics["validation_accuracy"] > metrics["validation_zero_shot"]
    assert metrics["outside"] == 0
    matrix = client.interference()
    assert matrix.missing == 0
    assert [one.task for one in matrix.vectors] == ["trees"]
    task = client.status().tasks[0]
    assert task.accuracy_after == metrics["validation_accuracy"]
    assert "importing trees" in {run.about for run in client.task("trees").runs}


def files_of(home: Home) -> set[Path]:
    return {path for path in (home.path / "blobs").rglob("*") if path.is_file()}


def test_what_does_not_fit_is_refused_before_anything_is_stored(
    client: Client, home: Home, trees: VectorStatus, data: Path, tmp_path: Path
) -> None:
    before = files_of(home)
    wrong = tmp_path / "wrong.safetensors"
    save_file({"conv.weight": torch.ones(3)}, wrong)
    with pytest.raises(BadCheckpoint, match="conv.weight"):
        client.import_checkpoint("wrong", wrong, data)
    with pytest.raises(NameTaken, match="trees"):
        client.import_checkpoint("trees", wrong, data)
    assert files_of(home) == before
    assert [task.name for task in client.status().tasks] == ["trees"]


def test_rows_of_other_classes_than_the_checkpoints_are_told(
    client: Client, home: Home, trees: VectorStatus, checkpoint: Path, tmp_path: Path
) -> None:
    """Its classifier may be that of its pre-training; the head of a vector is its own."""
    data, before = tiny.folder_of(tmp_path / "data", 60, task=5), files_of(home)
    (data / "date").rename(data / "oak")
    client.export_vector("trees", tmp_path / "trees")
    shutil.rmtree(data / "cedar")
    with pytest.raises(
        BadCheckpoint, match=r"of 4 classes \(ash, .*rows are of 3 \(ash, birch, oak"
    ):
        client.import_checkpoint("other", tmp_path / "trees", data)
    assert files_of(home) == before
    told = client.import_checkpoint("other", checkpoint, data)
    assert told.notes[1].startswith("its classifier is of 4 classes, the rows are of 3 (ash, ")
    client.cancel("other")


def test_bad_data_store_no_vector(
    client: Client, home: Home, trees: VectorStatus, checkpoint: Path, tmp_path: Path
) -> None:
    before = files_of(home)
    (tmp_path / "ash").mkdir()
    (tmp_path / "ash" / "1.png").write_bytes(b"no picture")
    with pytest.raises(Exception, match="picture|class"):
        client.import_checkpoint("other", checkpoint, tmp_path)
    assert files_of(home) == before


def test_what_vectors_do_not_move_is_told(data: Path, tmp_path: Path) -> None:
    """Running statistics count for the checkpoint's own accuracy, and not for the vector's."""
    import timm

    torch.manual_seed(0)
    model = timm.create_model("test_efficientnet", num_classes=0).eval()
    theta = {name: value.clone() for name, value in model.state_dict().items()}
    save_file(theta, tmp_path / "theta0.safetensors")
    spec = f"timm:test_efficientnet@{tmp_path / 'theta0.safetensors'}?size={tiny.SIDE}"
    home = tiny.home(tmp_path / "home", spec)
    theta["bn1.running_mean"] += 3.0
    theta["conv_stem.weight"] += 0.01
    save_file(theta, tmp_path / "theta.safetensors")
    coordinator = InProcess(home.path, Inline(home=home))
    client = Client(home.path, coordinator)
    told = client.import_checkpoint("trees", tmp_path / "theta.safetensors", data)
    assert told.notes == (
        "changed in the checkpoint and not moved by vectors here: bn1.running_mean",
    )
    client.wait()
    (vector,) = client.vectors("trees")
    assert vector.config["blocks"] == ["conv_stem.weight"]
    assert vector.config["outside"] == ["bn1.running_mean"]
    assert 0.9 < vector.metrics["outside"] < 1
    theta["conv_stem.weight"] = model.state_dict()["conv_stem.weight"]
    save_file(theta, tmp_path / "theta.safetensors")
    with pytest.raises(BadCheckpoint, match=r"only what vectors do not move .*bn1.running_mean"):
        client.import_checkpoint("other", tmp_path / "theta.safetensors", data)
    coordinator.close()


def test_an_adapter_stays_low_rank(
    client: Client, home: Home, trees: VectorStatus, data: Path, tmp_path: Path
) -> None:
    import peft

    wrapped = peft.get_peft_model(
        copy.deepcopy(load_backbone(base_of(home)).encoder),
        peft.LoraConfig(r=2, target_modules=["qkv"]),
    )
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            parameter.data.add_(0.01 * torch.randn_like(parameter))
    wrapped.save_pretrained(str(tmp_path / "adapter"))
    weights = tmp_path / "adapter" / "adapter_model.safetensors"  # or their folder
    client.import_checkpoint("leaves", weights, data, again=True)
    client.wait()
    (found,) = client.vectors("leaves")
    vector = TaskVector.load(home.blobs().local_path(found.blob))
    assert {block.kind for block in vector.blocks.values()} == {"low_rank"}
    size = home.blobs().local_path(found.blob).stat().st_size
    assert size < 0.2 * home.blobs().local_path(trees.blob).stat().st_size


# -- out


def test_an_exported_model_is_measured_and_loads(
    client: Client, home: Home, trees: VectorStatus, tmp_path: Path
) -> None:
    import timm

    client.compose("alice", ["+0.5*trees"])
    found = client.export("alice", tmp_path / "out", "timm", accept=True, licence="mit")
    assert set(found.files) == {"README.md", "config.json", "heads.safetensors", MODEL}
    row = found.per_task["trees"]
    assert found.materialized == row.materialized
    assert found.exact == row.composed
    model: Any = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    materials = Materials(home, home.settings().base)  # pyright: ignore
    submission = client.task("trees").submission
    assert submission is not None
    test = materials.labelled(submission.test)
    with torch.no_grad():
        features = model(materials.backbone.collate(test.items))
    share = materials.head(trees.head_blob).logits(features).argmax(-1) == test.labels
    assert share.double().mean().item() == pytest.approx(row.materialized)
    card = (tmp_path / "out/README.md").read_text()
    assert card.startswith("---\n")
    made = ("trees@v1", "ash, birch", "--accept")
    for said in ("license: mit", "approximation", trees.digest, *made):
        assert said in card
    assert f"{100 * found.materialized:.1f}" in card
    printed = run_snippet(card, tmp_path / "out", tiny.pictures(1, task=5)[0][0])
    assert printed.split()[0] == "trees"


def run_snippet(card: str, folder: Path, picture: bytes) -> str:
    """What the card's program prints, run in its folder."""
    (folder / "picture.png").write_bytes(picture)
    program = card.partition("```python\n")[2].partition("```")[0]
    said = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said):
        exec(program, {})
    return said.getvalue()


def test_a_model_that_loses_too_much_is_refused(
    client: Client, trees: VectorStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.compose("alice", ["+trees"])
    monkeypatch.setattr(export, "ACCEPTED_LOSS", -1.01)  # any loss is too much
    with pytest.raises(Inexact, match="--accept; or, .* each vector with `tacl export-vector`"):
        client.export("alice", tmp_path / "out", "safetensors")
    assert not list(tmp_path.iterdir())
    client.export("alice", tmp_path / "out", "safetensors", accept=True)
    assert "unknown" in (tmp_path / "out/README.md").read_text()


def test_an_export_is_whole_or_not_there(
    client: Client, trees: VectorStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.compose("alice", ["+trees"])
    with pytest.raises(BadConfig, match="safetensors or timm"):
        client.export("alice", tmp_path / "out", "open_clip")
    with pytest.raises(BadConfig, match="exists"):
        client.export("alice", tmp_path, "timm")
    with pytest.raises(BadConfig, match="no folder"):
        client.export("alice", tmp_path / "a/b", "timm")

    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(export, "write_heads", full)
    with pytest.raises(OSError, match="no space"):
        client.export("alice", tmp_path / "out", "timm", accept=True)
    assert not list(tmp_path.iterdir())


def test_a_model_works_on_and_is_exported_when_a_task_of_it_was_removed(
    client: Client, trees: VectorStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(name: str) -> NoReturn:
        raise UnknownTask(f"the task {name} was removed")

    client.compose("alice", ["+trees"])
    monkeypatch.setattr(client, "task", gone)
    client.export("alice", tmp_path / "out", "safetensors", accept=True)
    card = (tmp_path / "out/README.md").read_text()
    assert "of a task that was removed" in card
    assert "ash, birch" in card


def test_heads_that_are_fitted_while_a_model_is_measured_are_not_mixed_up(
    client: Client, trees: VectorStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = client.compose("alice", ["+trees"])
    vector = after.terms[0].vector.model_copy(update={"head_blob": "as trained"})
    term = after.terms[0].model_copy(update={"vector": vector})
    before = after.model_copy(update={"terms": (term,)})
    answers = iter([before, before, after])  # that there is one, what is measured, what it is then
    monkeypatch.setattr(client, "composition", lambda _: next(answers))
    with pytest.raises(BadRecipe, match="export again"):
        client.export("alice", tmp_path / "out", "safetensors", accept=True)
    assert not list(tmp_path.iterdir())


def test_vectors_of_the_same_change_are_materialized_as_their_sum(
    client: Client, home: Home, trees: VectorStatus, tmp_path: Path
) -> None:
    """Coefficients and all: theta0 - 0.5 tau in the file."""
    client.compose("alice", ["-0.5*trees"])
    client.export("alice", tmp_path / "out", "safetensors", accept=True)
    materials = Materials(home, home.settings().base)  # pyright: ignore
    tau = TaskVector.load(materials.blobs.local_path(trees.blob)).to_params()
    moved = {name: -0.5 * value for name, value in tau.items()}
    written = load_file(tmp_path / "out" / MODEL)
    for name, value in materialized(materials.backbone.encoder, moved).items():
        torch.testing.assert_close(written[name], value)
    assert written.keys() == materials.backbone.encoder.state_dict().keys()
