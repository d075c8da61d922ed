"""The ingress and the predictors around what is remote: who waits for whom, and what is dropped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from ray.exceptions import RayActorError

from cluster.api.service import Answered, Question
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import RequestContext
from cluster.domain.compositions import Composition
from cluster.serving import app, predictor
from cluster.serving.app import LARGE, Ingress, Predictors
from cluster.serving.pieces import MOST, ROWS
from cluster.serving.router import RUNNING
from cluster.serving.routing import keeper
from tacl.errors import BadSample, RunFailed, TaclError
from tests.support.settled import begun, settled


def question(user: str, pixels: int = 0, said: str = "x") -> Question:
    model = Composition(user=user, terms=(), digest=user)
    return Question(model, [said], pixels=pixels)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


class Slow:
    """A predictor whose large pictures are decoded when a test lets them."""

    def __init__(self, home: str, most: int | None, predictors: int) -> None:
        self.most = most
        self.decodes, self.decoding = threading.Event(), threading.Event()
        self.passing = threading.Event()
        self.passing.set()
        self.decoded: list[str] = []
        self.entered = 0  # passes that began
        self.passes: list[list[str]] = []

    def decode(self, asked: Question) -> list[Any]:
        self.decoded.append(asked.model.user)
        if asked.pixels > LARGE:
            self.decoding.set()
            assert self.decodes.wait(10)
        return []

    def answer(self, asked: Sequence[Question], decoded: Sequence[Any]) -> list[Answered]:
        self.entered += 1
        assert self.passing.wait(10)
        self.passes.append([one.model.user for one in asked])
        return [Answered([]) for _ in asked]


@pytest.fixture
def predictors(monkeypatch: pytest.MonkeyPatch) -> tuple[Predictors, Slow]:
    monkeypatch.setattr(predictor, "Predictor", Slow)
    monkeypatch.setattr(app, "log_to", lambda *where: None)
    monkeypatch.setattr(app, "_listen_as_the_node", lambda: None)
    found = Predictors("/nowhere", 1)
    return found, cast(Slow, found._predictor)


def test_a_small_question_waits_for_nobodys_large_picture(predictors) -> None:
    served, slow = predictors

    async def story() -> None:
        large = asyncio.create_task(served.answer([question("eve", LARGE + 1)]))
        while not slow.decoding.is_set():
            await asyncio.sleep(0.001)
        assert await served.answer([question("bob")]) == [Answered([])]
        assert not large.done()
        slow.decodes.set()
        assert await large == [Answered([])]

    run(story())


def test_what_was_given_up_is_not_decoded(predictors) -> None:
    served, slow = predictors

    async def story() -> None:
        tasks = [asyncio.create_task(served.answer([question(u, LARGE + 1)])) for u in "abc"]
        while not slow.decoding.is_set():
            await asyncio.sleep(0.001)
        tasks[1].cancel()
        await asyncio.sleep(0.01)
        slow.decodes.set()
        await asyncio.gather(tasks[0], tasks[2])
        assert slow.decoded == ["a", "c"]

    run(story())


def test_a_pass_whose_askers_left_ends_before_the_next_begins(predictors) -> None:
    """Both would use the model's tensors: answers of one would be those of the other."""
    served, slow = predictors

    async def story() -> None:
        slow.passing.clear()
        left = asyncio.create_task(served.answer([question("eve")]))
        while not slow.entered:
            await asyncio.sleep(0.001)
        left.cancel()
        stays = asyncio.create_task(served.answer([question("bob")]))
        await asyncio.sleep(0.1)
        assert slow.entered == 1
        slow.passing.set()
        assert await stays == [Answered([])]
        assert slow.passes == [["eve"], ["bob"]]

    run(story())


