"""Attacks on the HTTP API: strangers' bodies, one user who takes everything, pages of elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from cluster.api import bodies, events
from cluster.api.access import require_here
from cluster.api.shares import ConcurrencyLimiter
from cluster.data.answers import ARROW
from cluster.reading import shares
from cluster.reading.shares import HOUR
from tacl.errors import NotAllowed
from tests.support.answered import told
from tests.support.api_scene import headers, scene
from tests.unit.cluster.api.test_api import CSV, OPEN, PEOPLE, Person

FORM = {"content-type": "multipart/form-data; boundary=x"}
HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return scene(tmp_path / "home", **PEOPLE)[0]


def operations(app: FastAPI) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            if path not in OPEN:
                place = path.replace("{run_id}", "9f").replace("{", "").replace("}", "")
                yield method.upper(), place, operation


def test_nothing_of_a_body_is_read_before_it_is_known_who_sends_it(app) -> None:
    for method, path, _ in operations(app):
        for who in ({}, headers("mallory"), {"authorization": "Basic eA=="}):
            found = told(app, method, path, FORM | who, [b"x"] * 9)
            assert (found.status, found.read) == (401, 0), (method, path)


def test_nothing_of_a_body_is_read_before_the_role_is_checked(app) -> None:
    guarded = set()
    for method, path, operation in operations(app):
        if operation.get("x-role"):
            guarded.add(path)
            found = told(app, method, path, FORM | headers("eve"), [b"x"] * 9)
            assert (found.status, found.read) == (403, 0), (method, path)
    assert {"/v1/tasks", "/v1/references", "/v1/tasks/name/cancel"} < guarded


def test_who_lacks_the_role_is_told_so_whatever_the_form(app) -> None:
    with TestClient(app) as http:
        assert http.post("/v1/tasks", headers=headers("eve")).json()["error"] == "NotAllowed"
        assert http.post("/v1/tasks", headers=headers("ann")).json()["error"] == "BadConfig"


def test_a_body_that_says_it_is_too_large_is_not_read(app) -> None:
    for path, most in (("/v1/tasks", bodies.UPLOAD_BYTES), ("/v1/predict", bodies.BODY_BYTES)):
        sent = headers("ann") | FORM | {"content-length": str(most + 1)}
        found = told(app, "POST", path, sent, [b"x"])
        assert (found.status, found.read) == (413, 0)


def test_a_body_without_a_length_is_read_to_the_limit(app, monkeypatch) -> None:
    monkeypatch.setattr(bodies, "BODY_BYTES", 1000)
    for method, path, operation in operations(app):
        if "requestBody" in operation and path != "/v1/tasks":
            found = told(app, method, path, FORM | headers("root"), [HEAD] + [b"x" * 400] * 9)
            assert (found.status, found.read) == (413, 4), (method, path)


@pytest.mark.parametrize("opening", [b"[", b"{", b",", b'"a,b", ' * 9])
def test_json_that_becomes_much_in_memory_is_not_read_to_its_end(app, monkeypatch, opening) -> None:
    monkeypatch.setattr(bodies, "MARKS", 1000)
    sent = headers("ann") | {"content-type": "application/json"}
    found = told(app, "POST", "/v1/predict", sent, [opening * 400] * 9)
    assert found.status == 413
    assert found.read <= 3


@pytest.mark.parametrize(
    "kinds",
    [
        [f"{ARROW}+json"],
        ["application/json", "multipart/form-data; boundary=x"],
        ["application/json", ARROW],
        ["Multipart/Form-Data", ARROW, "application/x+json"],
        ["multipart/json"],
        [],
    ],
)
def test_json_is_weighed_whatever_it_is_called(app, monkeypatch, kinds: list[str]) -> None:
    """Of several kinds FastAPI hears the first."""
    monkeypatch.setattr(bodies, "MARKS", 1000)
    for path in ("/v1/predict", "/v2/models/ann/infer"):
        named = [("content-type", kind) for kind in kinds]
        found = told(app, "POST", path, [*headers("ann").items(), *named], [b"[" * 400] * 9)
        assert (found.status, found.read) == (413, 3)


def test_of_several_lengths_the_longest_is_meant(app) -> None:
    most = str(bodies.BODY_BYTES + 1)
    for lengths in (("5", most), (most, "5"), (most, "x"), (most, "²")):
        sent = [*headers("ann").items(), *(("content-length", one) for one in lengths)]
        found = told(app, "POST", "/v1/predict", sent, [b"x"])
        assert (found.status, found.read) == (413, 0), lengths


FLOOD = {f"field{number}": 0 for number in range(100_000)}
WRONG = [1] * 100_000
SHAPED = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/predict", {"inputs": [{"text": "a"}]} | FLOOD),
        ("/v1/predict", {"inputs": [{"text": "a"} | FLOOD]}),
        ("/v1/predict", {"inputs": [{"text": "a"}], "tasks": WRONG}),
        ("/v1/predict", {"inputs": WRONG}),
        ("/v1/explain", {"inputs": [{"text": "a"}]} | FLOOD),
        ("/v1/embeddings", {"model": "ann", "input": WRONG}),
        ("/v1/compositions", {"terms": WRONG}),
        ("/v1/making/recipe", {"terms": ["a"], "method": "ties"} | FLOOD),
        ("/v1/references", {"name": "a", "reference": "a", "options": FLOOD}),
        ("/v2/models/ann/infer", {"inputs": [SHAPED], "parameters": FLOOD}),
        ("/v2/models/ann/infer", {"inputs": [SHAPED | {"data": WRONG}]}),
        ("/v2/models/ann/infer", {"inputs": [SHAPED | {"data": [WRONG]}]}),
        ("/v2/models/ann/infer", {"inputs": [SHAPED | {"shape": WRONG}]}),
    ],
)
def test_what_is_wrong_a_hundred_thousand_times_is_said_in_short(app, path, body) -> None:
    """Each error by itself kept the process from everybody else for seconds."""
    with TestClient(app) as http:
        answer = http.post(path, json=body, headers=headers("ann"))
    assert answer.status_code == 422
    assert len(answer.content) < 2000


def test_a_name_of_megabytes_is_not_sent_back(app) -> None:
    long = {"/x" * 2_000_000: 1}
    shaped = {"inputs": [SHAPED | long]}
    with TestClient(app) as http:
        for path, body in (("/v1/predict", long), ("/v2/models/ann/infer", shaped)):
            answer = http.post(path, json=body, headers=headers("ann"))
            assert answer.status_code == 422
            assert len(answer.content) < 10_000


@pytest.mark.parametrize(
    "options",
    [
        *({name: 1e12} for name in ("steps", "batch", "workers", "cpus_per_worker")),
        *({name: 1e12} for name in ("gpus_per_worker", "zero_stage")),
        *({"seed": seed} for seed in (10**30, -(10**30))),
        *({name: "x"} for name in ("base", "learner", "templates", "classes", "request_id")),
        *({"learning_rate": rate} for rate in (0, -1, "NaN", "Infinity")),
    ],
)
def test_numbers_that_no_cluster_bears_and_fields_of_nobody_are_refused(app, options) -> None:
    with TestClient(app) as http:
        answer = Person(http, "ann").submit("news", options=json.dumps(options))
        assert (answer.status_code, answer.json()["error"]) == (422, "BadConfig")
        reference = {"name": "news", "reference": "x", "options": options}
        answer = Person(http, "ann").post("references", reference)
        assert (answer.status_code, answer.json()["error"]) == (422, "BadConfig")


def test_a_form_has_so_many_parts_and_so_large(app) -> None:
    """All but the first megabyte of a file would lie in memory."""
    part = b'--x\r\nContent-Disposition: form-data; name="more"%s\r\n\r\n%s\r\n'
    file = part % (b'; filename="a.csv"', b"x")
    for flood in ([file] * 100, [part % (b"", b"x")] * 1200, [part % (b"", b"x" * 100_000)]):
        found = told(app, "POST", "/v1/tasks", FORM | headers("ann"), [*flood, b"--x--\r\n"])
        assert found.status == 400


@pytest.mark.parametrize("charset", ["punycode", "unicode_escape", "utf-16"])
def test_a_form_is_read_as_nothing_but_utf_8(app, charset) -> None:
    """Else each kilobyte of a text could take a millisecond of everybody's."""
    text = b'--x\r\nContent-Disposition: form-data; name="task"\r\n\r\nnews\r\n--x--\r\n'
    kinds = {"content-type": f"{FORM['content-type']}; charset={charset}"}
    found = told(app, "POST", "/v1/predict/files", kinds | headers("ann"), [text])
    assert (found.status, b"UTF-8" in found.body) == (400, True)
    kinds = {"content-type": f'{FORM["content-type"]}; charset="UTF-8"'}
    found = told(app, "POST", "/v1/predict/files", kinds | headers("ann"), [text])
    assert b"UTF-8" not in found.body


