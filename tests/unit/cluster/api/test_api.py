"""The HTTP API: what it answers, what it refuses, and what nobody learns of anybody else."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

import tacl
from cluster.api import bodies, limits
from cluster.api.access import hashed
from cluster.domain.base import RequestContext
from cluster.domain.compositions import Composition
from cluster.domain.status import Event
from tacl.errors import BadName
from tests.support.api_scene import Local, headers, scene
from tests.support.fakes import submission
from tests.support.instant import Instant

CSV = "\n".join(["text,label", *(f"sentence {i},{'ab'[i % 2]}" for i in range(40))]).encode()
GUESS = [["a", 0.75], ["b", 0.25]]
OPEN = ("/v1/health", "/v1/ready", "/v2/health/live", "/v2/health/ready")  # to who has no token
KEY = {"idempotency-key": "k"}
PEOPLE: dict[str, Any] = {"ann": "submitter", "bob": "submitter", "eve": "user", "root": "admin"}


class Person:
    """Asks the API with a token."""

    def __init__(self, http: TestClient, name: str) -> None:
        self.http, self.name = http, name

    def get(self, path: str) -> Any:
        return self.http.get(f"/v1/{path}", headers=headers(self.name))

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        extra = more.pop("headers", {})
        return self.http.post(
            f"/v1/{path}", json=body, headers={**headers(self.name), **extra}, **more
        )

    def submit(self, name: str, data: bytes = CSV, file: str = "data.csv", **fields: Any) -> Any:
        return self.http.post(
            "/v1/tasks",
            data={"name": name, "again": "true", **fields},
            files={"file": (file, data)},
            headers=headers(self.name),
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[TestClient, Local]]:
    app, service = scene(tmp_path / "home", **PEOPLE)
    with TestClient(app, raise_server_exceptions=False) as http:  # one loop for all requests
        yield http, service


@pytest.fixture
def http(world: tuple[TestClient, Local]) -> TestClient:
    return world[0]


@pytest.fixture
def people(http: TestClient) -> dict[str, Person]:
    return {name: Person(http, name) for name in PEOPLE}


def test_the_whole_way(people, world) -> None:
    ann, eve = people["ann"], people["eve"]
    assert ann.submit("news").json()["state"] == "queued"
    assert ann.submit("trec", options='{"seed": 3}').status_code == 202
    assert [t["state"] for t in ann.get("status").json()["tasks"]] == ["ready", "ready"]
    assert ann.get("tasks/news").json()["curves"]["1"]["loss"] == [1.0, 0.5]
    assert len(eve.get("vectors").json()) == 2
    assert eve.get("interference").json()["on"] == ["generic", "news", "trec"]
    model = eve.post("compositions", {"terms": ["+news", "-0.5*trec"]}).json()
    terms = Composition.model_validate(model).terms
    assert [str(term) for term in terms] == ["+news@v1", "-0.5*trec@v1"]
    assert eve.get("compositions/eve").json() == model
    found = eve.post("predict", {"inputs": [{"text": "what?"}], "beside_base": True}).json()
    assert (found["user"], found["digest"]) == ("eve", model["digest"])
    assert found["best"] == [{"task": "news", "label": "a", "probability": 0.75}]
    assert found["answers"] == found["base"] == [{"news": [["a", 0.75], ["b", 0.25]]}]
    assert world[1].questions[0].inputs == ["what?"]
    named = eve.post("predict", {"inputs": [{"text": "what?"}], "tasks": ["trec"]}).json()
    assert (named["best"], named["answers"]) == ([], [{"trec": [["a", 0.75], ["b", 0.25]]}])
    assert [question.tasks for question in world[1].questions] == [None, ["trec"]]
    assert [question.told for question in world[1].questions] == [64_000] * 2
    assert "more_classes" not in named
    assert eve.post("predict", {"inputs": [{"text": "what?"}] * 64}).status_code == 200
    assert world[1].questions[-1].told == 1000
    assert eve.post("compositions/eve/evaluation").status_code == 202
    measured = eve.get("accuracy").json()
    assert measured["rows"][0]["accuracies"] == {"news": 0.88, "trec": 0.88}
    assert measured["rows"][0]["label"] == "+news@v1 -0.5*trec@v1"


def test_the_same_key_is_answered_once(people) -> None:
    ann, bob = people["ann"], people["bob"]
    ann.submit("news")
    ann.get("status")
    once = [ann.post("compositions", {"terms": ["news"]}, headers=KEY) for _ in "ab"]
    assert once[0].json() == once[1].json()
    other = ann.post("compositions", {"terms": ["-news"]}, headers=KEY)
    assert (other.status_code, other.json()["error"]) == (409, "NameTaken")
    mine = bob.post("compositions", {"terms": ["-news"]}, headers=KEY)
    assert mine.status_code == 200  # bob learns nothing of ann's keys


def test_without_a_token_nothing_but_health(http) -> None:
    assert http.get("/v1/health").json() == {"status": "ok"}
    assert http.get("/v1/ready").status_code == 200
    for path in ("status", "tasks", "vectors", "compositions/ann", "events"):
        answer = http.get(f"/v1/{path}")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert http.get(f"/v1/{path}", headers=headers("mallory")).status_code == 401


def test_every_route_but_health_asks_for_a_token(http) -> None:
    for path, methods in http.get("/v1/openapi.json").json()["paths"].items():
        for method in methods:
            if path not in OPEN:
                answer = http.request(method, path.replace("{", "").replace("}", ""), json={})
                assert answer.status_code == 401, (method, path, answer.status_code)


def test_open_to_all_needs_no_token(tmp_path: Path) -> None:
    app, _ = scene(tmp_path / "home", open_to_all=True)
    http = TestClient(app, base_url="http://localhost:8300")
    assert http.get("/v1/status").status_code == 200


def test_roles(people) -> None:
    assert people["eve"].submit("news").json()["error"] == "NotAllowed"
    people["ann"].submit("news")
    for who, status in (("eve", 403), ("bob", 403), ("ann", 200), ("root", 200)):
        kept = people[who].post("tasks/news/cancel", {"keep": True})
        assert kept.status_code == status
        assert people[who].post("tasks/news/retry").status_code == status


def test_a_revoked_token_opens_nothing(people, world) -> None:
    assert people["eve"].get("status").status_code == 200
    world[1].coordinator.revoke_tokens(RequestContext(), "eve")
    assert people["eve"].get("status").status_code == 401


# -- one user never sees another's


def told_to(person: Person) -> str:
    """Everything that somebody can ask for, as one text, without what differs by the minute."""
    paths = ["status", "tasks", "vectors", "interference", "compositions", "accuracy"]
    answers = [person.get(path) for path in paths]
    assert {answer.status_code for answer in answers} == {200}
    return json.dumps([answer.json() for answer in answers])


def test_a_private_task_is_not_there_for_anybody_else(people) -> None:
    ann, bob, root = people["ann"], people["bob"], people["root"]
    ann.submit("news")
    assert ann.submit("ann.secret", private="true").status_code == 202
    ann.submit("trec")
    assert "ann.secret" in told_to(ann)
    assert "ann.secret" in told_to(root)
    assert "secret" not in told_to(bob)
    assert [task["name"] for task in bob.get("tasks").json()] == ["news", "trec"]
    told = told_to(bob) + bob.get("tasks/trec").text
    assert set(re.findall(r'"ordinal": ?(\w+)', told)) == {"null"}  # they would have a gap
    assert '"ordinal": 3' in told_to(root)
    for path in ("tasks/{}", "tasks/{}/events", "tasks/{}/aliases"):
        _same_as_nothing(bob, "get", path)
    for path in ("tasks/{}/cancel", "tasks/{}/retry"):
        _same_as_nothing(bob, "post", path)
    recipes = [bob.post("compositions", {"terms": [name]}) for name in ("ann.secret", "ann.absent")]
    assert _alike(*recipes, "ann.secret", "ann.absent") == 404


def _same_as_nothing(person: Person, method: str, path: str) -> None:
    answers = [getattr(person, method)(path.format(name)) for name in ("ann.secret", "ann.absent")]
    assert _alike(*answers, "ann.secret", "ann.absent") == 404


def _alike(one, other, *names: str) -> int:
    """Two answers that differ in nothing but the name that was asked for."""
    bodies = []
    for answer, name in zip((one, other), names, strict=True):
        body = {k: v for k, v in answer.json().items() if k != "request_id"}
        bodies.append(json.dumps(body).replace(name, "NAME"))
    assert bodies[0] == bodies[1]
    assert one.status_code == other.status_code
    return one.status_code


def test_names_of_private_tasks_are_not_found_by_collision(people) -> None:
    ann, bob = people["ann"], people["bob"]
    assert ann.submit("secret", private="true").json()["error"] == "BadName"
    assert ann.submit("ann.secret", private="true").status_code == 202
    for own, submitted in (("ann.secret", "ann.absent"), ("ann.x.secret", "ann.x.absent")):
        for private in ("true", "false"):
            tries = [bob.submit(name, private=private) for name in (own, submitted)]
            assert _alike(*tries, own, submitted) == 422
    assert bob.submit("bob.own").status_code == 202


def test_no_name_belongs_to_two_users(people, world) -> None:
    """What is before the last dot is one user's alone, also where a name holds another's."""
    role, token = "submitter", hashed("token of ann.x")
    world[1].coordinator.issue_token(RequestContext(), "ann.x", role, token)
    assert people["ann"].submit("ann.x.secret", private="true").json()["error"] == "BadName"
    assert Person(people["ann"].http, "ann.x").submit("ann.x.secret").status_code == 202


def test_what_was_submitted_beside_the_cluster_is_not_found_by_collision(people, world) -> None:
    """Where a name is everybody's, no private task has it, whoever submitted it."""
    home = world[1].coordinator._place
    with pytest.raises(BadName, match="begins with yours: ann.secret"):
        world[1].coordinator.submit(
            RequestContext(), submission(home, "secret", owner="ann", private=True)
        )
    assert people["bob"].submit("secret").status_code == 202


