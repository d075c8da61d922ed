"""The client over HTTP: the same methods and the same errors as beside the cluster."""

from __future__ import annotations

import errno
import inspect
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from ray.serve._private import proxy
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster.client import http as http_client
from cluster.client.client import Client
from cluster.client.http import UPLOAD_SECONDS, Server
from cluster.domain.base import RequestContext
from cluster.domain.operations import Belonging, Candidate
from cluster.domain.receipts import RetriedTask
from cluster.reading import reads
from cluster.serving import preparing
from tacl.errors import (
    AliasMoved,
    BadConfig,
    BadRecipe,
    BadSample,
    ClusterNotRunning,
    DataNotFound,
    NameTaken,
    NoComposition,
    NotAllowed,
    NotAuthenticated,
    StorageUnavailable,
    UnknownTask,
    UnknownUser,
)
from tests.support.api_scene import scene


@pytest.fixture
def http(tmp_path: Path) -> Iterator[TestClient]:
    app, _ = scene(tmp_path / "home", ann="submitter", eve="user", root="admin")
    with TestClient(app, raise_server_exceptions=False) as found:
        yield found


def client(http: TestClient, name: str) -> Client:
    return Client(server=Server("http://test", f"token of {name}", http))


@pytest.fixture
def ann(http: TestClient) -> Client:
    return client(http, "ann")


def test_the_whole_way(ann: Client, data: Path) -> None:
    submitted = ann.submit("news", data, penalty="none", refresh="never")
    assert (submitted.task, submitted.state) == ("news", "queued")
    ann.submit("ann.trec", data, again=True, private=True, request_id="once")
    assert (
        ann.submit("ann.trec", data, again=True, private=True, request_id="once").task == "ann.trec"
    )
    status = ann.wait(poll=0)
    assert [(t.name, t.owner, t.state) for t in status.tasks] == [
        ("news", "ann", "ready"),
        ("ann.trec", "ann", "ready"),
    ]
    assert status.tasks[0].options.penalty == "none"
    assert ann.task("news").name == "news"
    assert [task.name for task in ann.status("ann.trec", "news").tasks] == ["news", "ann.trec"]
    assert ann.wait("ann.trec", poll=0).tasks == ann.status("ann.trec").tasks
    with pytest.raises(UnknownTask):
        ann.status("news", "other")
    assert [v.version for v in ann.vectors("news")] == [1]
    assert ann.move_alias("news", "best", 1).version == 1
    assert ann.aliases("news").aliases == {"champion": 1, "best": 1}
    assert ann.interference().missing == 0
    assert [one.on for one in ann.interference_of("news").does] == ["ann.trec", "generic"]
    model = ann.compose("ann", ["+news", "-0.5*ann.trec"])
    assert [term.coefficient for term in model.terms] == [-0.5, 1.0]
    assert ann.composition("ann") == ann.update_composition("ann") == model
    assert ann.evaluate("ann").absolute == 0.88
    assert len(ann.accuracy_history("ann").rows) == 1
    for ask in (ann.query, ann.explain):
        with pytest.raises(BadSample, match="a list"):
            ask("ann", "what is this?")
    for ask in (ann.compose, lambda user, text: ann.query(user, ["what is this?"], text)):
        with pytest.raises(BadConfig, match=r"are a list.*say \['\+news'\]"):
            ask("ann", "+news")
    asked = ann.query("ann", ["what is this?"])
    assert asked.best == (Candidate(task="news", label="a", probability=0.75),)
    assert asked.belonging == (Belonging(probability=0.5, none=True),)
    assert asked.answers == ({"news": [("a", 0.75), ("b", 0.25)]},)
    explained = ann.explain("ann", ["what is this?"], "news")
    assert explained.digest == asked.digest
    assert explained.explanations[0].best.task == "news"
    assert ann.evaluate("ann", without=True).without["+news@v1"]["news"] == 0.5
    answer = ann.query("ann", ["what is this?"], ["news"])
    assert answer.best == answer.belonging == ()
    assert answer.digest == model.digest
    assert answer.answers == ({"news": [("a", 0.75), ("b", 0.25)]},)
    assert ann.users()[0].user == "ann"
    assert ann.logs("news")
    assert ann.retry("news") == RetriedTask(task="news", retried=())
    assert ann.cancel("news").cancelled == ()
    assert ann.cluster().cpus == status.room.cpus


