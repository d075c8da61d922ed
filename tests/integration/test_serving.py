"""Ray Serve for real: the right answers while a predictor is killed and models and vectors move."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
import ray
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.config import RequestRouterConfig

from cluster.api.service import Question
from cluster.client.client import Client
from cluster.domain.compositions import Composition
from cluster.domain.operations import Answers, Ranked, candidates
from cluster.domain.tasks import VectorRef
from cluster.domain.work import Refreshed, RefreshWork, Result, Work
from cluster.learner.artifacts import Materials
from cluster.runtime import local_socket
from cluster.runtime.connection import NAMESPACE, connect, leave
from cluster.serving import routing
from cluster.serving.predictor import Predictor
from cluster.serving.router import AffinityRouter
from cluster.serving.starting import require_safe
from cluster.storage.home import EMBEDDED, Home
from jobs.benchmarks.load import VECTORS, LoadPlan, Oracle
from jobs.benchmarks.population import Population
from jobs.benchmarks.serving import Loads, free_port
from jobs.benchmarks.synthetic import populated
from tacl.errors import BadConfig, NotAuthenticated, NotPlaceable, Overloaded, TooLate
from tacl.vectors.vector import TaskVector
from tests.integration.test_head import pids, processes, start_head, until
from tests.support import tiny
from tests.support.fakes import calm, result_of

PATIENCE = 200.0  # seconds for a predictor to start on a busy machine


class Halver:
    """A learner whose refresh halves a vector: a version that nobody takes for the one before."""

    def __init__(self, home: str) -> None:
        self._home = Home.at(home)

    def work(self, work: Work) -> Result:
        if not isinstance(work, RefreshWork):
            return result_of(work, self._home.blobs(), calm)
        materials = Materials(self._home, work.base)
        old = materials.vector(work.vector).to_params()
        tau = {block: 0.5 * value for block, value in old.items()}
        vector = TaskVector.of_params(work.vector.task, work.base.digest, "linearized", tau)
        return Refreshed(
            accepted=True,
            reason="halved",
            vector_digest=vector.digest,
            vector_blob=materials.put(vector.save),
            config={},
            metrics={},
            curves={},
            norm=1.0,
        )


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    """A home with eight vectors."""
    home = tiny.home(tmp_path_factory.mktemp("served") / "home", EMBEDDED)
    settings = home.settings()
    assert settings is not None
    return populated(home, settings, tiny.pictures(8)[0], tasks=VECTORS)


@pytest.fixture(scope="module")
def client(population: Population) -> Iterator[Client]:
    """Its cluster."""
    home = population.home
    process = start_head(home, learner=f"{__name__}:Halver")
    try:
        until(lambda: home.running() or process.poll() is not None, "the head is ready", 120)
        assert home.running(), process.communicate()[0]
        yield Client(home.path)
    finally:
        leave(home)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=120)[0]
    assert process.returncode == 0, said
    until(lambda: not processes(home), f"nothing is left running: {processes(home)}", 60)


@pytest.fixture(scope="module")
def url(client: Client) -> Iterator[str]:
    """Where it is served; afterwards nothing is."""
    url = client.serve(port=free_port(), cpus=0.5, ingresses=2).url
    assert ready(url)["status"] == "ready"
    with pytest.raises(BadConfig, match="stop that first"):  # Serve would stay where it is
        client.serve(port=free_port(), cpus=0.5)
    yield url
    assert client.stop_serving()
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(f"{url}/v1/health")


def ready(url: str) -> dict[str, Any]:
    return httpx2.get(f"{url}/v1/ready").json()


class Named:
    """In the place of a predictor: it answers with its name and process."""

    async def answer(self, questions: list[Question]) -> tuple[str, int]:
        return serve.get_replica_context().replica_id.unique_id, os.getpid()


class Asker(threading.Thread):
    """Asks again and again over HTTP, and keeps when it asked and what it was told."""

    def __init__(self, url: str, token: str, user: str, pictures: list[bytes]) -> None:
        super().__init__()
        self.client, self.user, self.pictures = Client(url, token=token), user, pictures
        self.told: list[tuple[float, Answers]] = []
        self.failed: list[Exception] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            asked = time.monotonic()
            try:
                self.told.append((asked, self.client.query(self.user, self.pictures)))
            except Exception as error:
                self.failed.append(error)

    def was_told(self, digest: str) -> bool:
        return any(told.digest == digest for _, told in self.told)


class Moves:
    """What users' models were, and since when."""

    def __init__(self) -> None:
        self.models: dict[str, Composition] = {}
        self.since: dict[str, list[tuple[float, str]]] = {}

    def moved(self, model: Composition) -> str:
        self.models[model.digest] = model
        self.since.setdefault(model.user, []).append((time.monotonic(), model.digest))
        return model.digest

    def require(self, user: str, asked: float, digest: str) -> None:
        """An answer is of the model at the time of the question, or of one that came after."""
        known = [number for number, (at, _) in enumerate(self.since[user]) if at <= asked]
        assert digest in {digest for _, digest in self.since[user][known[-1] :]}


