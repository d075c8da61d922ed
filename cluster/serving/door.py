"""Connections to Serve's HTTP proxy: so many of one address, each so long without a request or
without reading what was sent, and each with so much of a header; and so much of answers that nobody
has read, and of bodies whose requests are not answered yet, which the proxy reads ahead of
everybody who could refuse them.

Serve starts uvicorn in a process of Ray's and passes on no option for either. What it does is to
call a function there whose name is in an environment variable; ours lets uvicorn make its
connections of `HttpConnection`. The head sets it (`cluster.runtime.head`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cluster.api.pace import PACED
from cluster.domain.loopback import is_loopback

HEADER_SECONDS = 30.0  # until a whole header is there, also of the next request
HEADER_BYTES = 256 << 10  # with a URL of as many terms as may be; also behind a body
READ_BYTES = 16 << 10  # of an answer, within as long, by whoever reads at all
EACH = 512  # connections of one address; of this machine, as those of a proxy before us: of all
ALL = 4096
EACH_BYTES = 2 << 30  # of bodies and answers of one address at once: two of the largest bodies
ALL_BYTES = 4 << 30


class ConnectionLimiter:
    """Which connections are there. Of those without a request the one that waits longest makes
    place for a new one."""

    def __init__(self, each: int = EACH, all: int = ALL) -> None:
        self._each, self._all = each, all
        self._of: Counter[str] = Counter()
        self._idle: dict[HttpConnection, str] = {}  # the address; who waits longest is first
        self._bytes: Counter[str] = Counter()
        self._all_bytes = 0

    def enter(self, door: HttpConnection, address: str) -> bool:
        """Whether there is a place."""
        if self._of[address] >= self._each and not is_loopback(address):
            fits = self._drop(address)
        else:
            fits = self._of.total() < self._all or self._drop(None)
        if fits:
            self._of[address] += 1
        return fits

    def waits(self, door: HttpConnection, address: str) -> None:
        self._idle[door] = address

    def asks(self, door: HttpConnection) -> None:
        self._idle.pop(door, None)

    def leave(self, door: HttpConnection, address: str) -> None:
        self._idle.pop(door, None)
        self._of[address] -= 1
        self._of += Counter()  # of whom there is none is forgotten

    def takes(self, address: str, size: int) -> bool:
        """Whether so many bytes more of bodies and answers still fit."""
        self._bytes[address] += size
        self._all_bytes += size
        fits = self._bytes[address] <= EACH_BYTES or is_loopback(address)
        return fits and self._all_bytes <= ALL_BYTES

    def gives(self, address: str, size: int) -> None:
        """What was taken is held no more."""
        self._all_bytes -= size
        self._bytes[address] -= size
        if not self._bytes[address]:
            del self._bytes[address]

    def is_idle(self, door: HttpConnection) -> bool:
        return door in self._idle

    def _drop(self, address: str | None) -> bool:
        """The idlest of this address, or of any; whether there was one."""
        found = (door for door, of in self._idle.items() if address in (None, of))
        door = next(found, None)
        if door is not None:
            door.end()
        return door is not None


class HttpConnection(HttpToolsProtocol):
    """A connection."""

    room = ConnectionLimiter()
    patience = HEADER_SECONDS
    _address: str | None = None  # while it has a place
    _timer: asyncio.TimerHandle | None = None
    _headed = 0  # bytes since anything else than a header came
    _body = 0  # bytes of bodies since the last answer
    _unread = 0  # bytes of answers, when more of them were to wait

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if not self.room.enter(self, address):
            return transport.abort()
        self._address = address
        self._waits()

    def data_received(self, data: bytes) -> None:
        """A header is copied whole for each part of it that comes: one of some 100 MB would keep
        everybody waiting."""
        self._headed += len(data)
        super().data_received(data)
        if self._headed > HEADER_BYTES:
            self.end()

    def on_body(self, body: bytes) -> None:
        self._headed = 0
        if self._address is None:
            return
        self._body += len(body)
        if not self.room.takes(self._address, len(body)):
            return self.end()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._headed = 0
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._headed = 0
        if not self.flow.write_paused:
            self._stop()
        self.room.asks(self)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Who has asked for the next thing already does not wait for anything to ask."""
        is_last = not self.pipeline
        super().on_response_complete()
        self._answered()
        if is_last and not self.transport.is_closing():
            self._waits()

    def pause_writing(self) -> None:
        """What was sent lies here until somebody reads it, and what follows waits."""
        super().pause_writing()
        if self._address is not None:
            self._unread = self.transport.get_write_buffer_size()
            self._watch()
            if not self.room.takes(self._address, self._unread):
                self.end()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_read()
        if not self.room.is_idle(self):
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def end(self) -> None:
        self._leave()
        self.transport.abort()

    def _should_upgrade_to_ws(self) -> bool:
        return False  # nothing here speaks it, and it would be another class of connections

    def _waits(self) -> None:
        if self._address is not None:
            self.room.waits(self, self._address)
            self._watch()

    def _watch(self) -> None:
        self._stop()
        left = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(self.patience, self._look, left)

    def _look(self, before: int) -> None:
        """Whoever still reads is waited for."""
        if before - self.transport.get_write_buffer_size() < READ_BYTES:
            self.end()
        else:
            self._watch()

    def _leave(self) -> None:
        self._stop()
        self._answered()
        self._is_read()
        if self._address is not None:
            self.room.leave(self, self._address)
            self._address = None

    def _answered(self) -> None:
        if self._address is not None and self._body:
            self.room.gives(self._address, self._body)
            self._body = 0

    def _is_read(self) -> None:
        if self._address is not None and self._unread:
            self.room.gives(self._address, self._unread)
            self._unread = 0

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def install() -> list[Any]:
    """Called in the process of Serve's proxy, before it starts uvicorn; what is put around it."""
    HTTP_PROTOCOLS["auto"] = f"{__name__}:{HttpConnection.__name__}"
    return [PACED]
