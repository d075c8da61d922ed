"""Ray Serve: thin ingresses with the HTTP API, and predictors that answer many users at once.

The application starts on the cluster of a home and ends with it (`cluster.serving.starting`). An
ingress imports no torch and does not know the other ingresses. It reads the registry itself where
it can (`cluster.serving.own_reads`). Concurrent requests share calls and passes
(`cluster.serving.batching`): those that look up the user of a token or a user's model, as every
request does, and the questions for each predictor, which get those about the models that it keeps
(`cluster.serving.routing`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, cast
from weakref import WeakValueDictionary

import ray.util
from ray import serve
from ray._common.tls_utils import add_port_to_grpc_server
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.serve._private import replica
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig

from cluster import tracing
from cluster.api.app import create_app
from cluster.api.limits import weighed
from cluster.api.service import Answered, M, P, Question, R, SentFiles
from cluster.api.shared import Shared
from cluster.domain.api import READS, CoordinatorAPI
from cluster.domain.base import RequestContext
from cluster.domain.figures import PredictorFigures, StoreFigures
from cluster.domain.loopback import is_loopback
from cluster.runtime import local_socket
from cluster.runtime.connection import RetryPolicy, coordinator, unwrapped
from cluster.runtime.logs import log_to
from cluster.serving.batching import Batcher, ProcessDied
from cluster.serving.own_reads import OwnReads
from cluster.serving.pieces import ROWS, fitting, joined, pieces
from cluster.serving.preparing import STARTING, Job, read
from cluster.serving.router import RUNNING, AffinityRouter
from cluster.serving.routing import BUSY, keeper
from cluster.storage.drafts import scratch
from cluster.storage.home import Home
from cluster.storage.niceness import lower_priority
from tacl import errors

if TYPE_CHECKING:
    from cluster.serving.predictor import Decoded, Predictor

    Prepared = list[tuple[Question, Decoded]]

LOG = logging.getLogger(__name__)
AT_ONCE = 64  # rows in one pass
FEW = 4  # rows; a question of at most so many waits for at most one call of more rows
LARGE = 4_000_000  # pixels; a question of more is decoded apart from small ones
WAITING = 16_384  # questions, or pieces of them, that wait for a predictor; more are refused
READERS = 2  # data sets that are read at a time
LONGEST = 60.0  # seconds that a caller waits for an answer at most
TIMEOUT = 10.0  # seconds to wait for a lost coordinator to be back
PAUSE = 0.1  # seconds after which Serve knows that a predictor died
LOGGING = LoggingConfig(enable_access_log=False)  # the API writes a line of every request itself
PROCESSES: dict[str, Any] = {  # of predictors and ingresses
    "health_check_period_s": 1.0,  # so also the time until a dead one is replaced
    "health_check_timeout_s": 10.0,  # one is replaced after three checks without an answer
    "graceful_shutdown_timeout_s": 20.0,
    "logging_config": LOGGING,
}
LISTED = 300.0  # seconds for which a listing of the blob store is reused


class Predictors:
    """The deployment of a predictor, which makes one pass at a time. Inputs are decoded in a thread
    of their own, large ones in another of lower priority, so that no small question waits for them.
    """

    def __init__(
        self, home: str, threads: int, sharing: int = 1, memory: int | None = None
    ) -> None:
        """`sharing`: how many predictors use the same memory; `memory`: bytes of it that they may
        fill together."""
        import torch

        from cluster.serving.predictor import Predictor

        _listen_as_the_node()
        torch.set_num_threads(threads)
        log_to(Home.at(home).logs, "serving")
        most = None if memory is None else memory // sharing
        self._predictor = Predictor(home, most, predictors=sharing)
        self._decoders = {
            False: ThreadPoolExecutor(1),
            True: ThreadPoolExecutor(1, initializer=lower_priority),
        }
        # One thread: a pass continues after its caller has left, and two would share a model.
        self._passing = ThreadPoolExecutor(1)
        # A question of many rows gets a pass by itself, in turns with passes of the others.
        kind = lambda call: str(_is_bulk(call))  # noqa: E731
        self._passes = Batcher(self._pass, most=AT_ONCE, weight=_rows, whose=kind)
        self._count, self._asked = 0, 0  # passes, and questions in them

    async def answer(self, questions: list[Question]) -> list[Answered | errors.TaclError]:
        decoder = self._decoders[any(map(_is_large, questions))]
        decode = partial(_decoded, self._predictor, questions)
        decoded = await asyncio.get_running_loop().run_in_executor(decoder, decode)
        return await self._passes.ask(decoded)

    async def figures(self) -> PredictorFigures:
        name = serve.get_replica_context().replica_id.unique_id
        kept = dict(self._predictor.kept())
        return PredictorFigures(predictor=name, passes=self._count, questions=self._asked, **kept)

    async def _pass(self, calls: list[Prepared]) -> list[list[Answered | errors.TaclError]]:
        questions, decoded = zip(*(pair for call in calls for pair in call), strict=True)
        self._count, self._asked = self._count + 1, self._asked + len(questions)
        answer = partial(self._predictor.answer, questions, decoded)
        found = iter(await asyncio.get_running_loop().run_in_executor(self._passing, answer))
        return [list(islice(found, len(call))) for call in calls]


def _decoded(predictor: Predictor, questions: list[Question]) -> Prepared:
    return [(question, predictor.decode(question)) for question in questions]


def _is_large(question: Question) -> bool:
    return question.pixels > LARGE


def _rows(call: Prepared) -> int:
    if _is_bulk(call) or any(question.alone for question, _ in call):
        return AT_ONCE
    return sum(question.rows for question, _ in call)


def _is_bulk(call: Prepared) -> bool:
    return any(question.rows > FEW for question, _ in call)


class Ingress:
    """`cluster.api.service.Service` on Ray; Serve builds the API around it."""

    def __init__(
        self, home: str, predictors: DeploymentHandle, most: int, open_to_all: bool
    ) -> None:
        _listen_as_the_node()
        log_to(Home.at(home).logs, "serving")
        self._home, self._predictors, self._open = home, predictors, open_to_all
        self._coordinator: Any = None
        self._own = OwnReads(Home.at(home), self._asked)
        self._gathered = {
            "holder": Batcher(partial(self._own.ask, "holders"), most=AT_ONCE),
            "composition": Batcher(partial(self._own.ask, "compositions"), most=AT_ONCE),
        }
        shared = {"alone": _alone, "waiting": WAITING, "suspects": asyncio.Lock()}
        batcher = partial(Batcher, self._predicted, **shared)
        self._lane: Callable[[bool], Batcher[Question, Answered]] = lambda bulk: batcher(
            most=ROWS if bulk else AT_ONCE,
            weight=lambda question: question.rows,
            whose=lambda question: question.model.user,
            each=ROWS,
            # Of questions with many rows one call is on its way, so that few rows wait for little.
            # With few rows, calls for which the keeper has no place go to other predictors.
            calls=1 if bulk else (BUSY - 1) * most,
        )
        # By the keeper of the questions' models and whether these have many rows; kept while used.
        self._lanes = WeakValueDictionary[tuple[str, bool], Batcher[Question, Answered]]()
        self._large = batcher(most=1, calls=most)
        self._rows = ROWS  # in a piece of a question of many rows
        self._readers = asyncio.Semaphore(READERS)
        self._turns = WeakValueDictionary[tuple[str, str], asyncio.Lock]()
        self._stored = Shared[StoreFigures](LISTED)
        self._loop = asyncio.get_running_loop()
        local_socket.listen(Home.at(home).path, self._near, local_socket.PREDICTORS)

    def __serve_build_asgi_app__(self) -> Any:
        return create_app(self, open_to_all=self._open)

    async def ask(
        self,
        method: Callable[Concatenate[CoordinatorAPI, P], R],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> R:
        """Call a method of the coordinator, or read the registry instead. Concurrent requests for
        holders and compositions, which every HTTP request makes, are batched. Of all others each
        user has one call and one read under way: the coordinator answers in order, and threads
        that read are few."""
        name = method.__name__
        if name in self._gathered:
            return await self._gathered[name].ask(arguments[-1])  # a token's hash, or a user
        asks = arguments[0] if arguments else None  # a context, or the user of tokens and usage
        user = asks.user if isinstance(asks, RequestContext) else asks
        kind = "read" if name in READS else "call"
        turn = self._turn(kind, user) if isinstance(user, str) else asyncio.Lock()
        await turn.acquire()
        return await _to_its_end(self._own.ask(name, *arguments, **named), turn.release)

    def _turn(self, what: str, user: str) -> asyncio.Lock:
        """The lock of a user for one kind of requests, which makes them one by one."""
        return self._turns.setdefault((what, user), asyncio.Lock())

    async def _asked(self, method: str, *arguments: object, **named: object) -> Any:
        patience = RetryPolicy(TIMEOUT, _silent)
        while True:
            try:
                if self._coordinator is None:
                    self._coordinator = coordinator()
                return await getattr(self._coordinator, method).remote(
                    *arguments, **named, **tracing.inject()
                )
            except (RayError, ValueError) as error:
                pause = patience.after(error)
                self._coordinator = None  # lost; Ray restarts it
                await asyncio.sleep(pause)

    async def predict(self, question: Question) -> Answered:
        """Answer a question; of a user's questions that take long to decode, one at a time."""
        if not _is_large(question):
            where = keeper(question.model, RUNNING.names), question.rows > FEW
            lane = self._lanes[where] = self._lanes.get(where) or self._lane(where[1])
            parts = pieces(question, self._rows)
            if len(parts) == 1:  # the usual case, which needs no asyncio task
                return await lane.ask(*parts)
            asked = [asyncio.ensure_future(lane.ask(piece)) for piece in parts]
            try:
                return joined(await asyncio.gather(*asked))
            finally:
                for piece in asked:  # if one failed
                    piece.cancel()
        async with self._turn("large question", question.model.user):
            return await self._large.ask(question)

    def _near(self, method: str, arguments: Sequence[Any]) -> Answered:
        """Answer a process of this machine that may read the home, in the thread of its connection.
        Inputs are weighed as those of HTTP requests."""
        if method != "predict":
            raise errors.NotAllowed(f"a server's predictors have no method {method}")
        (question,) = arguments
        question = replace(question, pixels=weighed(question.inputs).pixels)
        try:
            return asyncio.run_coroutine_threadsafe(self.predict(question), self._loop).result()
        except TimeoutError as error:
            raise errors.TooLate(f"no answer within {LONGEST:g} s; ask for less") from error
        except errors.TaclError:
            raise
        except Exception as error:
            LOG.exception("a question of the command line was not answered")
            raise errors.RunFailed(f"the server did not answer: {error!r}") from error

    async def _predicted(self, questions: list[Question]) -> list[Answered | errors.TaclError]:
        """Send one call to a predictor. If the call is given up, it is cancelled there too. Raises
        ProcessDied."""
        asked, began = self._predictors.answer.remote(questions), time.monotonic()
        try:
            async with asyncio.timeout(LONGEST):
                answers = await asked
        except (TimeoutError, asyncio.CancelledError):
            asked.cancel()
            raise
        except RayTaskError as error:
            raise unwrapped(error) from None
        except RayActorError as error:
            await asyncio.sleep(PAUSE)
            raise ProcessDied from error
        # Only the time of passes counts: refusals take none, and large inputs are decoded for long.
        passed = not any(isinstance(one, errors.TaclError) for one in answers)
        if passed and questions[0].rows > FEW and not _is_large(questions[0]):
            rows = sum(question.rows for question in questions)
            self._rows = fitting(rows, time.monotonic() - began)
        return answers

    async def predictors(self) -> list[PredictorFigures]:
        """Figures of all predictors, requested past the questions that wait for them."""
        try:
            asked = self._predictors.broadcast("figures")
            found = await asked.results_async(return_exceptions=True)
        except RayServeException:  # none starts
            return []
        return [one for one in found if isinstance(one, PredictorFigures)]

    async def stored(self) -> StoreFigures:
        return await self._stored.ask("all", lambda: asyncio.to_thread(_listed, self._home))

    async def reads(self) -> bool:
        """Return True when the thread that starts processes for data sets is free, not stuck."""
        return await asyncio.wrap_future(STARTING.submit(lambda: True))

    async def prepare(self, given: SentFiles[M]) -> M:
        """Read what a user sent: READERS data sets at a time, and one of each user."""
        job = Job.model_validate({"home": Home.at(self._home).where, "given": given})
        async with self._turn("reading", given.owner), self._readers:
            return cast("M", await read(job))  # what `given.stored` returned there

    def scratch(self) -> AbstractContextManager[Path]:
        return scratch(Home.at(self._home).path / "cache")

    def reference(self, name: str) -> Path:
        """The path of a data set in HOME/data. Raises DataNotFound."""
        found = Home.at(self._home).path / "data" / name
        if not found.exists():
            raise errors.DataNotFound(f"data set {name} is not available on this server")
        return found