def _require_page_alone_for_strangers(url: str) -> None:
    stranger = httpx2.get(f"{url}/v1/status")
    assert stranger.status_code == 401
    assert stranger.headers.get_list("x-request-id") == [stranger.json()["request_id"]]
    assert "text/html" in httpx2.get(url).headers["content-type"]


@pytest.mark.ray
def test_every_answer_is_that_of_the_model_it_names(client: Client, url: str) -> None:
    """While a predictor dies, a vector is published, aliases move and users compose anew."""
    pictures, _ = tiny.pictures(2, task=1)
    moves = Moves()
    moves.moved(client.compose("ann", ["+t0"]))
    moves.moved(client.compose("bob", ["0.5*t1"]))
    tokens = {user: client.issue_token(user).token or "" for user in ("ann", "bob")}
    _require_page_alone_for_strangers(url)
    askers = [Asker(url, token, user, pictures) for user, token in tokens.items()]
    ann, bob = askers
    for asker in askers:
        asker.start()
    try:
        until(lambda: ann.told and bob.told, "both are answered", PATIENCE)
        (old,) = pids(client.home, "ServeReplica:tacl:predictor")
        client.refresh("t0")
        os.kill(old, signal.SIGKILL)
        until(lambda: not ready(url)["predictors"], "its death is seen", PATIENCE)
        until(lambda: ready(url)["status"] == "ready", "another one answers", PATIENCE)
        until(lambda: client.task("t0").version == 2, "a second version is there", PATIENCE)
        anns = moves.moved(client.update_composition("ann"))
        bobs = moves.moved(client.compose("bob", ["-0.5*t0", "t1"]))
        until(lambda: ann.was_told(anns) and bob.was_told(bobs), "both moved", PATIENCE)
        client.move_alias("t0", "champion", 1)
        bobs = moves.moved(client.update_composition("bob"))
        anns = moves.moved(client.compose("ann", ["t0@v2", "-t1"]))
        until(lambda: ann.was_told(anns) and bob.was_told(bobs), "and again", PATIENCE)
        assert old not in pids(client.home, "ServeReplica:tacl:predictor")
    finally:
        for asker in askers:
            asker.done.set()
        for asker in askers:
            asker.join()
    assert len(moves.models) == 6
    predictor = Predictor(client.home.where)
    expected = {
        m.digest: predictor.ask(Question(m, pictures)).answers for m in moves.models.values()
    }
    for asker in askers:
        # While no predictor is there, it is said that there was no answer: never another's.
        assert all(isinstance(error, Overloaded | TooLate) for error in asker.failed), asker.failed
        for asked, told in asker.told:
            assert told.user == asker.user
            moves.require(asker.user, asked, told.digest)
            _require_close(told.answers, expected[told.digest])
    together = client.compose("bob", ["t0", "0.5*t1"])
    unnamed, named = (bob.client.query("bob", pictures, tasks) for tasks in (None, ["t0", "t1"]))
    assert unnamed.digest == together.digest
    for first, everywhere, within in zip(unnamed.best, unnamed.answers, named.answers, strict=True):
        weights = {task: sum(share for _, share in ranked) for task, ranked in everywhere.items()}
        assert sum(weights.values()) == pytest.approx(1, abs=1e-4)
        assert first == candidates(everywhere)[0]
        label, share = within[first.task][0]
        assert first.label == label
        assert first.probability == pytest.approx(weights[first.task] * share, rel=1e-3)
    _require_figures(client, url)
    client.revoke_tokens("bob")
    with pytest.raises(NotAuthenticated):
        bob.client.query("bob", pictures)


