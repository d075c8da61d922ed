"""A task is submitted over HTTP with what may be said of its data, as on the command line."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cluster.client.client import Client
from cluster.client.http import Server
from cluster.domain.base import RequestContext
from cluster.domain.tasks import Reading, Submission
from tacl.errors import StorageUnavailable
from tests.support.api_scene import Local, scene
from tests.support.command_line import command_of, flags_of
from tests.unit.cluster.api.test_api import Person

UNUSUAL = "\n".join(["said,kind,by", *(f"words {i},{i % 2},c" for i in range(40))]).encode()
NAMED: dict[str, Any] = {"input_column": "said", "label_column": "kind"}


@pytest.fixture
def ann(tmp_path: Path) -> Iterator[Person]:
    app, _ = scene(tmp_path / "home", ann="submitter")
    with TestClient(app, raise_server_exceptions=False) as http:
        yield Person(http, "ann")


@pytest.fixture
def service(ann: Person) -> Local:
    return ann.http.app.state.service  # type: ignore[attr-defined]


def submission(service: Local, task: str) -> Submission:
    found = service.coordinator.task(RequestContext(), task).submission
    assert found is not None
    return found


def classes(service: Local, task: str) -> tuple[str, ...]:
    return submission(service, task).classes


def test_columns_and_classes_may_be_named(ann: Person, service: Local) -> None:
    assert ann.submit("news", UNUSUAL).json()["error"] == "BadColumns"  # which holds the texts?
    assert ann.submit("news", UNUSUAL, **NAMED, classes="ham, spam").status_code == 202
    assert classes(service, "news") == ("ham", "spam")
    # Empty as browsers send what nobody filled in.
    empty: dict[str, Any] = dict.fromkeys((*NAMED, "classes"), "")
    assert ann.submit("ann.trec", private="on", **empty).status_code == 202
    assert classes(service, "ann.trec") == ("a", "b")
    assert [task["private"] for task in ann.get("tasks").json()] == [False, True]


def test_prompts_for_the_names_of_classes(
    ann: Person, service: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: Any = ["a photo of a {}.", "a drawing of a {}."]
    assert ann.submit("news", UNUSUAL, **NAMED, templates=prompts).status_code == 202
    (place := tmp_path / "x.csv").write_bytes(UNUSUAL)
    monkeypatch.setattr(service, "reference", lambda name: place)
    body = {"name": "trec", "reference": "x.csv", **NAMED, "templates": prompts, "again": True}
    assert ann.post("references", body).status_code == 202
    client = Client(server=Server("http://test", "token of ann", ann.http))
    client.submit("third", place, **NAMED, templates=prompts, again=True)
    for task in ("news", "trec", "third"):
        assert submission(service, task).templates == tuple(prompts)


@pytest.mark.parametrize(
    "step", ["starlette.datastructures.UploadFile.write", "shutil.copyfileobj"]
)
def test_a_full_disk_is_no_fault_of_the_data(
    ann: Person, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(step, full)
    refused = ann.submit("news", UNUSUAL, **NAMED)
    assert (refused.status_code, refused.json()["error"]) == (503, "StorageUnavailable")
    assert "No space left on device" in refused.json()["message"]


def test_a_store_that_is_away_is_asked_again_later(
    ann: Person, service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(given: object) -> None:
        raise StorageUnavailable("the bucket does not answer")

    monkeypatch.setattr(service, "prepare", away)
    refused = ann.submit("news", UNUSUAL, **NAMED)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "bucket" not in refused.text  # what the server is made of is for admins


def test_what_may_be_said_of_rows_is_the_same_everywhere(ann: Person) -> None:
    """In Python it is Reading, for tasks and for compositions."""
    said = {*Reading.model_fields}
    flags = {f"--{name.replace('_', '-')}" for name in said}
    forms = ann.http.get("/v1/openapi.json").json()["components"]["schemas"]
    for path, verb, more in (
        ("submit_v1_tasks_post", "submit", "template"),
        ("fit_v1_making_fit_post", "compose", ""),
        ("adapt_v1_making_adapt_post", "compose", ""),
    ):
        fields = forms[f"Body_{path}"]["properties"]
        assert said | ({f"{more}s"} if more else set()) <= fields.keys()
        assert flags | ({f"--{more}"} if more else set()) <= flags_of(command_of([verb])[0])


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"input_column": "text"}, "BadColumns", "no column 'text'"),
        ({"label_column": "x" * 201}, "BadConfig", "label_column"),
        ({"classes": "ham"}, "LabelOutOfRange", "1 in column 'kind' is no class"),
        ({"classes": "ham,ham"}, "BadColumns", "each name once"),
        ({"classes": "x" * 60_001}, "BadConfig", "classes"),
        ({"classes": "ham," + "x" * 201}, "BadColumns", "201 characters"),
        ({"templates": "a photo"}, "BadConfig", "write {} once"),
        ({"templates": ["{}"] * 101}, "BadConfig", "templates"),
        ({"templates": "{}" + "x" * 199}, "BadConfig", "templates"),
    ],
)
def test_columns_and_classes_that_cannot_be(
    ann: Person, wrong: dict[str, Any], error: str, said: str
) -> None:
    answer = ann.submit("news", UNUSUAL, **{**NAMED, **wrong})
    assert (answer.status_code, answer.json()["error"]) == (422, error)
    assert said in answer.json()["message"]
    assert ann.get("tasks").json() == []


def test_data_of_the_server_are_read_as_they_are_named(
    ann: Person, service: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place := tmp_path / "x.csv").write_bytes(UNUSUAL)
    monkeypatch.setattr(service, "reference", lambda name: place)
    body = {"name": "news", "reference": "x.csv", **NAMED, "classes": ["ham", "spam"]}
    for wrong in ({"classes": []}, {"classes": ["a" * 201, "b"]}, {"input_column": "x" * 201}):
        assert ann.post("references", body | wrong).json()["error"] == "BadConfig"
    assert ann.post("references", body | {"input_column": ""}).json()["error"] == "BadColumns"
    assert ann.post("references", body).status_code == 202
    assert classes(service, "news") == ("ham", "spam")
