"""A home that runs, its backup, and the home again after everything of it was deleted."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.client.client import Client
from cluster.runtime.connection import leave
from cluster.storage.home import Home
from tests.integration.test_head import sentences, start_head, until
from tests.support.fakes import ADMIN, submission


@contextmanager
def running(home: Home, *options: str) -> Iterator[Client]:
    process = start_head(home, *options)
    try:
        until(lambda: home.running() or process.poll() is not None, "the head is ready", 120)
        assert home.running(), process.communicate()[0]
        yield Client(home.path)
    finally:
        leave(home)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


@pytest.mark.ray
@pytest.mark.nightly
def test_a_home_is_deleted_and_restored(tmp_path: Path) -> None:
    home, kept = Home(tmp_path / "home"), tmp_path / "kept"
    with running(home, "--base", "fake:encoder", "--generic", str(sentences(tmp_path))) as client:
        client.coordinator.submit(ADMIN, submission(home, "a"))
        client.wait("a")
        client.coordinator.submit(ADMIN, submission(home, "b"))
        until(lambda: client.task("b").step, "b trains")
        client.compose("ann", ["+a"])
        before = client.vectors("a"), client.composition("ann"), client.users()
        assert client.backup(kept).tasks == 2
        shutil.rmtree(home.path / "blobs")
    shutil.rmtree(home.path)
    Client(home.path).restore(kept)
    with running(home) as client:
        client.wait()
        assert (client.vectors("a"), client.composition("ann"), client.users()) == before
        assert client.task("b").version == 1
        assert all(check.ok for check in client.doctor() if check.check == "storage")
