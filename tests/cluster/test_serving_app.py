"""Ray Serve for real: the right answers while a predictor is killed and models move."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cluster.client import Client
from cluster.remote import leave
from cluster.serving import Predictor
from cluster.serving_app import require_safe
from jobs.bench.serving import populated
from tacl.errors import BadConfig, Overloaded, TooLate
from tests import tiny
from tests.cluster.test_head import pids, processes, start_head, until

PATIENCE = 200.0  # seconds for a predictor to start on a busy machine


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A cluster with two vectors."""
    home = tiny.home(tmp_path / "home")
    settings = home.settings()
    assert settings is not None
    populated(home, settings, tiny.pictures(8)[0], tasks=2)
    process = start_head(home)
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


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Asker(threading.Thread):
    """Asks again and again over HTTP, and keeps what it was told."""

    def __init__(self, url: str, token: str, user: str, pictures: list[bytes]) -> None:
        super().__init__()
        self.client, self.user, self.pictures = Client(url, token=token), user, pictures
        self.told: list[dict[str, Any]] = []
        self.failed: list[Exception] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            try:
                self.told.append(self.client.query(self.user, self.pictures))
            except Exception as error:
                self.failed.append(error)


@pytest.mark.slow
def test_every_answer_is_that_of_the_model_it_names(client: Client) -> None:
    pictures, _ = tiny.pictures(2, task=1)
    recipes = {"ann": [["+t0"], ["+t0", "-t1"]], "bob": [["0.5*t1"], ["-0.5*t0"]]}
    predictor, expected = Predictor(client.home.where), {}
    for user, versions in recipes.items():
        for terms in reversed(versions):
            model = client.compose(user, terms)
            expected[model.digest] = predictor.predict(model, pictures)
    url = client.serve(port=free_port(), cpus=0.5)["url"]
    tokens = {user: client.issue_token(user)["token"] for user in recipes}
    assert httpx2.get(f"{url}/v1/ready").json() == {"status": "ready"}
    assert httpx2.get(f"{url}/v1/status").status_code == 401
    assert "text/html" in httpx2.get(url).headers["content-type"]
    askers = [Asker(url, token, user, pictures) for user, token in tokens.items()]
    for asker in askers:
        asker.start()
    try:
        until(lambda: all(asker.told for asker in askers), "both are answered", PATIENCE)
        (old,) = pids(client.home, "ServeReplica:tacl:predictor")
        os.kill(old, signal.SIGKILL)
        client.compose("ann", recipes["ann"][1])
        client.compose("bob", recipes["bob"][1])
        until(lambda: all(_digests(asker) == 2 for asker in askers), "both models moved", PATIENCE)
        assert old not in pids(client.home, "ServeReplica:tacl:predictor")
    finally:
        for asker in askers:
            asker.done.set()
        for asker in askers:
            asker.join()
    for asker in askers:
        # While no predictor is there, it is said that there was no answer: never another's.
        assert all(isinstance(error, Overloaded | TooLate) for error in asker.failed), asker.failed
        for told in asker.told:
            assert told["user"] == asker.user
            _require_close(told["answers"], expected[told["digest"]])
    client.stop_serving()
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(f"{url}/v1/health")


def _digests(asker: Asker) -> int:
    return len({told["digest"] for told in asker.told})


def _require_close(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        for task, ranked in other.items():
            assert dict(one[task]) == {name: pytest.approx(p, abs=1e-5) for name, p in ranked}


def test_open_to_all_only_on_loopback() -> None:
    require_safe("127.0.0.1", True)
    require_safe("0.0.0.0", False)
    for host in ("0.0.0.0", "10.0.0.1", "example.org", "::"):
        with pytest.raises(BadConfig, match="tacl users issue"):
            require_safe(host, True)