def test_answers_and_models_are_explained(people, world, monkeypatch) -> None:
    ann, eve = people["ann"], people["eve"]
    for name in ("news", "trec"):
        ann.submit(name)
    ann.get("status")
    model = eve.post("compositions", {"terms": ["+news", "-0.5*trec"]}).json()
    body = {"inputs": [{"text": "what?"}, {"text": "and?"}]}
    found = eve.post("explain", body).json()
    assert (found["user"], found["digest"]) == ("eve", model["digest"])
    assert [len(one["parts"]) for one in found["explanations"]] == [3, 3]
    part = found["explanations"][0]["parts"][2]
    assert (part["part"], part["logits"]) == ("-0.5*trec@v1", {"news": {"a": 1.0, "b": 0.5}})
    assert world[1].questions[-1].rows == 4  # every input under every vector
    within = eve.post("explain", body | {"task": "trec"}).json()
    assert within["explanations"][0]["best"]["task"] == "trec"
    many = eve.post("explain", {"inputs": body["inputs"] * 9})
    assert many.status_code == 422
    monkeypatch.setattr(limits, "EXPLAINED_ROWS", 1)
    many = eve.post("explain", body)  # two vectors, two inputs
    assert (many.status_code, many.json()["error"]) == (413, "TooLarge")
    assert eve.post("explain", {"inputs": body["inputs"][:1]}).status_code == 200
    for without in (False, True):
        asked = eve.post(f"compositions/eve/evaluation?without={without}").json()
        eve.get("status")
        measured = eve.post(f"compositions/eve/evaluation?without={without}").json()
        assert measured["run_id"] == asked["run_id"]
        assert bool(measured["result"]["without"]) is without
    assert measured["result"]["without"]["+news@v1"] == {"news": 0.5, "trec": 0.9}