def test_events_come_to_their_end_page_by_page(
    ann: Client, http: TestClient, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann.submit("news", data)
    coordinator = cast(FastAPI, http.app).state.service.coordinator
    whole = coordinator.logs(RequestContext(), "news")
    monkeypatch.setattr(reads, "PAGE", 2)
    assert len(coordinator.logs(RequestContext(), "news")) == 2 < len(whole)
    assert ann.logs("news") == whole


def test_columns_and_classes_are_named(ann: Client, http: TestClient) -> None:
    rows = {"said": [f"words {i}" for i in range(40)], "kind": [0, 1] * 20, "by": ["c"] * 40}
    named: dict[str, Any] = {"input_column": "said", "label_column": "kind"}
    ann.submit("news", rows, **named, classes=["ham", "spam and more"])
    app = cast(FastAPI, http.app)
    found = app.state.service.coordinator.task(RequestContext(), "news").submission
    assert found.classes == ("ham", "spam and more")
    for wrong in (["ham", "a,b"], ["ham", " b"], ["", "b"], []):
        with pytest.raises(BadConfig, match="over HTTP a name is not empty, holds no comma"):
            ann.submit("other", rows, **named, classes=wrong)


def test_errors_are_those_of_the_server(ann: Client, http: TestClient, data: Path) -> None:
    ann.submit("news", data)
    ann.wait(poll=0)
    with pytest.raises(NameTaken, match="news"):
        ann.submit("news", data)
    with pytest.raises(UnknownTask, match="no task is named x; there is news"):
        ann.task("x")
    with pytest.raises(NoComposition):
        ann.query("ann", ["what?"])
    with pytest.raises(BadRecipe):
        ann.compose("ann", ["0*news"])
    with pytest.raises(UnknownUser):
        ann.composition("eve")
    with pytest.raises(AliasMoved):
        ann.move_alias("news", "champion", 1, expected=7)
    with pytest.raises(BadSample):
        ann.query("ann", [" "])
    with pytest.raises(NotAllowed, match="role submitter"):
        client(http, "eve").submit("other", data)
    with pytest.raises(NotAuthenticated):
        client(http, "mallory").status()


def test_what_cannot_be_sent_is_said(ann: Client, http: TestClient, data: Path) -> None:
    other = "caf\udce9"  # Latin-1, as a file has it
    for ask in (
        lambda: ann.submit("digits", data.rename(data.with_stem(other))),
        lambda: ann.compose("ann", [f"+{other}"]),
        lambda: client(http, "root").issue_token("bob", days=float("inf")),
    ):
        with pytest.raises(BadConfig, match="what is asked cannot be sent"):
            ask()
    with pytest.raises(BadConfig, match=r"path\.name: String should match"):
        ann.task(other)
    for ask in (ann.task, ann.composition, ann.cancel, ann.evaluate):
        with pytest.raises(BadConfig, match="a name that is asked about is empty"):
            ask("")


def test_what_belongs_to_the_machine_of_the_home_is_refused(ann: Client, data: Path) -> None:
    with pytest.raises(NotAllowed, match="refresh is not there over HTTP"):
        ann.refresh("news")
    with pytest.raises(BadConfig, match="owner: not over HTTP"):
        ann.submit("news", data, owner="bob")
    with pytest.raises(BadConfig, match="read, agree: not over HTTP"):
        ann.submit("news", data, read=print, agree=print)
    with pytest.raises(DataNotFound, match="uploaded"):
        ann.submit("news", "no/such/file.csv")
    with pytest.raises(NotAllowed, match="export reads the files of a home"):
        ann.export("ann", data.parent / "out")
    with pytest.raises(NotAllowed, match="import reads the files of a home"):
        ann.import_checkpoint("other", data, data)
    for ask in (ann.down, ann.up, ann.serve, ann.stop_serving):
        with pytest.raises(NotAllowed, match="where the home is"):
            ask()
    with pytest.raises(NotAllowed, match="add_samples"):
        ann.add_samples("news", data)


def test_an_alias_moves_from_wherever_it_is_and_once(
    ann: Client, http: TestClient, data: Path
) -> None:
    ann.submit("news", data)
    ann.wait(poll=0)
    moved = ann.move_alias("news", "best", 1, request_id="schon früher")
    assert ann.move_alias("news", "best", 1, request_id="schon früher") == moved
    assert len([move for move in ann.aliases("news").history if move.name == "best"]) == 1
    plain = "night:27/11@10" + "." * 86  # as long as a key may be
    moved = ann.move_alias("news", "top", 1, request_id=plain)
    said = {"authorization": "Bearer token of ann", "idempotency-key": plain}
    body = {"version": 1, "expected": "any"}
    again = http.put("/v1/tasks/news/aliases/top", headers=said, json=body)
    assert (again.status_code, again.json()) == (200, moved.model_dump(mode="json"))
    assert len([move for move in ann.aliases("news").history if move.name == "top"]) == 1


def test_a_token_that_never_ends(http: TestClient) -> None:
    root = client(http, "root")
    assert root.issue_token("bob", "user", days=None).expires is None
    assert root.issue_token("bob", "user").expires is not None


def test_an_upload_waits_as_long_as_a_server_may_read(
    ann: Client, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, waited = ann._server, list[object]()
    assert server is not None
    call = server.call

    def timed(verb: str, path: str, *given: Any, **content: Any) -> object:
        waited.append(content.get("timeout"))
        return call(verb, path, *given, **content)

    monkeypatch.setattr(server, "call", timed)
    ann.submit("news", data)
    assert waited[-1] == UPLOAD_SECONDS > 2 * preparing.SECONDS


SAID = {404: "Path '/v1/status' not found. Ping http://.../-/routes for available routes."}  # Ray's


def test_the_proxy_of_serve_says_so() -> None:
    advice = SAID[404].partition(". ")[2]
    assert http_client.ROUTES in advice
    assert advice in inspect.getsource(proxy)


Fault = tuple[int | Exception, bool]  # (status or the client's error, whether it was done)
GONE = httpx2.RemoteProtocolError("Server disconnected without sending a response.")
CUT = httpx2.ReadError("[Errno 104] Connection reset by peer")
REFUSED = httpx2.ConnectError("[Errno 111] Connection refused")


class Losing:
    """The app behind a proxy that loses it, or that is lost itself: before it did what was asked,
    or before it could say so."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.faults: list[Fault] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self.faults:
            return await self.app(scope, receive, send)
        status, done = self.faults.pop(0)
        if done:
            await self.app(scope, receive, self._unheard)
        if isinstance(status, Exception):
            raise status
        headers = {"retry-after": "0"} if status == 503 else {}
        await PlainTextResponse(SAID.get(status, "lost"), status, headers)(scope, receive, send)

    async def _unheard(self, message: Message) -> None: ...


@pytest.mark.parametrize(
    "faults",
    [
        [(503, False)],
        [(404, False)],
        [(500, True)],
        [(503, False), (404, False), (500, True)] * 2,
        [(CUT, False), (GONE, True), (REFUSED, False)],
        [(500, True), (REFUSED, False)],
    ],
)
def test_what_was_not_answered_is_asked_again_and_done_once(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, faults: list[Fault]
) -> None:
    monkeypatch.setattr(http_client, "PAUSE", 0.0)
    app, _ = scene(tmp_path / "home", ann="submitter")
    losing = Losing(app)
    with TestClient(losing) as http:
        ann = client(http, "ann")
        losing.faults = [*faults]
        assert ann.submit("news", data).state == "queued"
        ann.wait(poll=0)
        losing.faults = [*faults]
        ann.compose("ann", ["news"])
        losing.faults = [*faults]
        assert ann.query("ann", ["what is it?"]).answers
        assert not losing.faults
        assert [one.version for one in ann.vectors("news")] == [1]
        monkeypatch.setattr(http_client, "RETRY_SECONDS", 0.0)
        losing.faults = [(500, False)]
        with pytest.raises(ClusterNotRunning, match="an answer 500 that is not of TACL"):
            ann.status()
        losing.faults = [(CUT, False)]
        with pytest.raises(ClusterNotRunning, match="does not answer: .* reset by peer"):
            ann.status()


def test_a_connection_that_was_lost_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "PAUSE", 0.0)

    def answer(server: socket.socket) -> None:
        for said in (b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]"):
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        (thread := Thread(target=answer, args=[server])).start()
        assert list(Client(f"http://127.0.0.1:{server.getsockname()[1]}", token="t").users()) == []
        thread.join()


def test_a_file_is_not_sent_again_at_once_to_a_full_disk(
    ann: Client, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time would count among the bytes that a user may send within an hour."""
    sent = list[object]()

    def full(file: object, *_: object) -> None:
        sent.append(file)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(http_client, "RETRY_SECONDS", 1.0)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(StorageUnavailable, match="no room"):
        ann.submit("news", data)
    assert len(sent) == 1


def test_what_is_not_there_on_another_server_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = scene(tmp_path / "home", ann="submitter")
    losing = Losing(app)
    with TestClient(losing) as http:
        monkeypatch.setitem(SAID, 404, "Not Found")
        losing.faults = [(404, False)]
        monkeypatch.setattr(http_client.time, "sleep", None)
        with pytest.raises(ClusterNotRunning, match="an answer 404 that is not of TACL"):
            client(http, "ann").status()


@pytest.mark.parametrize("answer", ["<html>Sign in</html>", '{"status": "ok"}', '"\udce9"'])
def test_whoever_else_answers_is_no_server_of_tacl(answer: str) -> None:
    page = PlainTextResponse(answer.encode(errors="surrogatepass"))
    asker = client(TestClient(page), "ann")
    with pytest.raises(ClusterNotRunning, match="http://test gave an answer 200 that is not"):
        asker.status()
    with pytest.raises(ClusterNotRunning, match="see which server has this address"):
        asker.query("ann", ["what?"])
    with pytest.raises(ClusterNotRunning, match="see which server has this address"):
        Server("http://test", http=TestClient(page)).predict("ann", ["what?"], None)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            JSONResponse({"error": {"code": 3}, "message": "x"}, 418),
            "http://test gave an answer 418",
        ),
        (
            JSONResponse({"error": "BadConfig", "message": None}, 422),
            "http://test gave an answer 422",
        ),
        (PlainTextResponse("<html>", 404), "gave an answer 404 .*see which server"),
        (
            RedirectResponse("http://other/v1", 301),
            "301 .* points to http://other/v1; .*its address",
        ),
    ],
)
def test_whoever_else_refuses_is_no_server_of_tacl(answer: Response, said: str) -> None:
    asker = client(TestClient(answer, follow_redirects=False), "ann")
    with pytest.raises(ClusterNotRunning, match=said):
        asker.status()