# -- one user's share


def test_bodies_in_memory_are_each_ones_and_everybodys(app, monkeypatch) -> None:
    """Until they are answered. A data set lies on the disk, but for its first part."""
    monkeypatch.setattr(bodies, "IN_MEMORY", 3000)
    shares = app.state.shares
    shares.bodies = ConcurrencyLimiter("bytes", each=5000, all=8000)
    sent, form = headers("ann") | {"content-type": "application/json"}, FORM | headers("ann")
    assert told(app, "POST", "/v1/predict", sent, [b" " * 2000] * 2).status == 422
    assert told(app, "POST", "/v1/tasks", form, [b"x" * 2000] * 9).status == 400
    assert shares.bodies._held.total() == 0  # of those that were answered
    shares.bodies.take("ann", 3000)
    found = told(app, "POST", "/v1/predict", sent, [b" " * 1500] * 9)
    assert (found.status, found.read, found.headers["retry-after"]) == (429, 2, "1")
    shares.bodies.take("bob", 4000)
    other = headers("eve") | {"content-type": "application/json"}
    found = told(app, "POST", "/v1/predict", other, [b" " * 1500] * 9)
    assert (found.status, found.read, found.headers["retry-after"]) == (503, 1, "1")
    assert shares.bodies._held.total() == 7000


