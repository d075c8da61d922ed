"""A home on a real Ray cluster: nothing of it can be reached from another machine, and when Ray
dies the cluster is started again."""

from __future__ import annotations

import os
import signal
import time

import grpc
import psutil
import pytest
from ray.core.generated.gcs_service_pb2 import CheckAliveRequest  # pyright: ignore
from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub

from cluster.domain.base import RequestContext
from cluster.runtime.connection import connect
from cluster.runtime.head import sessions
from cluster.runtime.near import coordinator_of
from cluster.serving.app import LOGGING, _listen_as_the_node
from cluster.storage.home import Home
from tests.integration.test_head import home, processes, until

__all__ = ["home"]


def listening(home: Home) -> set[str]:
    """The interfaces on which the processes of a home listen."""
    found = [psutil.Process(pid).net_connections("inet") for pid in processes(home)]
    ports = [port for ports in found for port in ports if port.status == psutil.CONN_LISTEN]
    assert len(ports) > 5
    return {port.laddr.ip.removeprefix("::ffff:") for port in ports}


class Replica:
    def __init__(self) -> None:
        _listen_as_the_node()

    def __call__(self) -> str:
        return "answered"


def serve() -> None:
    """A replica asked by another, as those of TACL are."""
    from ray import serve
    from ray.serve.config import HTTPOptions

    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=0), logging_config=LOGGING)
    handle = serve.run(serve.deployment(Replica).bind(), name="closed", route_prefix=None)
    assert handle.remote().result(timeout_s=60) == "answered"


@pytest.mark.ray
def test_a_cluster_is_closed_and_started_again_when_ray_dies(home: Home) -> None:
    head = home.running()
    assert head is not None
    commands = " ".join(processes(home).values())
    assert "gcs/gcs_server" in commands
    assert not any(one in commands for one in ("log_monitor.py", "autoscaler/_private/monitor.py"))
    assert f"--temp-dir={sessions()}" in commands
    assert sessions().parent.stat().st_mode & 0o077 == 0
    with grpc.insecure_channel(head.address) as channel, pytest.raises(grpc.RpcError) as refused:
        NodeInfoGcsServiceStub(channel).CheckAlive(CheckAliveRequest(), timeout=10)
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    (raylet,) = [pid for pid, command in processes(home).items() if "raylet/raylet " in command]
    os.kill(raylet, signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: (running := home.running()) and running.lost, "the loss is known", 10)
    known = time.monotonic() - killed
    until(lambda: (running := home.running()) and not running.lost, "it is started again")
    print(f"known after {known:.1f} s, up again after {time.monotonic() - killed:.1f} s")
    again = home.running()
    assert again is not None
    assert (again.pid, again.address == head.address) == (head.pid, False)
    assert coordinator_of(home).status(RequestContext()).tasks == ()
    connect(home)
    serve()
    assert listening(home) == {"127.0.0.1"}