def test_somebody_elses_model_is_not_there(people) -> None:
    ann, bob = people["ann"], people["bob"]
    ann.submit("news")
    ann.get("status")
    ann.post("compositions", {"terms": ["+news"]})
    asks = [
        lambda user: bob.get(f"compositions/{user}"),
        lambda user: bob.get(f"accuracy?user={user}"),
        lambda user: bob.post(f"compositions/{user}/update"),
        lambda user: bob.post(f"compositions/{user}/evaluation"),
        lambda user: bob.post(f"compositions/{user}/cancel"),
        lambda user: bob.post("compositions", {"user": user, "terms": ["news"]}),
        lambda user: bob.post("predict", {"user": user, "inputs": [{"text": "x"}]}),
        lambda user: bob.post("explain", {"user": user, "inputs": [{"text": "x"}]}),
    ]
    for ask in asks:
        assert _alike(ask("ann"), ask("nobody"), "ann", "nobody") == 404
    assert bob.get("compositions").json() == []
    assert people["root"].get("compositions/ann").status_code == 200
    assert bob.post("predict", {"inputs": [{"text": "x"}]}).json()["error"] == "NoComposition"


def test_nobody_hears_that_somebody_elses_model_is_evaluated(people, world, monkeypatch) -> None:
    ann, bob = people["ann"], people["bob"]
    ann.submit("news")
    ann.get("status")
    ann.post("compositions", {"terms": ["news"]})
    monkeypatch.setattr(Instant, "poll", lambda self, handle: None)  # it takes its time
    assert ann.post("compositions/ann/evaluation").json()["result"] is None
    assert "ann" in json.dumps(ann.get("status").json()["work"])
    kinds = [work["kind"] for work in bob.get("status").json()["work"]]
    assert "evaluate" not in kinds
    run_id = ann.post("compositions/ann/evaluation").json()["run_id"]
    assert ann.get(f"runs/{run_id}").json()["user"] == "ann"
    answers = [bob.get(f"runs/{one}") for one in (run_id, "0" * 64)]
    assert _alike(*answers, run_id, "0" * 64) == 404


