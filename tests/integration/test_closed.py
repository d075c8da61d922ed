"""A home on a real Ray cluster: nothing of it can be reached from another machine, and when Ray
dies the cluster is started again."""

from __future__ import annotations

import os
import signal
import time

import pytest

from cluster.domain.base import RequestContext
from cluster.runtime.connection import connect
from cluster.runtime.home_coordinator import coordinator_of
from cluster.serving.app import LOGGING, _listen_as_the_node
from cluster.storage.home import Home
from tests.integration.test_head import home, listening, processes, require_closed, until

__all__ = ["home"]


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
@pytest.mark.nightly
def test_a_cluster_is_closed_and_started_again_when_ray_dies(home: Home) -> None:
    require_closed(home)
    head = home.running()
    assert head is not None
    (raylet,) = [pid for pid, command in processes(home).items() if "raylet/raylet " in command]
    os.kill(raylet, signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: (running := home.running()) and running.lost, "the loss is known", 10)
    known = time.monotonic() - killed
    until(lambda: (running := home.running()) and not running.lost, "it is started again", 180)
    print(f"known after {known:.1f} s, up again after {time.monotonic() - killed:.1f} s")
    again = home.running()
    assert again is not None
    assert (again.pid, again.address == head.address) == (head.pid, False)
    assert coordinator_of(home).status(RequestContext()).tasks == ()
    connect(home)
    serve()
    assert listening(home) == {"127.0.0.1"}