async def _to_its_end(call: Coroutine[Any, Any, R], ended: Callable[[], None]) -> R:
    """Finish the call also when the requester left, in a context apart: Ray (2.60) cancels calls
    made in the context of a request that was given up, and an actor that answers in order then
    waits for the cancelled call and answers nobody."""
    task = asyncio.create_task(call, context=tracing.apart())

    def done(task: asyncio.Task[R]) -> None:
        ended()
        if not task.cancelled():
            task.exception()  # marks it as seen: whoever still waits has got it

    task.add_done_callback(done)
    return await asyncio.shield(task)


def _listen_as_the_node() -> None:
    """Listen on the loopback interface if the cluster is on it: Serve opens a port of each replica
    on all interfaces, after its constructor, and has no option for that (ray 2.60)."""
    address = ray.util.get_node_ip_address()
    if is_loopback(address):
        here = f"{address}:0"
        replica.add_port_to_grpc_server = lambda server, _: add_port_to_grpc_server(server, here)


def _listed(home: str) -> StoreFigures:
    sizes = [one.size for one in Home.at(home).blobs().stored()]
    return StoreFigures(blobs=len(sizes), bytes=sum(sizes))


def _alone(question: Question) -> Question:
    return replace(question, alone=True)


def _silent(why: str) -> errors.ClusterNotRunning:
    return errors.ClusterNotRunning(f"the coordinator does not answer now: {why}")