# -- what is refused


def picture(width: int = 4, height: int = 4, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("1", (width, height)).save(file, format=kind)
    return file.getvalue()


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"inputs": [{"text": "x" * 200_001}]}, 422, "BadConfig"),
        ({"inputs": [{"text": "  "}]}, 422, "BadSample"),
        ({"inputs": [{"text": "a\x00b"}]}, 422, "BadSample"),
        ({"inputs": []}, 422, "BadConfig"),
        ({"inputs": [{"text": "x"}] * 65}, 422, "BadConfig"),
        ({"inputs": [{"text": "x", "image": "eA=="}]}, 422, "BadConfig"),
        ({"inputs": [{"image": "not base64!"}]}, 422, "BadSample"),
        ({"inputs": [{"image": b64(b"GIF89a no")}]}, 422, "BadSample"),
        ({"inputs": [{"image": b64(picture(8, 8, "ICO"))}]}, 422, "BadSample"),
        ({"inputs": [{"image": b64(picture(20_000, 20_000))}]}, 413, "TooLarge"),
        ({"inputs": [{"text": "x"}], "seconds": 0}, 422, "BadConfig"),
        ({"inputs": [{"text": "x"}], "url": "http://elsewhere"}, 422, "BadConfig"),
        ({"inputs": [{"text": "x"}], "way": "materialized"}, 409, "Inexact"),
    ],
)
def test_bad_questions(people, body: dict, status: int, error: str) -> None:
    people["ann"].submit("news")
    people["ann"].get("status")
    people["eve"].post("compositions", {"terms": ["news"]})
    answer = people["eve"].post("predict", body)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_picture_files(people, world) -> None:
    ann = people["ann"]
    ann.submit("news")
    ann.get("status")
    ann.post("compositions", {"terms": ["news"]})
    ask = {"url": "/v1/predict/files", "headers": headers("ann")}
    assert ann.http.post(**ask, files=[("files", ("a.png", picture()))] * 2).status_code == 200
    assert world[1].questions[-1].inputs == [picture(), picture()]
    assert ann.http.post(**ask, files={"files": ("a.png", b"no")}).json()["error"] == "BadSample"


