"""Floods before Serve's proxy: who waits for whom."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest
from ray.serve._private import constants

from cluster.api import pace
from cluster.api.pace import ALONE, AMONG_OTHERS, Pace, SenderLimiter

AT_ONCE, FEW = ALONE.at_once, AMONG_OTHERS.at_once


class App:
    """Answers when a test lets it, and ends."""

    def __init__(self) -> None:
        self.under_way, self.most = Counter[str](), Counter[str]()
        self.order: list[str] = []
        self.status = 200
        self.answers = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        who = scope["who"]
        self.order.append(who)
        self.under_way[who] += 1
        self.most |= self.under_way
        try:
            await self.answers.wait()
        finally:
            self.under_way[who] -= 1
        await send({"type": "http.response.start", "status": self.status})


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 20))


def asks(
    turns: SenderLimiter, who: str, token: str | None, said: list[int], path: str = "/v1/status"
) -> asyncio.Task[None]:
    async def send(message: dict[str, Any]) -> None:
        said.extend([message["status"]] if "status" in message else [])

    headers = [(b"authorization", token.encode())] if token else []
    scope = {"type": "http", "who": who, "client": (who, 1), "headers": headers, "path": path}
    return asyncio.create_task(turns(scope, None, send))  # type: ignore[arg-type]


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def soon() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock ends a beginning."""
    monkeypatch.setattr(pace, "ALONE", Pace(AT_ONCE, 60.0))
    monkeypatch.setattr(pace, "AMONG_OTHERS", Pace(FEW, 60.0))
    monkeypatch.setattr(pace, "RECENT", 60.0)


async def known(turns: SenderLimiter, app: App, *whose: str) -> None:
    """Tokens of these are good here."""
    app.answers.set()
    await asyncio.gather(*(asks(turns, who, who, []) for who in whose))
    app.answers.clear()
    app.order.clear()
    app.most.clear()


def test_a_sender_is_alone_again_when_others_fall_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while no new request comes."""

    async def story() -> None:
        app, said = App(), list[int]()
        turns = SenderLimiter(app)
        await known(turns, app, "ann", "eve")
        flood = [asks(turns, "ann", "ann", said) for _ in range(40)]
        await soon()
        assert app.under_way["ann"] == FEW
        monkeypatch.setattr(pace, "RECENT", -1.0)  # as if it were long ago
        flood[0].cancel()
        await soon()
        assert app.under_way["ann"] == AT_ONCE
        app.answers.set()
        await asyncio.gather(*flood, return_exceptions=True)

    run(story())


@pytest.mark.parametrize("named", [True, False])
def test_a_flood_lets_others_pass(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        app, said = App(), list[int]()
        turns = SenderLimiter(app)
        eve = "eve" if named else None
        await known(turns, app, "eve")
        monkeypatch.setattr(pace, "RECENT", -1.0)  # as if it were long ago
        flood = [asks(turns, "eve", eve, said) for _ in range(80)]
        await soon()
        ann = asks(turns, "ann", None, said)
        await soon()
        assert app.order == ["eve"] * AT_ONCE + ["ann"]
        app.answers.set()
        await asyncio.gather(ann, *flood)
        assert (app.order.count("eve"), app.most["eve"]) == (80, AT_ONCE)
        assert len(turns._lines) == 0  # of those of whom nothing is there

    run(story())


def test_where_others_ask_a_sender_has_few_places() -> None:
    """Those whose flood began before them come down to it."""

    async def story() -> None:
        app, said = App(), list[int]()
        turns = SenderLimiter(app)
        await known(turns, app, "ann", "eve")
        flood = [asks(turns, "eve", "eve", said) for _ in range(80)]
        await soon()
        assert app.order == ["eve"] * FEW
        app.answers.set()
        await asyncio.gather(*flood)
        assert (app.order.count("eve"), app.most["eve"]) == (80, FEW)

    run(story())


def test_who_makes_tokens_up_is_one_sender() -> None:
    """And whose token is good is not behind them."""

    async def story() -> None:
        app, said = App(), list[int]()
        turns = SenderLimiter(app)
        await known(turns, app, "ann")
        app.status = 401
        flood = [asks(turns, "eve", f"Bearer {number}", said) for number in range(300)]
        await soon()
        asks(turns, "eve", "ann", said)
        await soon()
        assert (app.order, said) == (["eve"] * (FEW + 1), [])
        app.answers.set()
        await asyncio.gather(*flood)
        assert set(turns._good) == {digest("ann")}

    run(story())


def test_a_path_without_a_route_says_nothing_of_a_token() -> None:
    """It is answered before the token is looked at."""

    async def story() -> None:
        app = App()
        turns = SenderLimiter(app)
        app.status = 404
        await known(turns, app, "eve")
        assert not turns._good

    run(story())


def test_strangers_slow_no_user_down() -> None:
    async def story() -> None:
        app, said = App(), list[int]()
        turns = SenderLimiter(app)
        await known(turns, app, "ann")
        stranger = asks(turns, "eve", None, said)
        await soon()
        flood = [asks(turns, "ann", "ann", said) for _ in range(40)]
        await soon()
        assert app.order == ["eve"] + ["ann"] * AT_ONCE
        app.answers.set()
        await asyncio.gather(stranger, *flood)

    run(story())


def test_who_comes_later_does_not_go_before_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where others have fallen silent meanwhile, and there are more places."""
    monkeypatch.setattr(pace, "ALONE", Pace(FEW + 2, 60.0))

    async def story() -> None:
        app, said = App(), list[int]()
        turns = SenderLimiter(app)
        await known(turns, app, "ann", "eve")
        first = [asks(turns, "early", "eve", said) for _ in range(FEW + 3)]
        await soon()
        turns._asked.clear()
        last = asks(turns, "late", "eve", said)
        await soon()
        assert app.order == ["early"] * (FEW + 2)
        app.answers.set()
        await asyncio.gather(*first, last)

    run(story())