def application(arguments: dict[str, Any]) -> serve.Application:
    """The application, which a Serve config names as its import path. Arguments: `home`, as
    `Home.at` finds it on any node; `most` predictors; `cpus` and `gpus` of each; `memory` and
    `ingresses` as in `Serving`; `open`: without tokens."""
    where, most = str(arguments["home"]), int(arguments.get("most", 1))
    cpus, gpus = float(arguments.get("cpus", 1)), float(arguments.get("gpus", 0))
    ingresses = int(arguments.get("ingresses", 1))
    # While there are questions one call is always on its way; a second one is full, or large.
    scaling = AutoscalingConfig(min_replicas=1, max_replicas=most, target_ongoing_requests=1)
    predictors = serve.deployment(Predictors, name="predictor").options(
        autoscaling_config=scaling,
        request_router_config=RequestRouterConfig(request_router_class=cast("Any", AffinityRouter)),
        max_ongoing_requests=BUSY * most * ingresses,
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        **PROCESSES,
    )
    ingress = serve.deployment(serve.ingress()(Ingress), name="ingress").options(
        num_replicas=ingresses,
        max_ongoing_requests=1000,
        ray_actor_options={"num_cpus": 0},
        **PROCESSES,
    )
    sharing = 1 if gpus >= 1 else most
    handle = predictors.bind(where, max(1, int(cpus)), sharing, arguments.get("memory"))
    return ingress.bind(where, handle, most, bool(arguments.get("open", False)))
