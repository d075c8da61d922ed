"""Limits on connections to Serve's HTTP proxy: their number for each address, the time without a
request or without reading an answer, the size of a header, and the bytes of answers that nobody has
read and of bodies whose requests are not answered yet. The proxy reads bodies before anything that
could refuse them.

Serve starts uvicorn in a process of Ray and has no options for these limits. It does call a
function there whose name is in an environment variable: `install`, which makes uvicorn use
`HttpConnection`. `cluster.runtime.head` sets the variable.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cluster.api.pace import PACED
from cluster.domain.loopback import is_loopback

HEADER_SECONDS = 30.0  # until a header is complete, also that of the next request
HEADER_BYTES = 256 << 10  # enough for a URL of as many terms as are allowed; also behind a body
READ_BYTES = 16 << 10  # of an answer that a client must read within HEADER_SECONDS
EACH = 512  # connections of one address; only ALL limits those of this machine, as of a proxy here
ALL = 4096
EACH_BYTES = 2 << 30  # of bodies and answers of one address at once: two of the largest bodies
ALL_BYTES = 4 << 30


class ConnectionLimiter:
    """Counts open connections and their bytes. If there is no place for a new connection, the one
    that has been without a request for longest is closed."""

    def __init__(self, each: int = EACH, all: int = ALL) -> None:
        self._each, self._all = each, all
        self._of: Counter[str] = Counter()
        self._idle: dict[HttpConnection, str] = {}  # its address; the longest idle comes first
        self._bytes: Counter[str] = Counter()
        self._all_bytes = 0

    def admit(self, door: HttpConnection, address: str) -> bool:
        """Take a place for a connection; False if there is none."""
        if self._of[address] >= self._each and not is_loopback(address):
            fits = self._drop(address)
        else:
            fits = self._of.total() < self._all or self._drop(None)
        if fits:
            self._of[address] += 1
        return fits

    def went_idle(self, door: HttpConnection, address: str) -> None:
        self._idle[door] = address

    def got_busy(self, door: HttpConnection) -> None:
        self._idle.pop(door, None)

    def leave(self, door: HttpConnection, address: str) -> None:
        self._idle.pop(door, None)
        self._of[address] -= 1
        self._of += Counter()  # drops addresses without connections

    def reserve(self, address: str, size: int) -> bool:
        """Count `size` more bytes of bodies or answers; returns whether all of them still fit."""
        self._bytes[address] += size
        self._all_bytes += size
        fits = self._bytes[address] <= EACH_BYTES or is_loopback(address)
        return fits and self._all_bytes <= ALL_BYTES

    def release(self, address: str, size: int) -> None:
        """Uncount bytes that are no longer held."""
        self._all_bytes -= size
        self._bytes[address] -= size
        if not self._bytes[address]:
            del self._bytes[address]

    def is_idle(self, door: HttpConnection) -> bool:
        return door in self._idle

    def _drop(self, address: str | None) -> bool:
        """Close the longest idle connection of an address, or of any; False if there is none."""
        found = (door for door, of in self._idle.items() if address in (None, of))
        door = next(found, None)
        if door is not None:
            door.end()
        return door is not None


class HttpConnection(HttpToolsProtocol):
    """A connection to Serve's proxy, which keeps to the limits of `room`."""

    room = ConnectionLimiter()
    patience = HEADER_SECONDS
    _address: str | None = None  # while it has a place
    _timer: asyncio.TimerHandle | None = None
    _headed = 0  # bytes received since the last event that is no part of a header
    _body = 0  # bytes of bodies since the last answer
    _unread = 0  # bytes of answers in the buffer when writing was paused

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if not self.room.admit(self, address):
            return transport.abort()
        self._address = address
        self._waits()

    def data_received(self, data: bytes) -> None:
        """Parse data; close the connection if a header gets too large. All of a header is copied
        for each part that arrives, so that one of some 100 MB would keep everybody waiting."""
        self._headed += len(data)
        super().data_received(data)
        if self._headed > HEADER_BYTES:
            self.end()

    def on_body(self, body: bytes) -> None:
        self._headed = 0
        if self._address is None:
            return
        self._body += len(body)
        if not self.room.reserve(self._address, len(body)):
            return self.end()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._headed = 0
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._headed = 0
        if not self.flow.write_paused:
            self._stop()
        self.room.got_busy(self)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Count the connection as idle, unless its next request has arrived already."""
        is_last = not self.pipeline
        super().on_response_complete()
        self._answered()
        if is_last and not self.transport.is_closing():
            self._waits()

    def pause_writing(self) -> None:
        """Count the bytes of answers that stay in memory until the client reads them; close the
        connection if they are too many."""
        super().pause_writing()
        if self._address is not None:
            self._unread = self.transport.get_write_buffer_size()
            self._watch()
            if not self.room.reserve(self._address, self._unread):
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
        return False  # no route uses WebSockets, and uvicorn has another class for them

    def _waits(self) -> None:
        if self._address is not None:
            self.room.went_idle(self, self._address)
            self._watch()

    def _watch(self) -> None:
        self._stop()
        left = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(self.patience, self._look, left)

    def _look(self, before: int) -> None:
        """Close the connection if its client does not read: less than READ_BYTES since `before`."""
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
            self.room.release(self._address, self._body)
            self._body = 0

    def _is_read(self) -> None:
        if self._address is not None and self._unread:
            self.room.release(self._address, self._unread)
            self._unread = 0

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def install() -> list[Any]:
    """Called in the process of Serve's proxy before it starts uvicorn; returns its middlewares."""
    HTTP_PROTOCOLS["auto"] = f"{__name__}:{HttpConnection.__name__}"
    return [PACED]
