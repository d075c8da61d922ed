"""The Open Inference Protocol: by Triton's own client, and as its text writes it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tritonclient import http as triton

from cluster.api import limits
from tests.support.api_scene import Local, headers, scene
from tests.support.data_files import png
from tests.support.listening import serving
from tests.unit.cluster.api.test_api import PEOPLE, Person

GIVEN = {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["what?", "who?"]}


@pytest.fixture
def world(tmp_path: Path) -> tuple[FastAPI, Local]:
    app, service = scene(tmp_path / "home", **PEOPLE)
    http = TestClient(app)
    Person(http, "ann").submit("news")
    Person(http, "ann").get("status")
    Person(http, "eve").post("compositions", {"terms": ["+news"]})
    return app, service


@pytest.fixture
def http(world: tuple[FastAPI, Local]) -> Iterator[TestClient]:
    with TestClient(world[0], raise_server_exceptions=False) as http:
        yield http


def infer(http: TestClient, who: str, user: str = "eve", **body: Any) -> Any:
    body = {"inputs": [GIVEN], **body}
    return http.post(f"/v2/models/{user}/infer", json=body, headers=headers(who))


def test_by_the_client_of_triton(world: tuple[FastAPI, Local]) -> None:
    asked = triton.InferInput("text", [2, 1], "BYTES")
    asked.set_data_from_numpy(np.array([["what?"], ["wer, älter?"]], object), binary_data=False)
    wanted = [triton.InferRequestedOutput("label", binary_data=False)]
    with serving(world[0]) as url:
        client = triton.InferenceServerClient(url.removeprefix("http://").rstrip("/"))
        assert client.is_server_live()
        assert client.is_server_ready()
        eve, bob = headers("eve"), headers("bob")
        assert client.get_server_metadata(headers=eve)["name"] == "tacl"
        assert client.is_model_ready("eve", headers=eve)
        assert not client.is_model_ready("eve", headers=bob)
        described = client.get_model_metadata("eve", headers=eve)
        found = client.infer("eve", [asked], headers=eve, request_id="7")
        labels = client.infer("eve", [asked], outputs=wanted, headers=eve)
        with pytest.raises(triton.InferenceServerException, match="UnknownUser: there is no"):
            client.infer("eve", [asked], headers=bob)
        with pytest.raises(triton.InferenceServerException, match="NotAuthenticated"):
            client.infer("eve", [asked])
        client.close()
    assert described["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    named = {one["name"]: one["datatype"] for one in described["outputs"]}
    assert named == {"task": "BYTES", "label": "BYTES", "probability": "FP32"}
    answer = found.get_response()
    assert (answer["id"], answer["model_version"]) == ("7", described["versions"][0])
    task, label, probability = (found.as_numpy(name) for name in named)
    assert task is not None
    assert label is not None
    assert probability is not None
    assert (task.tolist(), label.tolist()) == (["news"] * 2, ["a"] * 2)
    assert (probability.dtype, probability.tolist()) == (np.float32, [0.75, 0.75])
    assert [one["name"] for one in labels.get_response()["outputs"]] == ["label"]
    assert world[1].questions[0].inputs == ["what?", "wer, älter?"]


def test_as_the_protocol_writes_it(http: TestClient) -> None:
    assert http.get("/v2/health/live").json() == {"live": True}
    assert http.get("/v2/health/ready").json() == {"ready": True}
    found = infer(http, "eve", id="42", outputs=[{"name": "task"}, {"name": "probability"}])
    version = http.get("/v2/models/eve", headers=headers("eve")).json()["versions"][0]
    assert found.json() == {
        "model_name": "eve",
        "model_version": version,
        "id": "42",
        "outputs": [
            {"name": "task", "shape": [2], "datatype": "BYTES", "data": ["news", "news"]},
            {"name": "probability", "shape": [2], "datatype": "FP32", "data": [0.75, 0.75]},
        ],
    }
    assert "id" not in infer(http, "eve").json()
    predicted = Person(http, "eve").post("predict", {"inputs": [{"text": "what?"}]}).json()
    assert predicted["digest"] == version


def test_not_ready(world: tuple[FastAPI, Local], http: TestClient) -> None:
    world[1].answering.clear()
    answer = http.get("/v2/health/ready")
    assert (answer.status_code, answer.json()) == (503, {"ready": False})
    assert http.get("/v2/health/live").status_code == 200


def test_pictures_are_base64(world: tuple[FastAPI, Local], http: TestClient) -> None:
    picture = png(0, 4)
    text = base64.b64encode(picture).decode()
    given = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [text]}
    assert infer(http, "eve", inputs=[given]).status_code == 200
    assert world[1].questions[-1].inputs == [picture]
    assert world[1].questions[-1].pixels == 16


@pytest.mark.parametrize(
    ("wrong", "status", "error"),
    [
        ({"shape": [3]}, 422, "BadConfig"),
        ({"datatype": "FP32"}, 422, "BadConfig"),
        ({"name": "input-0"}, 422, "BadConfig"),
        ({"data": ["what?", ""]}, 422, "BadSample"),
        ({"name": "image"}, 422, "BadSample"),
        ({"shape": [65], "data": ["x"] * (limits.INPUTS + 1)}, 413, "TooLarge"),
        ({"data": ["x" * 200_001, "y"]}, 413, "TooLarge"),
    ],
)
def test_what_is_refused(
    world: tuple[FastAPI, Local], http: TestClient, wrong: dict, status: int, error: str
) -> None:
    answer = infer(http, "eve", inputs=[GIVEN | wrong])
    assert (answer.status_code, answer.json()["error"].partition(":")[0]) == (status, error)
    assert not world[1].questions


def test_of_what_is_not_there(http: TestClient) -> None:
    assert infer(http, "bob", user="bob").json()["error"].startswith("NoComposition: ")
    assert infer(http, "eve", outputs=[{"name": "logits"}]).status_code == 422
    assert infer(http, "eve", model_name="ann").json()["error"].startswith("BadConfig: the body")
    assert infer(http, "eve", model_name="eve").status_code == 200
    assert infer(http, "eve", inputs=[GIVEN, GIVEN]).status_code == 422