def test_a_flood_of_unknown_tokens_keeps_few_lookups_of_an_address(app, monkeypatch) -> None:
    service, here, most = app.state.service, 0, 0
    plain = service.ask
    assert told(app, "GET", "/v1/me", headers("ann"), []).status == 200

    async def slow(*arguments: object, **named: object) -> object:
        nonlocal here, most
        here += 1
        most = max(most, here)
        await asyncio.sleep(0.01)
        here -= 1
        return await plain(*arguments, **named)

    monkeypatch.setattr(service, "ask", slow)

    async def ask(who: str) -> int:
        answer: dict[str, Any] = {}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(message: dict[str, Any]) -> None:
            answer.update(message)

        scope = {"type": "http", "method": "GET", "path": "/v1/me", "query_string": b""}
        sent = [(k.encode(), v.encode()) for k, v in headers(who).items()]
        client = {"client": ("192.0.2.1", 9), "headers": sent}
        await app(scope | client, receive, send)
        return answer["status"]

    async def flood() -> tuple[list[int], list[int]]:
        strangers = asyncio.gather(*(ask(f"stranger{number}") for number in range(40)))
        await asyncio.sleep(0)
        known = [*await asyncio.gather(ask("ann"), ask("eve"))]  # at once, and in its turn
        return known, await strangers

    known, strangers = asyncio.run(flood())
    assert (known, set(strangers)) == ([200, 200], {401})
    assert most <= 5  # with the one that was known


def test_an_hour_has_so_many_bytes_for_each_user(app) -> None:
    app.state.shares.bytes.most = 10_000
    with TestClient(app, raise_server_exceptions=False) as http:
        ann, bob, root = (Person(http, name) for name in ("ann", "bob", "root"))
        answers = [ann.submit(f"news{number}") for number in range(20)]
        assert {answer.status_code for answer in answers} == {202, 429}
        assert answers[-1].json()["error"] == "TooMany"
        assert 0 < int(answers[-1].headers["retry-after"]) <= HOUR
        assert bob.submit("his").status_code == 202
        assert {root.submit(f"any{number}").status_code for number in range(20)} == {202}
    assert len(CSV) * 20 > 10_000


def test_an_hour_has_so_many_recipes_for_each_user(app) -> None:
    """Each is kept for ever: a user of the smallest role would fill the disk."""
    app.state.shares.terms.most = 3
    with TestClient(app) as http:
        ann, eve, root = (Person(http, name) for name in ("ann", "eve", "root"))
        ann.submit("news")
        ann.get("status")
        recipe = {"terms": ["+news"]}
        assert [eve.post("compositions", recipe).status_code for _ in range(2)] == [200, 200]
        assert eve.post("compositions/eve/update").status_code == 200
        for refused in (
            eve.post("compositions", {"terms": ["2*news"]}),
            eve.post("compositions/eve/update"),
            eve.post("making/recipe", recipe | {"method": "ties"}),
            eve.post("making/fit", data={"terms": ["news"], "shots": 1}, files={"file": CSV}),
            eve.post("making/adapt", data={"terms": ["news"]}, files={"file": CSV}),
        ):
            assert (refused.status_code, refused.json()["error"]) == (429, "TooMany")
            assert 0 < int(refused.headers["retry-after"]) <= HOUR
        assert ann.post("compositions", recipe).status_code == 200
        every = [root.post("compositions", recipe | {"user": "eve"}) for _ in range(4)]
        assert {one.status_code for one in every} == {200}


def test_a_user_has_so_many_requests_under_way(app) -> None:
    app.state.shares.requests = ConcurrencyLimiter("requests", each=2, all=100)
    with TestClient(app) as http, ExitStack() as held:
        for _ in range(2):
            held.enter_context(app.state.shares.requests.held("eve"))
        answer = http.get("/v1/tasks", headers=headers("eve"))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert http.get("/v1/tasks", headers=headers("ann")).status_code == 200