def test_bad_uploads(people, monkeypatch) -> None:
    ann = people["ann"]
    assert ann.submit("news", file="data.pkl").json()["error"] == "BadConfig"
    assert ann.submit("news", data=b"text,label\n").json()["error"] == "EmptySplit"
    assert ann.submit("news", options="[1]").json()["error"] == "BadConfig"
    for wrong in ({"colour": 1}, {"steps": 0}, {"seed": "x"}):
        answer = ann.submit("news", options=json.dumps(wrong))
        assert (answer.status_code, answer.json()["error"]) == (422, "BadConfig")
        assert next(iter(wrong)) in answer.json()["message"]
    body = {"name": "news", "reference": "x", "options": {"colour": 1}}
    assert ann.post("references", body).status_code == 422
    assert ann.submit("../news").json()["error"] == "BadConfig"
    body = {"name": "news", "reference": "..passwd"}
    assert ann.post("references", body).status_code == 422
    assert ann.post("references", body | {"reference": "x"}).status_code == 404
    monkeypatch.setattr(bodies, "UPLOAD_BYTES", 1000)
    answer = ann.submit("news", data=b"x" * 2000)
    assert (answer.status_code, answer.json()["error"]) == (413, "TooLarge")
    assert ann.get("tasks").json() == []  # nothing was stored


def test_an_upload_that_lies_about_its_length_ends_at_the_limit(people, monkeypatch) -> None:
    monkeypatch.setattr(bodies, "BODY_BYTES", 1000)
    ann, read = people["ann"], []

    def endless():
        for _ in range(1000):
            read.append(1)
            yield b" " * 100

    answer = ann.http.post("/v1/predict", content=endless(), headers=headers("ann"))
    assert answer.status_code == 413


def test_no_path_of_the_server_is_told(people, tmp_path: Path, world) -> None:
    ann = people["ann"]
    ann.submit("news")
    answers = [
        ann.submit("x", data=b"nothing"),
        ann.submit("y", file="a.parquet"),
        ann.submit("z", file="a.jsonl"),
        *(ann.get(path) for path in ("status", "tasks/news", "vectors", "tasks/news/events")),
    ]
    for answer in answers:
        assert str(tmp_path) not in answer.text
        assert "/tmp" not in answer.text


def test_paths_are_shortened() -> None:
    event = Event(at=1.0, kind="failed", task="a", run_id=None, text="no file '/a/b c/d' there")
    found = {"spec": "hf:/srv/models/minilm", "why": [event, 1, None]}
    assert limits.without_paths(found) == {
        "spec": "hf:…/minilm",
        "why": [event.model_copy(update={"text": "no file '…/b c/d' there"}), 1, None],
    }
    assert limits.without_paths("and/or 1/2 at 3/4/5") == "and/or 1/2 at 3/4/5"


def test_a_defect_tells_nothing_but_its_id(people, world, monkeypatch, caplog) -> None:
    async def broken(*arguments: object) -> None:
        raise KeyError("/etc/secret")

    monkeypatch.setattr(world[1], "predict", broken)
    people["ann"].submit("news")
    people["ann"].get("status")
    people["ann"].post("compositions", {"terms": ["news"]})
    answer = people["ann"].post("predict", {"inputs": [{"text": "x"}]})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["request_id"] in [vars(r).get("request_id") for r in caplog.records]


def test_every_request_is_one_line_of_the_log(people, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="tacl.http"):
        answer = people["eve"].get("tasks/absent")
    facts = vars(caplog.records[-1])
    assert facts["request_id"] == answer.headers["x-request-id"]
    assert (facts["route"], facts["status"], facts["user"]) == ("/tasks/{name}", 404, "eve")
    assert facts["error"] == "UnknownTask"


def test_the_page_is_there(http) -> None:
    assert "text/html" in http.get("/").headers["content-type"]


def test_docs_lead_to_the_openapi(http) -> None:
    found = http.get("/docs").json()
    assert found["openapi"].startswith("3.")
    assert found["info"]["version"] == tacl.__version__