def test_passes_of_many_rows_and_of_few_take_turns(predictors) -> None:
    served, slow = predictors

    async def story() -> None:
        slow.passing.clear()
        tasks = [asyncio.create_task(served.answer([question("first")]))]
        while not slow.entered:  # a pass takes all that has come until it begins
            await asyncio.sleep(0.001)
        calls = [[many("eve", 16)], [many("mallory", 16)], [question("ann")], [question("bob")]]
        tasks += [asyncio.create_task(served.answer(call)) for call in calls]
        while len(slow.decoded) < 5:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        slow.passing.set()
        await asyncio.gather(*tasks)
        assert slow.passes == [["first"], ["eve"], ["ann", "bob"], ["mallory"]]

    run(story())


def test_a_suspect_shares_its_pass_with_nobody(predictors) -> None:
    served, slow = predictors

    async def story() -> None:
        slow.passing.clear()
        asked = [question("ann"), question("bob"), app._alone(question("eve")), question("cid")]
        tasks = [asyncio.create_task(served.answer([one])) for one in asked]
        while len(slow.decoded) < 4:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        slow.passing.set()
        await asyncio.gather(*tasks)
        assert ["eve"] in slow.passes  # those who were ready before it and after it share theirs

    run(story())


class Response:
    """As Serve's: awaited or cancelled."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.task, self.cancelled = asyncio.ensure_future(work), False

    def cancel(self) -> None:
        self.cancelled = True

    def __await__(self) -> Generator[Any, None, Any]:
        return self.task.__await__()


class Handle:
    """Of predictors that die of `poison`, and answer when `open` lets them."""

    def __init__(self) -> None:
        self.answer, self.open = self, asyncio.Event()
        self.calls: list[list[Question]] = []
        self.responses: list[Response] = []

    def remote(self, asked: list[Question]) -> Response:
        self.calls.append(asked)
        self.responses.append(Response(self._answered(asked)))
        return self.responses[-1]

    async def _answered(self, asked: list[Question]) -> Sequence[Answered | TaclError]:
        await self.open.wait()
        if any("poison" in one.inputs for one in asked):
            raise RayActorError
        if any("odd" in one.inputs for one in asked):
            return [BadSample("odd") for _ in asked]
        return [Answered([{one.model.user: []}]) for one in asked]

    def users(self) -> list[list[str]]:
        return [[one.model.user for one in call] for call in self.calls]


def ingress(handle: Handle, monkeypatch: pytest.MonkeyPatch, home: str = "/nowhere") -> Ingress:
    monkeypatch.setattr(app, "log_to", lambda *where: None)
    monkeypatch.setattr(app, "_listen_as_the_node", lambda: None)
    return Ingress(home, cast(Any, handle), 1, False)


async def asked(served: Ingress, *questions: Question) -> list[asyncio.Task[Answered]]:
    return await begun(served.predict(one) for one in questions)


def test_large_questions_of_one_user_take_turns_with_those_of_others(monkeypatch) -> None:
    async def story() -> None:
        handle = Handle()
        served = ingress(handle, monkeypatch)
        tasks = await asked(served, *[question("eve", LARGE + 1)] * 4)
        tasks += await asked(served, question("bob", LARGE + 1), question("cid"))
        assert handle.users() == [["eve"], ["cid"]]  # a small one does not even queue with them
        handle.open.set()
        await asyncio.gather(*tasks)
        assert handle.users()[2] == ["bob"]

    run(story())


def test_questions_of_a_keeper_share_calls_and_wait_for_no_other(monkeypatch) -> None:
    """Also when a keeper goes meanwhile."""

    async def story() -> None:
        handle = Handle()
        served = ingress(handle, monkeypatch)
        users = [question(f"user {number}") for number in range(12)]
        monkeypatch.setattr(RUNNING, "names", ("p1", "p2"))
        keepers = {one.model.user: keeper(one.model, RUNNING.names) for one in users}
        tasks = await asked(served, *users[:6])
        asked_first = [{keepers[user] for user in call} for call in handle.users()]
        assert sorted(asked_first, key=min) == [{"p1"}, {"p2"}]
        tasks += await asked(served, *users[6:])
        assert len(handle.calls) == 4  # whoever has nothing on its way leaves with the next
        monkeypatch.setattr(RUNNING, "names", ("p1",))
        handle.open.set()
        await asyncio.gather(*tasks)
        assert [len({keepers[user] for user in call}) for call in handle.users()] == [1] * 4
        assert sum(map(len, handle.calls)) == len(users)
        await settled()
        assert not served._lanes

    run(story())


def many(user: str, rows: int) -> Question:
    return replace(question(user), inputs=["x"] * rows)


def test_few_rows_do_not_wait_for_many(monkeypatch) -> None:
    """One call of large questions is on its way at a time, of few rows; their users take turns."""

    async def story() -> None:
        handle = Handle()
        served = ingress(handle, monkeypatch)
        tasks = await asked(served, many("eve", 20), many("mallory", 10), many("bob", 4))
        assert sorted([len(one.inputs) for one in call] for call in handle.calls) == [[4], [ROWS]]
        handle.open.set()
        found = await asyncio.gather(*tasks)
        assert [len(one.answers) for one in found] == [3, 2, 1]  # one of each piece
        rows = [[(one.model.user, len(one.inputs)) for one in call] for call in handle.calls]
        assert rows[2:] == [[("mallory", 8)], [("eve", 8)], [("mallory", 2), ("eve", 4)]]

    run(story())


def test_pieces_grow_where_passes_are_fast_and_not_where_they_are_refused(monkeypatch) -> None:
    async def story() -> None:
        handle = Handle()
        handle.open.set()
        served = ingress(handle, monkeypatch)
        with pytest.raises(BadSample):
            await served.predict(replace(question("eve"), inputs=["odd"] * ROWS))
        for rows in (3 * ROWS, MOST + 6):
            await served.predict(many("eve", rows))
        sizes = [len(one.inputs) for call in handle.calls for one in call]
        assert sizes == [ROWS, *[ROWS] * 3, MOST, 6]

    run(story())


def test_the_pieces_of_a_question_fail_together(monkeypatch) -> None:
    async def story() -> None:
        handle = Handle()
        handle.open.set()
        poisoned = replace(many("eve", 40), inputs=[*["x"] * 20, "poison", *["x"] * 19])
        with pytest.raises(RunFailed):
            await ingress(handle, monkeypatch).predict(poisoned)

    run(story())


def test_the_callers_leaving_is_told_to_the_predictor(monkeypatch) -> None:
    async def story() -> None:
        handle = Handle()
        for pixels in (0, LARGE + 1):
            (task,) = await asked(ingress(handle, monkeypatch), question("eve", pixels))
            task.cancel()
            while not handle.responses[-1].cancelled:
                await asyncio.sleep(0)
        assert len(handle.responses) == 2

    run(story())


def test_a_predictor_dies_of_a_question_twice_and_no_more(monkeypatch) -> None:
    async def story() -> None:
        handle = Handle()
        handle.open.set()
        served = ingress(handle, monkeypatch)
        users = [question("ann"), question("eve", said="poison"), question("bob")]
        found = await asyncio.gather(*map(served.predict, users * 2), return_exceptions=True)
        assert [type(one) for one in found] == [Answered, RunFailed, Answered] * 2
        poisoned = [call for call in handle.calls if any("poison" in q.inputs for q in call)]
        assert sum(len(call) == 1 and call[0].alone for call in poisoned) == 2

    run(story())


REQUEST = ContextVar("REQUEST", default="nobody's")


class Asked:
    """A coordinator whose calls end when `open` lets them; `statuses`: by whom, and in whose
    context."""

    def __init__(self) -> None:
        self.status = self.usage = self.remote = self
        self.open = asyncio.Event()
        self.statuses: list[tuple[str | None, str]] = []

    def __call__(self, asks: RequestContext | str) -> Coroutine[Any, Any, str]:
        self.statuses.append((asks if isinstance(asks, str) else asks.user, REQUEST.get()))
        return self._told()

    async def _told(self) -> str:
        await self.open.wait()
        return "told"


async def asks(served: Ingress, *users: str | None) -> list[asyncio.Task[Any]]:
    async def request(user: str | None) -> Any:
        REQUEST.set("a request's")
        return await served.ask(CoordinatorAPI.status, RequestContext(user=user))

    return await begun(request(user) for user in users)


def test_the_coordinator_is_asked_one_thing_of_each_user_at_a_time(monkeypatch) -> None:
    async def story() -> None:
        asked = Asked()
        monkeypatch.setattr(app, "coordinator", lambda: asked)
        served = ingress(Handle(), monkeypatch)
        tasks = await asks(served, *["eve"] * 5, "bob", None, None)
        assert [user for user, _ in asked.statuses] == ["eve", "bob", None, None]
        asked.open.set()
        assert await asyncio.gather(*tasks) == ["told"] * 8

    run(story())


def test_what_a_user_has_is_read_once_at_a_time(monkeypatch) -> None:
    """Threads that read are few, and everybody's."""

    async def story() -> None:
        asked = Asked()
        monkeypatch.setattr(app, "coordinator", lambda: asked)
        served = ingress(Handle(), monkeypatch)
        users = ["eve", "eve", "bob", "eve"]
        tasks = [asyncio.create_task(served.ask(CoordinatorAPI.usage, user)) for user in users]
        while len(asked.statuses) < 2:
            await asyncio.sleep(0.01)
        assert [user for user, _ in asked.statuses] == ["eve", "bob"]
        asked.open.set()
        assert await asyncio.gather(*tasks) == ["told"] * 4

    run(story())