def _require_figures(client: Client, url: str) -> None:
    """Every process has told its figures, and what it did."""
    token = client.issue_token("root", "admin").token
    told = httpx2.get(f"{url}/v1/metrics", headers={"authorization": f"Bearer {token}"}).text
    assert "\ntacl_predictors 1.0\n" in told
    assert "tacl_predict_questions_total{predictor=" in told
    assert "tacl_registry_writes_total" in told
    logs = {path.stem: path.read_text() for path in client.home.logs.glob("*.log")}
    for name, message in {
        "cluster": "ready", "coordinator": "placed", "learners": "ended", "serving": "answered"
    }.items():  # fmt: skip
        assert f'"message": "{message}"' in logs[name], name


@pytest.mark.ray
def test_a_query_waits_for_no_coordinator(client: Client, url: str) -> None:
    """One that is stopped answers nothing, one that is killed is not there."""
    pictures, _ = tiny.pictures(1, task=1)
    digest = client.compose("cid", ["+t2"]).digest
    over_http = Client(url, token=client.issue_token("cid").token)
    until(lambda: over_http.query("cid", pictures).digest == digest, "it is answered", PATIENCE)
    (old,) = pids(client.home, "WatchedCoordinator") or pids(client.home, "coordinator")
    os.kill(old, signal.SIGSTOP)
    try:
        assert over_http.query("cid", pictures).digest == digest
        assert over_http.composition("cid").digest == digest
    finally:
        os.kill(old, signal.SIGKILL)
    assert over_http.query("cid", pictures).digest == digest
    changed = client.compose("cid", ["+t3"]).digest
    assert over_http.query("cid", pictures).digest == changed != digest


@pytest.mark.ray
def test_no_user_is_given_the_answer_of_another(
    client: Client, url: str, population: Population
) -> None:
    """`tacl bench serve --soak`, in short."""
    said: list[str] = []
    oracle = Oracle(population, tiny.pictures(16, task=1)[0])
    assert oracle.mistakable(40) == 0
    loads = Loads(client, url, oracle, said.append)
    found = loads.load(40, LoadPlan(400, at_once=16, pictures=2, kills=1))
    assert found.answers == 2 * 400
    assert found.killed == {"predictor": 1}
    assert found.wrong == 0, said
    assert found.longest > 1  # somebody waited for the new predictor


def _ingresses(url: str, token: str) -> set[str]:
    """Which of them have told that they answered something."""
    told = httpx2.get(f"{url}/v1/metrics", headers={"authorization": f"Bearer {token}"}).text
    return set(re.findall(r'tacl_http_requests_total\{ingress="(\w+)"', told))


@pytest.mark.ray
def test_one_ingress_of_two_answers_while_the_other_is_lost(client: Client, url: str) -> None:
    token, seen = client.issue_token("root", "admin").token or "", set[str]()
    until(lambda: seen.update(_ingresses(url, token)) or len(seen) == 2, "both answer", PATIENCE)
    one, other = pids(client.home, "ServeReplica:tacl:ingress")
    os.kill(one, signal.SIGKILL)
    answers: list[int] = []
    while one in (there := pids(client.home, "ServeReplica:tacl:ingress")) or len(there) < 2:
        answers.append(httpx2.get(f"{url}/v1/health").status_code)
        assert len(answers) < 10_000
    assert answers.count(200) > 10
    assert answers.count(200) >= len(answers) - 3  # of what is on its way to the lost one
    assert other in pids(client.home, "ServeReplica:tacl:ingress")


