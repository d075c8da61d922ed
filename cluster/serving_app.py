"""Ray Serve: a thin ingress with the HTTP API, and predictors that answer many users at once.

The application starts on the cluster of a home with `tacl serve` and ends with it. The ingress
knows no torch; a predictor gathers what arrives within a few milliseconds into one pass.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.config import AutoscalingConfig, HTTPOptions
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle
from ray.util.metrics import Counter, Histogram

from cluster.api.app import create_app
from cluster.api.service import Answered, Question
from cluster.client import Client
from cluster.home import Home
from cluster.remote import COORDINATOR, NAMESPACE, connect
from tacl.errors import BadConfig, ClusterNotRunning, DataNotFound, Overloaded, TaclError

APP = "tacl"
PORT = 8300
AT_ONCE = 64  # questions in one pass
GATHER_SECONDS = 0.005
WAITING = 512  # questions for the predictors; more are refused
DRAIN_SECONDS = 20.0
PATIENCE = 10.0  # seconds for a coordinator or predictor that was lost to be back
SECONDS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]


class Predictors:
    """What is made a deployment: a predictor whose questions are gathered."""

    def __init__(self, home: str, threads: int) -> None:
        import torch

        from cluster.serving import Predictor

        torch.set_num_threads(threads)
        self._predictor = Predictor(home)
        self._rows = Histogram(
            "tacl_predict_batch", description="questions in a pass", boundaries=[1, 2, 4, 8, 16, 32]
        )

    @serve.batch(max_batch_size=AT_ONCE, batch_wait_timeout_s=GATHER_SECONDS)
    async def answer(self, questions: list[Question]) -> list[Answered | TaclError]:
        self._rows.observe(len(questions))
        return await asyncio.to_thread(self._predictor.answer, questions)


class Ingress:
    """`cluster.api.service.Service` on Ray; Serve builds the API around it."""

    def __init__(self, home: str, predictors: DeploymentHandle, open_to_all: bool) -> None:
        logging.getLogger("tacl.http").setLevel(logging.INFO)
        self._home, self._predictors, self._open = home, predictors, open_to_all
        self._coordinator: Any = None
        labels = ("route", "method", "status")
        self._count = Counter("tacl_http_requests", description="requests", tag_keys=labels)
        self._seconds = Histogram(
            "tacl_http_seconds",
            description="time to an answer",
            boundaries=SECONDS,
            tag_keys=("route", "method"),
        )

    def __serve_build_asgi_app__(self) -> Any:
        return create_app(self, open_to_all=self._open, observe=self._observe)

    def _observe(self, route: str, method: str, status: int, seconds: float) -> None:
        self._count.inc(tags={"route": route, "method": method, "status": f"{status // 100}xx"})
        self._seconds.observe(seconds, tags={"route": route, "method": method})

    async def ask(self, method: str, *arguments: object) -> Any:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self._coordinator is None:
                    self._coordinator = ray.get_actor(COORDINATOR, namespace=NAMESPACE)
                return await getattr(self._coordinator, method).remote(*arguments)
            except RayTaskError as error:
                raise (error.cause if isinstance(error.cause, TaclError) else error) from None
            except (RayActorError, ValueError) as error:  # lost, and made again by Ray
                self._coordinator = None
                if time.monotonic() > deadline:
                    raise ClusterNotRunning("the coordinator does not answer now") from error
                await asyncio.sleep(0.2)

    async def predict(self, question: Question) -> Answered:
        """A question has no effect: one whose predictor died is asked again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                found = await self._predictors.answer.remote(question)
            except BackPressureError as error:
                raise Overloaded(f"{WAITING} questions wait already; ask again soon") from error
            except RayTaskError as error:
                raise (error.cause if isinstance(error.cause, TaclError) else error) from None
            except RayActorError as error:
                if time.monotonic() > deadline:
                    raise Overloaded("no predictor answers now; ask again soon") from error
                await asyncio.sleep(0.1)
            else:
                if isinstance(found, TaclError):
                    raise found
                return found

    async def submit(self, data: Path, name: str, owner: str, fields: dict[str, Any]) -> Any:
        """In a thread: every row is read and checked."""
        options = fields.pop("options")
        coordinator = _Blocking(self, asyncio.get_running_loop())
        client = Client(Home.at(self._home).path, coordinator=coordinator, user=owner)
        return await asyncio.to_thread(
            lambda: client.submit(name, data, owner=owner, **fields, **options)
        )

    def reference(self, name: str) -> Path:
        """Data that the operator laid into HOME/data."""
        found = Home.at(self._home).path / "data" / name
        if not found.exists():
            raise DataNotFound(f"no data set {name} was laid ready; ask the operator")
        return found


class _Blocking:
    """The coordinator for a thread that may wait."""

    def __init__(self, ingress: Ingress, loop: asyncio.AbstractEventLoop) -> None:
        self._ingress, self._loop = ingress, loop

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: object) -> Any:
            asked = self._ingress.ask(method, *arguments)
            return asyncio.run_coroutine_threadsafe(asked, self._loop).result()

        return call


def start(home: Home, host: str, port: int, most: int, cpus: float, open_to_all: bool) -> str:
    """Serve the API of a home's cluster; its URL.

    `most` predictors at the most, each with `cpus`; fewer while little is asked. BadConfig: open
    to all on an interface that others reach.
    """
    require_safe(host, open_to_all)
    connect(home)
    serve.start(http_options=HTTPOptions(host=host, port=port), proxy_location="HeadOnly")
    built = application({"home": home.where, "most": most, "cpus": cpus, "open": open_to_all})
    serve.run(built, name=APP, route_prefix="/")
    return f"http://{host}:{port}"


def application(arguments: dict[str, Any]) -> serve.Application:
    """What a Serve config names as its import path. Arguments: `home`, as `Home.at` finds it on any
    node, `most` predictors, `cpus` of each, `open` without tokens."""
    where, cpus = str(arguments["home"]), float(arguments.get("cpus", 1))
    scaling = AutoscalingConfig(
        min_replicas=1,
        max_replicas=int(arguments.get("most", 1)),
        target_ongoing_requests=AT_ONCE / 2,
    )
    predictors = serve.deployment(Predictors, name="predictor").options(
        autoscaling_config=scaling,
        max_ongoing_requests=2 * AT_ONCE,
        max_queued_requests=WAITING,
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        ray_actor_options={"num_cpus": cpus},
    )
    ingress = serve.deployment(serve.ingress()(Ingress), name="ingress").options(
        max_ongoing_requests=1000,
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        ray_actor_options={"num_cpus": 0},
    )
    handle = predictors.bind(where, max(1, int(cpus)))
    return ingress.bind(where, handle, bool(arguments.get("open", False)))


def stop(home: Home) -> None:
    """What is being answered is answered first."""
    connect(home)
    serve.shutdown()


def drain() -> None:
    """Before the cluster of this process ends."""
    serve.shutdown()


def require_safe(host: str, open_to_all: bool) -> None:
    if open_to_all and not _loopback(host):
        raise BadConfig(
            f"without tokens everybody who reaches {host} may do everything; serve on 127.0.0.1, "
            "or issue tokens with `tacl users issue` and leave access on"
        )


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
