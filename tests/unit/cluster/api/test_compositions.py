"""Compositions other than the sum over HTTP: asked for, polled, and nobody else's business."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cluster.client.client import Client
from cluster.client.http import Server
from cluster.domain.base import RequestContext
from cluster.domain.compositions import Composition, Report
from cluster.domain.status import CompositionRun, RunState, RunStatus
from cluster.scheduler.state import Node
from tacl.errors import (
    BadColumns,
    BadConfig,
    BadRecipe,
    EmptySplit,
    NoComposition,
    RunFailed,
    UnknownRun,
    UnknownUser,
)
from tests.support.api_scene import Local, headers, scene
from tests.unit.cluster.api.test_api import CSV, KEY, PEOPLE, Person
from tests.unit.cluster.api.test_submitting import NAMED, UNUSUAL

FEW: dict[str, Any] = {"terms": ["news", "trec"], "shots": 4}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[TestClient, Local]]:
    app, service = scene(tmp_path / "home", **PEOPLE)
    with TestClient(app, raise_server_exceptions=False) as http:
        people = Person(http, "ann")
        for name in ("news", "trec"):
            people.submit(name)
        people.get("status")
        yield http, service


@pytest.fixture
def people(world: tuple[TestClient, Local]) -> dict[str, Person]:
    return {name: Person(world[0], name) for name in PEOPLE}


@pytest.fixture
def service(world: tuple[TestClient, Local]) -> Local:
    return world[1]


def send(who: Person, kind: str, data: bytes = CSV, file: str = "few.csv", **fields: Any) -> Any:
    return who.http.post(
        f"/v1/making/{kind}",
        data=fields,
        files={"file": (file, data)},
        headers=headers(who.name),
    )


def poll(who: Person, run_id: str, user: str | None = None) -> Any:
    return who.get(f"compositions/{user or who.name}/runs/{run_id}")


def test_by_a_recipe(people: dict[str, Person]) -> None:
    eve = people["eve"]
    body = {"terms": ["-0.5*news", "trec"], "method": "ties"}
    asked = eve.post("making/recipe", body, headers=KEY)
    assert asked.status_code == 202
    assert asked.json()["state"] in ("queued", "running")
    assert asked.json()["model"] is None
    assert eve.post("making/recipe", body, headers=KEY).json()["run_id"] == asked.json()["run_id"]
    found = poll(eve, asked.json()["run_id"]).json()
    assert (found["state"], found["user"], found["method"]) == ("ready", "eve", "ties")
    assert found["terms"] == ["-0.5*news@v1", "+trec@v1"]
    assert found["terms"] == [*map(str, Composition.model_validate(found["model"]).terms)]
    assert found["model"]["merged"].keys() == {"digest", "blob"}
    assert found["report"]["accuracies"]["news"]["after"] == 0.8
    assert eve.get("compositions/eve").json() == found["model"]
    answer = eve.post("predict", {"inputs": [{"text": "what?"}]}).json()
    assert answer["digest"] == found["model"]["digest"]


def test_by_few_labelled_rows(people: dict[str, Person]) -> None:
    eve = people["eve"]
    asked = send(eve, "fit", **FEW, select="blockwise:1")
    assert asked.status_code == 202
    found = poll(eve, asked.json()["run_id"]).json()
    assert found["state"] == "ready"
    assert found["model"]["target"]["classes"] == ["a", "b"]
    assert found["model"]["terms"][0]["by_block"] == {"a": 0.25, "b": 1.5}
    assert found["report"]["judged_on"] == "rows held out"
    answer = eve.post("predict", {"inputs": [{"text": "what?"}], "tasks": ["fitted"]})
    assert answer.json()["answers"][0].keys() == {"fitted"}


def test_by_unlabelled_inputs(people: dict[str, Person]) -> None:
    eve = people["eve"]
    old = send(eve, "adapt", terms=["news", "trec"], method="adamerging")
    assert poll(eve, old.json()["run_id"]).json()["model"]["target"] is None
    new = send(eve, "adapt", terms=["news", "trec"], classes="ham, spam")
    found = poll(eve, new.json()["run_id"]).json()
    assert found["model"]["target"]["classes"] == ["ham", "spam"]
    assert old.json()["run_id"] != new.json()["run_id"]


@pytest.mark.parametrize("kind", ["fit", "adapt"])
def test_columns_may_be_named(people: dict[str, Person], kind: str) -> None:
    rows: dict[str, Any] = {"data": UNUSUAL, "terms": ["news"]}
    rows |= {"shots": 4} if kind == "fit" else {}
    refused = send(people["eve"], kind, **rows)
    assert (refused.status_code, refused.json()["error"]) == (422, "BadColumns")
    for column in NAMED:
        wrong: dict[str, Any] = {**rows, column: "none"}
        assert send(people["eve"], kind, **wrong).json()["error"] == "BadColumns"
    asked = send(people["eve"], kind, **rows, **NAMED, classes="ham,spam")
    found = poll(people["eve"], asked.json()["run_id"]).json()
    assert found["model"]["target"]["classes"] == ["ham", "spam"]


def test_of_unlabelled_inputs_the_column_of_classes_is_none(people: dict[str, Person]) -> None:
    rows = b"\n".join([b"said,kind", *(b"words %d,kind %d" % (i, i % 2) for i in range(40))])
    given: dict[str, Any] = {"data": rows, "terms": ["news"]}
    assert "which column holds the texts" in send(people["eve"], "adapt", **given).json()["message"]
    assert send(people["eve"], "adapt", **given, label_column="kind").status_code == 202


BARE = b"text\n" + b"\n".join(b"line %d" % i for i in range(20))
REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("fit", FEW | {"shots": 21}, 422, "EmptySplit"),
    ("fit", FEW | {"data": BARE}, 422, "BadColumns"),
    ("fit", FEW | {"data": b"\x00\x01"}, 422, ""),
    ("fit", FEW | {"file": "few.exe"}, 422, "BadConfig"),
    ("fit", FEW | {"terms": ["-news"]}, 422, "BadRecipe"),
    ("fit", FEW | {"method": "ties"}, 422, ""),
    ("fit", FEW | {"user": "ann"}, 404, "UnknownUser"),
    ("adapt", {"terms": ["news"], "select": "blockwise:2"}, 422, "BadRecipe"),
    ("adapt", {"terms": ["news"], "select": "blockwise:" + "9" * 5000}, 422, "BadConfig"),
    ("adapt", {"terms": ["news"], "classes": "a" * 60_001}, 422, "BadConfig"),
    ("adapt", {"terms": ["news"], "classes": "a,a"}, 422, "BadConfig"),
    ("adapt", {"terms": ["news"], "classes": "a,,b"}, 422, "BadConfig"),
    ("adapt", {"terms": ["news"], "classes": "ham,"}, 422, "BadConfig"),
    ("adapt", {"terms": ["news"], "classes": " "}, 422, "BadConfig"),
]


@pytest.mark.parametrize(("kind", "fields", "status", "error"), REFUSED)
def test_what_cannot_be_made_is_refused_before_anything_is_stored(
    people: dict[str, Person],
    service: Local,
    kind: str,
    fields: dict[str, Any],
    status: int,
    error: str,
) -> None:
    before = sorted((service.home / "blobs").rglob("*"))
    answer = send(people["eve"], kind, **fields)
    assert answer.status_code == status, answer.text
    assert error in ("", answer.json()["error"])
    assert sorted((service.home / "blobs").rglob("*")) == before
    assert service.coordinator._registry.runs(kinds=("compose",)) == []


def test_nobody_learns_of_anybody_elses(people: dict[str, Person], service: Local) -> None:
    ann, bob, root = people["ann"], people["bob"], people["root"]
    run_id = send(ann, "fit", **FEW).json()["run_id"]
    for who in (bob, people["eve"]):
        assert all("of ann" not in one["about"] for one in who.get("status").json()["work"])
        for user in ("ann", who.name):
            answer = poll(who, run_id, user)
            assert answer.status_code == 404
            assert answer.json()["error"] == ("UnknownUser" if user == "ann" else "UnknownRun")
        nothing = poll(who, "0" * 64)
        assert nothing.json()["message"].replace("0" * 64, "") == poll(who, run_id).json()[
            "message"
        ].replace(run_id, "")
    assert poll(root, run_id, "ann").json()["state"] == "ready"
    mine = send(bob, "fit", **FEW).json()
    assert mine["run_id"] != run_id
    assert mine["state"] == "running"  # made anew: that ann has the same is not to be seen


def test_a_private_task_of_another_is_not_there(people: dict[str, Person]) -> None:
    ann, bob = people["ann"], people["bob"]
    ann.submit("ann.own", private="true")
    ann.get("status")
    body = {"terms": ["ann.own", "news"], "method": "ties"}
    answer = bob.post("making/recipe", body)
    unknown = bob.post("making/recipe", body | {"terms": ["ann.not", "news"]})
    assert (answer.status_code, unknown.status_code) == (404, 404)
    same = answer.json()["message"].replace("ann.own", "")
    assert same == unknown.json()["message"].replace("ann.not", "")
    assert ann.post("making/recipe", body).status_code == 202


# -- the client over HTTP


@pytest.fixture
def eve(world: tuple[TestClient, Local]) -> Client:
    return Client(server=Server("http://test", "token of eve", world[0]))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "few.csv").write_bytes(CSV)
    return tmp_path / "few.csv"


def test_a_client_composes_the_same_way(eve: Client, data: Path) -> None:
    merged = eve.compose("eve", ["news", "-trec"], method="iso")
    assert merged.merged is not None
    assert merged == eve.composition("eve")
    few = {"fit": data, "shots": 4, "select": "blockwise:1", "label_column": "label"}
    fitted = eve.compose("eve", ["news", "trec"], method="atlas", **few)
    assert fitted.target is not None
    assert fitted.terms[0].by_block == {"a": 0.25, "b": 1.5}
    classes = {"adapt": data, "classes": ["ham", "spam"]}
    asked = eve.start_composition("eve", ["news", "trec"], "atlas", **classes)
    model = eve.wait_composition("eve", asked.run_id, poll=0).model
    assert model is not None
    assert model.target is not None
    assert model.target.classes == ("ham", "spam")


def test_what_is_being_made_can_be_cancelled(eve: Client) -> None:
    run_id = eve.start_composition("eve", ["news", "trec"], "ties").run_id
    assert eve.cancel_compositions("eve").cancelled == (run_id,)
    assert eve.composition_run("eve", run_id).state == "cancelled"
    with pytest.raises(RunFailed, match="composing by ties cancelled: cancelled by eve"):
        eve.wait_composition("eve", run_id)
    assert eve.compose("eve", ["news", "trec"], method="ties").merged is not None


def test_errors_are_those_of_the_server(eve: Client, data: Path, service: Local) -> None:
    with pytest.raises(EmptySplit, match="fewer shots"):
        eve.compose("eve", ["news"], method="atlas", fit=data, shots=21)
    with pytest.raises(BadColumns, match="no column 'said'"):
        eve.compose("eve", ["news"], method="atlas", fit=data, shots=2, input_column="said")
    with pytest.raises(BadConfig, match="over HTTP a name is not empty"):
        eve.compose("eve", ["news"], method="atlas", adapt=data, classes=["a,b", "c"])
    with pytest.raises(BadConfig, match="--shots"):
        eve.compose("eve", ["news"], method="atlas", adapt=data, shots=4)
    with pytest.raises(BadRecipe):
        eve.compose("eve", ["-news"], method="atlas")
    with pytest.raises(UnknownRun):
        eve.composition_run("eve", "0" * 64)
    with pytest.raises(UnknownUser):
        eve.compose("ann", ["news"], method="ties")
    service.launcher.broken = {"eve"}
    with pytest.raises(RunFailed, match="composing by ties failed: no coefficient is any good"):
        eve.compose("eve", ["news"], method="ties")
    with pytest.raises(NoComposition):
        eve.composition("eve")
    service.launcher.broken = set()
    assert eve.compose("eve", ["news"], method="ties").merged is not None  # asked again, made


@pytest.mark.parametrize("key", [None, "one"])
def test_a_failed_evaluation_is_told_and_tried_again_when_it_is_asked_anew(
    people: dict[str, Person], service: Local, key: str | None
) -> None:
    eve, place = people["eve"], "compositions/eve/evaluation"
    eve.post("compositions", {"terms": ["news"]})
    service.launcher.broken.add("eve")
    for _ in range(3):
        found = eve.post(place, headers={"idempotency-key": key} if key else {})
        assert (found.status_code, found.json()["error"]) == (500, "RunFailed")
        assert "the test rows are harmed" in found.json()["message"]
    evaluations = [p for p in service.launcher.processes if p.work.kind == "evaluate"]
    assert len(evaluations) == 1
    service.launcher.broken.clear()
    for _ in range(
        3
    ):  # heads may have been fitted since: then it is another run, which takes a tick
        found = eve.post(place, headers={"idempotency-key": "anew"}).json()
        if found["result"]:
            break
    assert found["result"]["absolute"] == 0.88


def test_a_materialized_model_whose_measuring_failed_is_not_measured_at_every_question(
    people: dict[str, Person], service: Local
) -> None:
    eve = people["eve"]
    eve.post("compositions", {"terms": ["news"]})
    service.launcher.broken.add("eve")
    asked = {"inputs": [{"text": "x"}], "way": "materialized"}
    for _ in range(3):
        found = eve.post("predict", asked)
        assert (found.status_code, found.json()["error"]) == (500, "RunFailed")
        assert "the test rows are harmed" in found.json()["message"]
    evaluations = [p for p in service.launcher.processes if p.work.kind == "evaluate"]
    assert len(evaluations) == 1
    root = people["root"]  # may ask for anybody: of the same recipe the model of each is its own
    for user in ("eve", "bob"):
        root.post("compositions", {"user": user, "terms": ["news"]})
        assert root.post("predict", {**asked, "user": user}).json()["error"] != "NameTaken"


def test_of_two_with_one_model_neither_hears_of_the_other(
    people: dict[str, Person], service: Local
) -> None:
    eve, bob = people["eve"], people["bob"]
    for person in (eve, bob):
        person.post("compositions", {"terms": ["news"]})
    assert eve.post("compositions/eve/evaluation").json()["result"] is not None
    (row,) = bob.get("accuracy").json()["rows"]
    assert row["user"] == "bob"
    service.launcher.room = ()  # it waits
    service.coordinator.tick()

    def ask(person: Person) -> Any:
        place = f"compositions/{person.name}/evaluation?materialized=1"
        return person.post(place, headers={"idempotency-key": "one"})

    assert len({ask(person).json()["run_id"] for person in (eve, bob)}) == 1
    service.launcher.room, service.launcher.broken = (Node(2),), {"eve"}
    for _ in range(3):
        service.coordinator.tick()
    found = [ask(person) for person in (eve, bob)]
    assert [one.json()["error"] for one in found] == ["RunFailed"] * 2
    assert "eve" in found[0].text
    assert "eve" not in found[1].text


def test_to_ask_again_is_to_look_at_what_is_asked_now(
    people: dict[str, Person], service: Local
) -> None:
    """A new champion is another question; and who has no model may ask what terms would give."""
    for _ in range(9):  # upkeep
        service.coordinator.tick()
    bob, place = people["bob"], "compositions/bob/evaluation?term=%2Bnews"
    found = [bob.post(place) for _ in range(2)]
    assert {one.status_code for one in found} == {202}
    assert len({one.json()["run_id"] for one in found}) == 1
    before = service.coordinator.aliases(RequestContext(), "news").aliases
    service.coordinator.refresh(RequestContext(request_id="refresh"), "news")
    while service.coordinator.aliases(RequestContext(), "news").aliases == before:
        service.coordinator.tick()
    assert bob.post(place).json()["run_id"] != found[0].json()["run_id"]


def test_a_client_that_waits_is_told_that_an_evaluation_failed(service: Local, world: Any) -> None:
    eve = Client(server=Server("http://test", "token of eve", world[0]))
    eve.compose("eve", ["news"])
    service.launcher.room = ()  # it waits
    service.coordinator.tick()
    run_id = eve.evaluating("eve")
    service.launcher.room, service.launcher.broken = (Node(2),), {"eve"}
    for _ in range(3):  # it starts and fails while nobody looks
        service.coordinator.tick()
    service.launcher.broken = set()
    with pytest.raises(RunFailed, match="the test rows are harmed"):
        eve.evaluation(run_id)
    assert eve.evaluate("eve").absolute == 0.88


def test_to_look_at_an_evaluation_of_terms_asks_for_no_history(
    people: dict[str, Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = Counter[str](), Local.ask

    async def counted(self: Local, method: Any, *arguments: Any, **named: Any) -> Any:
        asked[method.__name__] += 1
        return await ask(self, method, *arguments, **named)

    monkeypatch.setattr(Local, "ask", counted)
    look = "compositions/bob/evaluation?term=%2Bnews&term=%2Btrec"
    first = people["bob"].post(look).json()["run_id"]
    assert asked["status"] == 1
    assert asked["aliases"] == 0
    assert people["bob"].post(f"{look}%40champion").json()["run_id"] != first
    assert asked["aliases"] == 0


def test_classes_that_look_like_paths_stay(people: dict[str, Person]) -> None:
    eve, given = people["eve"], {"terms": ["news", "trec"], "classes": "/m/01,/m/02"}
    first = send(eve, "adapt", **given).json()
    found = poll(eve, first["run_id"]).json()
    assert found["model"]["target"]["classes"] == ["/m/01", "/m/02"]
    assert send(eve, "adapt", **given).json()["model"] == found["model"]


def test_a_cancel_is_answered_the_same_again(people: dict[str, Person]) -> None:
    """Though its task has left."""
    ann = people["ann"]
    ann.submit("other")
    first = ann.post("tasks/other/cancel", {}, headers=KEY)
    again = ann.post("tasks/other/cancel", {}, headers=KEY)
    assert first.json()["left"] is True
    assert (again.status_code, again.json()) == (200, first.json())
    assert ann.post("tasks/other/cancel", {}).status_code == 404


def test_what_is_not_finite_is_null_in_json(tmp_path, monkeypatch) -> None:
    """What people are told says so itself; of reports, which are kept as they are, the route."""
    app, service = scene(tmp_path, open_to_all=True)
    run: dict[str, Any] = {"run_id": "ab", "attempt": 1, "created": 1.0, "loss": math.nan}
    made: dict[str, Any] = {"user": "local", "method": "atlas", "terms": (), "state": "ready"}
    report = Report(accuracies={}, judged_on="nothing", figures={"loss": math.inf}, seconds=1.0)
    found = {
        "run": RunStatus(**run, state=RunState.RUNNING, kind="train", task="news", about="news"),
        "composition_run": CompositionRun(**run, **made, report=report),
    }

    async def ask(method: Callable[..., Any], *_: object) -> Any:
        return found[method.__name__]

    monkeypatch.setattr(service, "ask", ask)
    http = TestClient(app, base_url="http://localhost")
    for path in ("runs/ab", "compositions/local/runs/ab"):
        told = http.get(f"/v1/{path}")
        assert (told.status_code, told.json()["loss"]) == (200, None)
    assert told.json()["report"]["figures"] == {"loss": None}
