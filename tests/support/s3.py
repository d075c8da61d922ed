"""An S3 server within the tests, and a proxy in front of it that loses answers."""

from __future__ import annotations

import http.client
import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "known to nobody",
    "AWS_EC2_METADATA_DISABLED": "true",  # else a host is queried that does not exist
}


class Server:
    """Buckets at 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self.port = port

    def new_bucket(self) -> str:
        """The URI of a new bucket."""
        return self.uri(self._bucket(), self.port)

    def uri(self, bucket: str, port: int) -> str:
        options = f"scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{port}"
        return f"s3://{bucket}/some/place?{options}"

    def through(self, uri: str, port: int) -> str:
        """The same URI, at another port."""
        return uri.replace(f":{self.port}", f":{port}")

    def _bucket(self) -> str:
        name = f"b{uuid.uuid4().hex}"
        self.request("PUT", f"/{name}")
        return name

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """A request with an administrator's rights."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, {"Authorization": SIGNED})
        answer = connection.getresponse()
        found = answer.read()
        assert answer.status < 300, found
        return found


SIGNED = "AWS4-HMAC-SHA256 Credential=tester/20260101/us-east-1/s3/aws4_request"


@contextmanager
def running() -> Iterator[Server]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield Server(server.get_host_and_port()[1])
    finally:
        server.stop()


class Lossy:
    """Passes requests on, except faults: `lose(method, times)` requests are carried out and not
    answered, `refuse(...)` requests are not carried out."""

    def __init__(self, port: int) -> None:
        self.behind = port
        self.faults: dict[str, list[str]] = {}
        self.seen: list[str] = []
        self.port = 0

    def lose(self, method: str, times: int) -> None:
        self.faults[method] = ["lose"] * times

    def refuse(self, method: str, times: int) -> None:
        self.faults[method] = ["refuse"] * times


@contextmanager
def lossy(server: Server) -> Iterator[Lossy]:
    state = Lossy(server.port)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            state.seen.append(self.command)
            body = self._body()
            fault = state.faults[self.command].pop() if state.faults.get(self.command) else ""
            if fault != "refuse":
                behind = http.client.HTTPConnection("127.0.0.1", state.behind, timeout=30)
                behind.request(self.command, self.path, body, dict(self.headers))
                answer = behind.getresponse()
                content = answer.read()
            if fault:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def _body(self) -> bytes:
            if self.headers.get("Expect") == "100-continue":
                self.send_response_only(100)
                self.end_headers()
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            del self.headers["Transfer-Encoding"]
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def log_message(self, *_: object) -> None:
            pass

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        state.port = proxy.server_address[1]
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            proxy.shutdown()