def test_a_call_to_the_coordinator_does_not_end_with_its_request(monkeypatch) -> None:
    """Nor begin a second one before the first has ended, nor wait for the turn of who is gone."""

    async def story() -> None:
        asked = Asked()
        monkeypatch.setattr(app, "coordinator", lambda: asked)
        served = ingress(Handle(), monkeypatch)
        tasks = await asks(served, "eve", "eve", "eve")
        tasks[0].cancel()
        tasks[1].cancel()
        await settled()
        assert asked.statuses == [("eve", "nobody's")]
        asked.open.set()
        assert await tasks[2] == "told"
        assert len(asked.statuses) == 2

    run(story())


def deployed(**asked: Any) -> tuple[Any, Any]:
    """The ingress and the predictors of a server."""
    ingress: Any = app.application({"home": "nowhere", **asked})
    return ingress._bound_deployment, ingress._bound_deployment.init_args[1]._bound_deployment


def test_a_predictor_is_given_the_gpus_that_are_asked_for() -> None:
    _, predictors = deployed(cpus=2, gpus=0.5)
    assert predictors.ray_actor_options == {"num_cpus": 2.0, "num_gpus": 0.5}


def test_a_process_that_died_is_missed_at_once() -> None:
    """Serve looks after its processes; by default every ten seconds."""
    for one in deployed():
        assert one._deployment_config.health_check_period_s <= 1