def test_a_path_that_is_too_long_cannot_be_sent(ann: Client) -> None:
    with pytest.raises(BadConfig, match="what is asked cannot be sent: .*too long"):
        ann.task("x" * 70_000)


class Slowly:
    """Answers 503 once, after a minute, and names a pause of no second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now, self.asked, self.slept = 0.0, 0, list[float]()
        clock = SimpleNamespace(monotonic=lambda: self._now, sleep=self.slept.append)
        monkeypatch.setattr(http_client, "time", clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        self._now += 60.0 if self.asked == 1 else 0.0
        first = PlainTextResponse("busy", 503, {"retry-after": "0"})
        await (first if self.asked == 1 else JSONResponse([]))(scope, receive, send)


def test_what_failed_late_is_asked_again_and_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slowly(monkeypatch)
    assert list(client(TestClient(slow), "ann").users()) == []
    assert slow.asked == 2
    assert slow.slept == [http_client.PAUSE]


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client.time, "sleep", None)  # nobody waits for who was not there
    with pytest.raises(ClusterNotRunning, match="does not answer"):
        Client("http://127.0.0.1:9").status()


def test_what_is_no_address() -> None:
    with pytest.raises(BadConfig, match="localhost:83oo is no address of a server: Invalid port"):
        Client("http://localhost:83oo")


def test_a_token_as_a_file_has_it(http: TestClient) -> None:
    asker = Client(server=Server("http://test", "token of ann\n", http))
    assert asker.status().tasks == ()
    for wrong in ("token\nof ann", "…"):
        with pytest.raises(BadConfig, match="the token has letters that none of TACL has"):
            Server("http://test", wrong, http)