def test_tokens_that_were_good_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What everybody may read says nothing of a token."""
    monkeypatch.setattr(pace, "KEPT", 2)

    async def story() -> None:
        app = App()
        turns = SenderLimiter(app)
        await known(turns, app, "a", "b", "c")
        app.answers.set()
        await asks(turns, "d", "d", [], "/")
        await asks(turns, "d", "d", [], "/v1/openapi.json")
        assert set(turns._good) == {digest("b"), digest("c")}

    run(story())


def test_what_takes_long_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "ALONE", Pace(AT_ONCE, 0.01))

    async def story() -> None:
        app, said = App(), list[int]()
        turns = SenderLimiter(app)
        streams = [asks(turns, "eve", "x", said) for _ in range(3 * AT_ONCE)]
        while app.most["eve"] < 3 * AT_ONCE:
            await asyncio.sleep(0.01)
        app.answers.set()
        await asyncio.gather(*streams)

    run(story())


def test_those_who_left_take_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """And too many are refused."""
    monkeypatch.setattr(pace, "WAITING", 5)

    async def story() -> None:
        app, said = App(), list[int]()
        turns = SenderLimiter(app)
        flood = [asks(turns, "eve", None, said) for _ in range(AT_ONCE + 7)]
        await soon()
        assert said == [429, 429]
        probe = asks(turns, "eve", None, said, "/v1/ready")
        await soon()
        assert app.under_way["eve"] == AT_ONCE + 1
        flood.append(probe)
        for one in flood:
            one.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
        again = [asks(turns, "eve", None, said) for _ in range(AT_ONCE)]
        await soon()
        assert app.under_way["eve"] == AT_ONCE
        app.answers.set()
        await asyncio.gather(*again)

    run(story())


def test_nobody_steers_serve() -> None:
    """By its own names of headers, which it is not told."""
    names = [
        constants.SERVE_HTTP_REQUEST_TIMEOUT_S_HEADER,
        constants.SERVE_HTTP_REQUEST_DISCONNECT_DISABLED_HEADER,
        constants.SERVE_MULTIPLEXED_MODEL_ID,
        constants.SERVE_SESSION_ID,
    ]
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.extend(scope["headers"])

    sent = [(name.lower().encode(), b"?1") for name in names]
    sent += [(name.swapcase().replace(b"-", b"_"), value) for name, value in sent]
    bad = [b"\xff", b"", b"x" * 65, b"a b"]
    sent += [(b"x-request-id", value) for value in bad] + [(b"x-request-id", b"5b-0")]
    scope = {"type": "http", "path": "/v1/health", "client": ("x", 1), "headers": sent}
    asyncio.run(SenderLimiter(app)(scope, None, None))  # type: ignore[arg-type]
    assert heard == [(b"x-request-id", b"5b-0")]