def test_listeners_that_come_at_once_are_no_more_than_there_are_places(app, monkeypatch) -> None:
    """Also while each of them waits for its first look, and when they left before anything came."""
    monkeypatch.setattr(events, "PERIOD", 0.01)
    plain = app.state.service.ask

    async def slow(*arguments: object, **named: object) -> object:
        await asyncio.sleep(0.05)
        return await plain(*arguments, **named)

    people = ["eve"] * 10 + ["ann"] * 2
    for who in set(people):  # whose tokens are known, and asked for all at once
        assert told(app, "GET", "/v1/me", headers(who), []).status == 200
    monkeypatch.setattr(app.state.service, "ask", slow)

    async def listen(who: str, gone: asyncio.Event) -> int:
        statuses = []

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            statuses.append(message.get("status"))

        scope = {"type": "http", "method": "GET", "path": "/v1/events", "query_string": b""}
        sent = [(k.encode(), v.encode()) for k, v in headers(who).items()]
        await app(scope | {"headers": sent}, receive, send)
        return statuses[0]

    async def all_at_once() -> list[int]:
        gone = asyncio.Event()
        asyncio.get_running_loop().call_later(0.5, gone.set)
        return await asyncio.gather(*(listen(who, gone) for who in people))

    for _ in range(2):  # the places of those who left are free again
        found = asyncio.run(all_at_once())
        assert sorted(found[:10]) == [200] * 8 + [429] * 2
        assert found[10:] == [200] * 2


def test_what_is_over_a_quota_is_refused_before_it_is_stored(app, monkeypatch) -> None:
    monkeypatch.setattr(shares, "QUEUED", 0)
    monkeypatch.setattr(app.state.service, "prepare", None)  # reads and stores data
    with TestClient(app) as http:
        answer = Person(http, "ann").submit("news")
        assert (answer.status_code, answer.json()["error"]) == (429, "TooMany")
        assert answer.headers["retry-after"] == "60"
        keyed, file = headers("ann") | {"idempotency-key": "any"}, {"file": ("x.csv", CSV)}
        rows = {"terms": ["news"], "shots": "1"}
        asked = {"tasks": {"name": "news"}, "making/fit": rows, "making/adapt": rows}
        for path, fields in asked.items():
            refused = http.post(f"/v1/{path}", data=fields, headers=keyed, files=file)
            assert refused.json()["error"] == "TooMany"
        assert Person(http, "ann").get("usage").json()[0]["queued_most"] == 0
        assert {one["user"] for one in Person(http, "root").get("usage").json()} == set(PEOPLE)


# -- pages of elsewhere, where no token is asked for


@pytest.mark.parametrize(
    ("host", "origins", "allowed"),
    [
        ("localhost:8300", [], True),
        ("127.0.0.1:8300", ["http://127.0.0.1:8300"], True),
        ("[::1]:8300", ["http://[::1]:8300"], True),
        ("127.0.0.1:8300", ["http://evil.example"], False),
        ("127.0.0.1:8300", ["http://127.0.0.1:9000"], False),  # another program's page
        ("127.0.0.1:8300", ["null"], False),
        ("127.0.0.1:8300", ["http://127.0.0.1:8300", "http://evil.example"], False),
        ("evil.example:8300", [], False),  # rebound to 127.0.0.1
        ("evil.example", ["http://evil.example"], False),
        ("127.0.0.1.evil.example", [], False),
        ("localhost@evil.example", [], False),
        ("[::1", [], False),
        ("", [], False),
    ],
)
def test_who_is_here(host: str, origins: list[str], allowed: bool) -> None:
    if allowed:
        return require_here(host, origins)
    with pytest.raises(NotAllowed):
        require_here(host, origins)


def test_pages_of_elsewhere_ask_nothing(tmp_path: Path) -> None:
    app, _ = scene(tmp_path / "home", open_to_all=True)
    for method, path, _ in [*operations(app), ("GET", "/v1/health", {}), ("GET", "/", {})]:
        for sent in ({"origin": "http://evil.example"}, {"host": "evil.example:8300"}):
            found = told(app, method, path, FORM | sent, [b"x"])
            assert (found.status, found.read) == (403, 0), (method, path)
    assert told(app, "GET", "/v1/status", {"origin": "http://localhost"}, []).status == 200


# -- one id


def test_an_id_that_the_proxy_gave_is_the_only_one(app) -> None:
    """Ray's proxy puts it into the request and adds it to the answer."""
    found = told(app, "GET", "/v1/tasks", headers("ann") | {"x-request-id": "given"}, [])
    assert "x-request-id" not in found.headers
    assert len(told(app, "GET", "/v1/tasks", headers("ann"), []).headers["x-request-id"]) == 32
