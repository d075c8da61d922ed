"""tacl export and tacl import: what is asked of the client, and what a person reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.domain.operations import Exported, ExportedVector, Imported
from cluster.domain.reports import VectorStatus
from cluster.domain.status import ClusterStatus, TaskState
from jobs.cli import app, asking, main
from tacl.errors import BadCheckpoint, Inexact


class FakeClient:
    """A client that has done it."""

    user = "bob"

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.error: Exception | None = None

    def export(self, user: str, out: str, format: str, **how: Any) -> Exported:
        self.asked = {"user": user, "out": out, "format": format, **how}
        if self.error:
            raise self.error
        return Exported(
            user=user,
            out=str(out),
            format=format,
            digest="d",
            regime="linearized",
            exact=0.88,
            materialized=0.865,
            per_task={},
            files=("README.md", "x.safetensors"),
        )

    def export_vector(self, vector: str, out: str, **how: Any) -> ExportedVector:
        self.asked = {"vector": vector, "out": out, **how}
        return ExportedVector(task="a", version=2, digest="d", out="hf:ann/a@c", files=("x",))

    def import_checkpoint(self, name: str, checkpoint: str, data: str, **how: Any) -> Imported:
        self.asked = {"name": name, "checkpoint": checkpoint, "data": data, **how}
        if self.error:
            raise self.error
        return Imported(task=name, run_id="r", state=TaskState.QUEUED, notes=("left aside: head",))

    def wait(self, name: str, progress: Any) -> None:
        progress(ClusterStatus.model_construct(tasks=(), work=()))

    def vectors(self, name: str) -> list[VectorStatus]:
        metrics = {"validation_zero_shot": 0.5, "validation_checkpoint": 0.9, "outside": 0.03}
        metrics |= {"validation_accuracy": 0.86, "validation_rows": 50.0}
        facts = {"version": 1, "metrics": metrics, "config": {"outside": ["embeddings"]}}
        return [VectorStatus.model_construct(**facts)]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()
    monkeypatch.setattr(app, "client", lambda home: client)
    return client


def tacl(*arguments: str) -> Any:
    return CliRunner().invoke(main.app, list(arguments))


def test_an_export_says_what_it_is_worth(client: FakeClient) -> None:
    result = tacl("export", "alice", "--out", "there", "--format", "timm", "--licence", "mit")
    assert "wrote there: README.md, x.safetensors" in result.stdout
    assert "an approximation: 86.5 % on test rows; the exact model: 88.0 %" in result.stdout
    assert client.asked["out"] == "there"
    assert (client.asked["licence"], client.asked["accept"]) == ("mit", False)
    answer = json.loads(tacl("export", "alice", "--out", "there", "--json").stdout)
    assert (answer["exact"], answer["materialized"]) == (0.88, 0.865)


def test_an_import_says_what_is_lost(client: FakeClient) -> None:
    result = tacl("import", "cars", "model.safetensors", "--data", "cars", "--classes", "a,b")
    said = " ".join(result.stdout.split())
    for words in (
        "accuracy on 50 validation rows",
        "50.0 base model",
        "90.0 checkpoint",
        "86.0 its vector, in the linearized model",
        "4.0 points are lost by the linearization",
        "3.0 % of the change is in parameters that vectors do not change",
        "left aside: head",
    ):
        assert words in said
    assert client.asked["classes"] == ("a", "b")
    assert json.loads(tacl("import", "cars", "m", "--data", "x", "--json").stdout)["metrics"]


def test_an_import_says_who_sees_the_task_and_how_its_classes_are_named(client: FakeClient) -> None:
    who = ("--private", "--owner", "ann", "--share", "none", "--heads", "trained", "--seed", "3")
    result = tacl("import", "ann.cars", "m", "--data", "x", *who, "--template", "a {}.")
    assert result.stdout == "ann.cars: only ann can see more\n"
    given = {"private": True, "owner": "ann", "share": "none", "heads": "trained", "seed": 3}
    assert client.asked.items() >= {**given, "templates": ["a {}."]}.items()
    client.user = "ann"
    assert (
        "its vector, in the linearized model"
        in tacl("import", "ann.cars", "m", "--data", "x", *who).stdout
    )


def test_rows_that_a_task_has_are_asked_about_as_for_submit(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tacl("import", "cars", "m", "--data", "x")
    assert client.asked["again"]("vans has exactly these rows") is False  # nobody is there
    monkeypatch.setattr(asking, "is_person", lambda: True)
    monkeypatch.setattr(asking, "confirmed", lambda said: "vans has" in said)
    assert client.asked["again"]("vans has exactly these rows") is True
    tacl("import", "cars", "m", "--data", "x", "--again")
    assert client.asked["again"] is True


def test_a_vector_goes_to_a_hub(client: FakeClient) -> None:
    result = tacl("export-vector", "a@v2", "--out", "hf:ann/a", "--public")
    assert result.stdout == "wrote hf:ann/a@c: x\n"
    asked = {"vector": "a@v2", "out": "hf:ann/a", "licence": None, "public": True}
    assert client.asked == asked
    tacl("import", "a", "hf:ann/a@main", "--data", "x")
    assert client.asked["checkpoint"] == "hf:ann/a@main"


def test_a_vector_of_another_home_was_never_a_checkpoint(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = client.vectors("cars")
    found.metrics.pop("validation_checkpoint")
    monkeypatch.setattr(client, "vectors", lambda name: [found])
    said = tacl("import", "cars", "vector.safetensors", "--data", "cars").stdout
    assert "86.0  its vector" in said
    assert "checkpoint" not in said
    assert "points are lost" not in said


def test_refusals_have_their_codes(client: FakeClient) -> None:
    client.error = BadCheckpoint("lacks norm.weight")
    result = tacl("import", "cars", "m", "--data", "x")
    assert (result.exit_code, result.stdout) == (13, "")
    assert "lacks norm.weight" in result.stderr
    client.error = Inexact("say --accept")
    assert tacl("export", "alice", "--out", "there").exit_code == 39
