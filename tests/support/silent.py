"""A PostgreSQL server that hangs: it accepts connections, perhaps also logins, and answers
nothing."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STARTUP = 3 << 16  # the protocol; other numbers ask for encryption


@contextmanager
def silent(lets_in: bool) -> Iterator[str]:
    """The URL of a registry on this server."""

    class Session(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            connection: socket.socket = self.request
            while lets_in and (head := connection.recv(8)):
                size, asked = struct.unpack("!II", head)
                if asked == STARTUP:
                    connection.recv(size - 8)
                    connection.sendall(_message(b"R", bytes(4)) + _message(b"Z", b"I"))
                    break
                connection.sendall(b"N")
            while connection.recv(1024):  # until the client disconnects
                pass

    class Threads(socketserver.ThreadingTCPServer):
        daemon_threads = True  # a client that gave up may not have disconnected yet

    with Threads(("127.0.0.1", 0), Session) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield f"postgresql://nobody@127.0.0.1:{server.server_address[1]}/x"
        server.shutdown()


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", 4 + len(body)) + body
