"""Attacks on connections: headers that never end, lines that say nothing, and too many of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.config import HTTP_PROTOCOLS

from cluster.api.pace import SenderLimiter
from cluster.runtime.head import DOOR
from cluster.serving import connections
from cluster.serving.connections import HEADER_BYTES, ConnectionLimiter, HttpConnection

QUESTION = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
SLOW = 0.6  # seconds until an answer, longer than the patience with connections
LARGE = b"x" * (8 << 20)  # more than lies between two sockets
Ask = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def slow(scope: Any, receive: Any, send: Any) -> None:
    while scope["method"] == "POST" and (await receive()).get("more_body"):
        pass
    await asyncio.sleep(SLOW if scope["path"] == "/slow" else 0)
    body = LARGE if scope["path"] == "/large" else b"ok"
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def serving(attack: Callable[[Ask], Awaitable[None]]) -> None:
    """Does `attack` to a server of such connections."""

    async def served() -> None:
        config = uvicorn.Config(slow, port=0, lifespan="off", log_level="critical")
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        opened = list[asyncio.StreamWriter]()

        async def ask() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.append(writer)
            return reader, writer

        try:
            await asyncio.wait_for(attack(ask), 20)
        finally:
            for writer in opened:  # else the server would wait for who never reads
                writer.transport.abort()
            server.should_exit = True
            await running

    asyncio.run(served())


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HTTP_PROTOCOLS, "auto", "")
    assert [one.cls for one in connections.install()] == [SenderLimiter]
    monkeypatch.setattr(HttpConnection, "patience", 0.3)
    monkeypatch.setattr(HttpConnection, "room", ConnectionLimiter())


def test_serve_is_told_where_it_is() -> None:
    module, _, name = DOOR.rpartition(".")
    assert (module, name) == (connections.__name__, connections.install.__name__)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nx: ", QUESTION + b"GET /"])
def test_who_never_ends_a_header_is_let_go(sent: bytes) -> None:
    async def attack(ask: Ask) -> None:
        reader, writer = await ask()
        writer.write(sent)
        for _ in range(3):  # letter by letter, for ever
            await asyncio.sleep(0.05)
            writer.write(b"x" if sent else b"")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1000), 5)

    serving(attack)


LENGTHY = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = LENGTHY + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "part"),
    [
        (b"GET /", b"x" * 10_000),
        (QUESTION[:-2] + b"x: ", b"x" * 10_000),
        (QUESTION[:-2], b"x: y\r\n" * 2000),
        (QUESTION.replace(b"/", b"/slow", 1) + QUESTION[:-2] + b"x: ", b"x" * 10_000),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"x: y\r\n" * 2000),  # behind the body
    ],
)
def test_a_header_is_read_to_its_limit(
    monkeypatch: pytest.MonkeyPatch, first: bytes, part: bytes
) -> None:
    monkeypatch.setattr(HttpConnection, "patience", 60.0)

    async def attack(ask: Ask) -> None:
        reader, writer = await ask()
        writer.write(first + part * (2 * HEADER_BYTES // len(part)))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1000), 5)

    serving(attack)


def test_a_long_header_and_a_longer_body_are_read() -> None:
    long = b"x: " + b"x" * (HEADER_BYTES // 2) + b"\r\n"
    body = b"y" * (4 * HEADER_BYTES)
    chunks = (b"1\r\nz\r\n" * HEADER_BYTES) + b"0\r\n\r\n"

    async def attack(ask: Ask) -> None:
        reader, writer = await ask()
        for sent in (
            LENGTHY + long + b"content-length: %d\r\n\r\n" % len(body) + body,
            CHUNKED + chunks,
            QUESTION,
        ):
            writer.write(sent)
            await writer.drain()
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    serving(attack)


def test_who_waits_for_an_answer_is_not() -> None:
    async def attack(ask: Ask) -> None:
        reader, writer = await ask()
        for _ in range(2):  # on one connection
            writer.write(QUESTION.replace(b"/", b"/slow", 1))
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    serving(attack)


def test_who_asks_twice_at_once_is_answered_twice() -> None:
    async def attack(ask: Ask) -> None:
        reader, writer = await ask()
        writer.write(QUESTION + QUESTION.replace(b"/", b"/slow", 1))
        for _ in range(2):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    serving(attack)


HUGE = QUESTION.replace(b"/", b"/large", 1)


@pytest.mark.parametrize("several", [[HUGE * 3], [HUGE, HUGE], [HUGE, QUESTION]])
def test_who_reads_nothing_is_let_go(several: list[bytes]) -> None:
    """Also behind questions whose answers wait for the first one."""

    async def attack(ask: Ask) -> None:
        _, writer = await ask()
        for sent in several:
            writer.write(sent)
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.5)
        assert (HttpConnection.room._of.total(), HttpConnection.room._all_bytes) == (0, 0)

    serving(attack)


def test_who_reads_slowly_has_all_of_it() -> None:
    """For longer than the patience with who says nothing."""

    async def attack(ask: Ask) -> None:
        reader, writer = await ask()
        writer.write(HUGE + QUESTION)
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(16):  # often enough for a busy machine, for twice the patience together
            assert await reader.readexactly(len(LARGE) // 16)
            await asyncio.sleep(0.05)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert HttpConnection.room._all_bytes == 0

    serving(attack)


def test_answers_that_nobody_has_read_are_of_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpConnection, "patience", 60.0)
    monkeypatch.setattr(connections, "ALL_BYTES", 2 * len(LARGE))

    async def attack(ask: Ask) -> None:
        several = [await ask() for _ in range(5)]
        for _, writer in several:
            writer.write(HUGE)
            await asyncio.sleep(0.1)
        assert 2 <= HttpConnection.room._of.total() < 5

    serving(attack)


def test_no_connection_becomes_one_of_another_kind() -> None:
    async def attack(ask: Ask) -> None:
        reader, writer = await ask()
        upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n"
        key = b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
        writer.write(QUESTION[:-2] + upgrade + key)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")

    serving(attack)


def test_when_all_places_are_taken_the_idlest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpConnection, "patience", 60.0)
    monkeypatch.setattr(HttpConnection, "room", ConnectionLimiter(all=20))

    async def attack(ask: Ask) -> None:
        idle = [await ask() for _ in range(50)]
        reader, writer = await ask()
        writer.write(QUESTION)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        reader, _ = idle[0]
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), 5)

    serving(attack)


def test_bodies_that_nobody_has_answered_are_of_so_many_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many connections they come by; what is answered makes room."""
    monkeypatch.setattr(HttpConnection, "patience", 60.0)
    monkeypatch.setattr(connections, "ALL_BYTES", 1_000_000)
    body = b"x" * 400_000
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"

    async def attack(ask: Ask) -> None:
        for _ in range(4):
            reader, writer = await ask()
            writer.write(head % len(body) + body)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        open_ones = [await ask() for _ in range(4)]
        for _, writer in open_ones:
            writer.write(head % (2 * len(body)) + body)  # the rest never comes
        await asyncio.sleep(0.3)
        reader, writer = await ask()
        writer.write(QUESTION)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        ended = [reader.at_eof() or reader.exception() is not None for reader, _ in open_ones]
        assert sum(ended) == 2
        for _, writer in open_ones:
            writer.close()
        await asyncio.sleep(0.1)
        assert HttpConnection.room._all_bytes == 0

    serving(attack)


