"""Which Ray clusters are joined: those that let in nobody without a token, unless told otherwise.

The cluster is a stand-in that answers the one call that is asked of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from ray.core.generated.gcs_service_pb2 import CheckAliveReply  # pyright: ignore
from ray.core.generated.gcs_service_pb2_grpc import (
    NodeInfoGcsServiceServicer,
    add_NodeInfoGcsServiceServicer_to_server,
)

from cluster.client.client import Client
from cluster.runtime.access import authenticate, use_token
from tacl.errors import BadConfig, ClusterNotRunning


class Gcs(NodeInfoGcsServiceServicer):
    def __init__(self, closed: bool) -> None:
        self._closed = closed

    def CheckAlive(self, request: object, context: grpc.ServicerContext) -> CheckAliveReply:
        shown = dict(context.invocation_metadata()).get("authorization")
        if self._closed and shown is None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing")
        return CheckAliveReply()


@contextmanager
def cluster(closed: bool) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    add_NodeInfoGcsServiceServicer_to_server(Gcs(closed), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture(autouse=True)
def nobodys_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # put back afterwards
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    yield
    authenticate("disabled")


def test_a_cluster_that_asks_for_no_token_is_joined_only_when_that_is_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t" * 32)  # to have one closes nothing
    with cluster(closed=False) as address:
        with pytest.raises(BadConfig, match=r"asks nobody for a token.*--insecure"):
            use_token(address, insecure=False)
        assert use_token(address, insecure=True) is False
    assert os.environ["RAY_AUTH_MODE"] == "disabled"


def test_a_closed_cluster_is_shown_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(closed=True) as address:
        with pytest.raises(BadConfig, match=r"there is none here.*auth_token"):
            use_token(address, insecure=False)
        (tmp_path / "token").write_text("t" * 32)
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
        assert use_token(address, insecure=False) is True
        assert use_token(address, insecure=True) is True  # allowed, and not needed
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_an_address_where_nothing_answers() -> None:
    with cluster(closed=True) as address:
        pass
    with pytest.raises(ClusterNotRunning, match="does not answer"):
        use_token(address, insecure=False)


def test_a_cluster_of_this_machine_is_never_insecure(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="--address"):
        Client(tmp_path / "home").up("embedded", insecure=True)
    assert not (tmp_path / "home").exists()