@pytest.mark.ray
def test_the_command_line_asks_the_predictors_of_the_server(client: Client, url: str) -> None:
    """It needs no second copy of the base."""
    task = client.status().tasks[0].name
    client.compose("shell", [f"+{task}"])
    # The ingress that listened may have been lost.
    until(
        lambda: local_socket.answers(client.home.path, local_socket.PREDICTORS),
        "one listens",
        PATIENCE,
    )
    (answer,) = client.query("shell", tiny.pictures(1)[0]).answers
    assert answer.keys() == {task}
    connect(client.home)
    with pytest.raises(ValueError, match="predictor"):
        ray.get_actor("predictor", NAMESPACE)


@pytest.mark.ray
def test_questions_go_to_the_predictor_that_keeps_their_model(client: Client, url: str) -> None:
    """And to the other one when that is killed."""
    connect(client.home)
    routed = RequestRouterConfig(request_router_class=cast("Any", AffinityRouter))
    named = serve.deployment(Named, name="named").options(
        num_replicas=2, request_router_config=routed, ray_actor_options={"num_cpus": 0}
    )
    handle = serve.run(named.bind(), name="named", route_prefix=None)
    models = [tiny.composition((float(n), vector(f"v{n}"))) for n in range(12)]

    def told(model: Composition) -> tuple[str, int]:
        return handle.answer.remote([Question(model, ["x"])]).result()

    try:
        told(models[0])  # it is known who runs
        first = [told(model) for model in models * 2]
        names = tuple(sorted({name for name, _ in first}))
        assert len(names) == 2
        assert [name for name, _ in first] == [routing.keeper(model, names) for model in models * 2]
        os.kill(first[0][1], signal.SIGKILL)
        lost = []
        for model in models:
            try:
                name, _ = told(model)
                assert name != first[0][0]
            except RayActorError:
                lost.append(model)
        assert len(lost) <= 1
    finally:
        serve.delete("named")


def vector(digest: str) -> VectorRef:
    return VectorRef(task=digest, version=1, digest=digest, blob="", head_blob="", run_id="")


def _require_close(found: Sequence[Ranked], expected: Sequence[Ranked]) -> None:
    for one, other in zip(found, expected, strict=True):
        for task, ranked in other.items():
            assert dict(one[task]) == {name: pytest.approx(p, abs=1e-5) for name, p in ranked}


@pytest.mark.ray
@pytest.mark.parametrize(
    "name",
    [
        *(b"x-request-id", b"x-request-disconnect-disabled", b"x-request-timeout-seconds"),
        *(b"serve_multiplexed_model_id", b"serve-multiplexed-model-id", b"x-session-id"),
    ],
)
def test_no_header_of_a_stranger_breaks_the_proxy(url: str, name: bytes) -> None:
    """It reads some as text, whatever they are."""
    assert httpx2.get(f"{url}/v1/health", headers=[(name, b"\xff")]).status_code == 200


def test_open_to_all_only_on_loopback() -> None:
    require_safe("127.0.0.1", True)
    require_safe("0.0.0.0", False)
    for host in ("0.0.0.0", "10.0.0.1", "example.org", "::"):
        with pytest.raises(BadConfig, match="tacl users issue"):
            require_safe(host, True)


@pytest.mark.ray
def test_what_serving_holds_is_no_runs_room(client: Client, url: str, tmp_path: Path) -> None:
    """Of the node's CPUs, which Ray counts and its actors take."""
    data = tiny.folder_of(tmp_path / "data", 40, task=1)
    with pytest.raises(NotPlaceable, match=r"of which serving holds [1-9]\d* CPU"):
        client.submit("wide", data, cpus_per_worker=64)