def test_an_address_has_so_many_bytes_and_keeps_nobody_else_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "EACH_BYTES", 10)
    monkeypatch.setattr(connections, "ALL_BYTES", 30)
    room = ConnectionLimiter()
    assert room.reserve("192.0.2.1", 10)
    assert not room.reserve("192.0.2.1", 1)
    room.release("192.0.2.1", 11)
    assert room.reserve("192.0.2.1", 10)
    assert room.reserve("127.0.0.1", 20)  # of a proxy before us: as much as of all
    assert not room.reserve("192.0.2.2", 1)


class Fake:
    def __init__(self, room: ConnectionLimiter, address: str) -> None:
        self.room, self.address = room, address
        self.entered = room.admit(cast(HttpConnection, self), address)
        self.ended = False

    def end(self) -> None:
        self.ended = True
        self.room.leave(cast(HttpConnection, self), self.address)


def test_an_address_has_so_many_and_keeps_nobody_else_out() -> None:
    room = ConnectionLimiter(each=2, all=4)
    first, second = Fake(room, "192.0.2.1"), Fake(room, "192.0.2.1")
    assert not Fake(room, "192.0.2.1").entered  # both are being answered
    room.went_idle(cast(HttpConnection, second), second.address)
    third = Fake(room, "192.0.2.1")
    assert (third.entered, second.ended, first.ended) == (True, True, False)
    here = [Fake(room, "127.0.0.1") for _ in range(3)]  # of a proxy before us: one for all
    assert [one.entered for one in here] == [True, True, False]
    first.end()
    assert Fake(room, "192.0.2.2").entered
