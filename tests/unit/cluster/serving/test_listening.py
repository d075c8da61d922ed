"""Where the replicas of Serve listen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import ray

from cluster.serving import app, predictor


@pytest.mark.parametrize(
    "start",
    [
        lambda: app.Predictors("/nowhere", 1),
        lambda: app.Ingress("/nowhere", cast(Any, None), 1, False),
    ],
    ids=["predictor", "ingress"],
)
def test_a_replica_opens_its_port_on_loopback_where_its_node_is(
    start: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(predictor, "Predictor", lambda home, memory, predictors: None)
    monkeypatch.setattr(app, "log_to", lambda *where: None)
    monkeypatch.setattr(app, "add_port_to_grpc_server", lambda _, at: opened.append(at))
    monkeypatch.setattr(app.replica, "add_port_to_grpc_server", lambda _, at: opened.append(at))

    async def story() -> None:
        for address in ("10.1.2.3", "127.0.0.1"):
            monkeypatch.setattr(ray.util, "get_node_ip_address", lambda a=address: a)
            start()
            app.replica.add_port_to_grpc_server(cast(Any, None), "[::]:0")

    asyncio.run(story())
    assert opened == ["[::]:0", "127.0.0.1:0"]