def test_predictors_take_as_many_calls_of_each_ingress() -> None:
    (one, alone), (two, both) = deployed(most=2), deployed(most=2, ingresses=2)
    assert one._deployment_config.num_replicas == 1
    assert two._deployment_config.num_replicas == 2
    calls = alone._deployment_config.max_ongoing_requests
    assert both._deployment_config.max_ongoing_requests == 2 * calls


def test_predictors_of_one_machine_share_its_memory() -> None:
    def sharing(**reserved: float) -> int:
        return deployed(most=3, **reserved)[1].init_args[2]

    assert (sharing(), sharing(gpus=0.5), sharing(gpus=1)) == (3, 3, 1)


def test_predictors_fill_what_they_are_given_together(predictors, tmp_path: Path) -> None:
    given = deployed(most=3, cpus=1.0, gpus=0.0, memory=3000)[1].init_args
    assert cast(Slow, Predictors(*given)._predictor).most == 1000
    assert predictors[1].most is None  # a share of what the machine has


def test_one_suspect_is_on_its_way_whatever_it_asked(monkeypatch) -> None:
    """A predictor dies with calls of few rows, of many and of large pictures."""

    async def story() -> None:
        served = ingress(Handle(), monkeypatch)
        few, many, large = served._lane(False), served._lane(True), served._large
        assert few._suspects is many._suspects is large._suspects

    run(story())
