"""The cost of Ray Serve itself: a deployment that does no work, and answers with as many
probabilities as ours does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ray import serve
from ray.serve.config import HTTPOptions
from starlette.requests import Request
from starlette.responses import JSONResponse

from cluster.serving.app import LOGGING

HOST = "127.0.0.1"
MODEL = "echo"  # digest of the model of all users


class Echo:
    """Answers a POST with one answer for each input, and a GET with what `told` has for the path;
    both after `seconds`."""

    def __init__(self, answer: Mapping[str, Any], told: Mapping[str, Any], seconds: float) -> None:
        self._answer, self._told, self._seconds = answer, told, seconds

    async def __call__(self, request: Request) -> JSONResponse:
        await asyncio.sleep(self._seconds)
        if request.method == "GET":
            return JSONResponse(self._told[request.url.path])
        asked = await request.json()
        answers = [self._answer] * len(asked["inputs"])
        return JSONResponse({"user": asked["user"], "digest": MODEL, "answers": answers})


class Expected:
    """The requests of `load.Oracle`, with a single right answer."""

    def __init__(self, encoded: Sequence[str], answer: Mapping[str, Any]) -> None:
        self.encoded, self._answer = encoded, answer

    def is_right(self, user: int, picture: int, answer: Mapping[str, Any]) -> bool:
        return answer == self._answer


@contextmanager
def echoing(
    port: int,
    answer: Mapping[str, Any],
    told: Mapping[str, Any] | None = None,
    seconds: float = 0.0,
) -> Iterator[str]:
    """The URL where the connected cluster answers so, with the options of our own ingress."""
    options = HTTPOptions(host=HOST, port=port)
    serve.start(http_options=options, proxy_location="HeadOnly", logging_config=LOGGING)
    reserved = {"num_cpus": 0}
    deployed = serve.deployment(
        Echo, max_ongoing_requests=1000, ray_actor_options=reserved, logging_config=LOGGING
    )
    try:
        serve.run(deployed.bind(answer, told or {}, seconds), name=MODEL, route_prefix="/")
        yield f"http://{HOST}:{port}"
    finally:
        serve.shutdown()
