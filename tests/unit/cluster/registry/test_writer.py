"""One process writes a registry; who takes its place keeps it from writing any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.coordinator.core import Coordinator
from cluster.registry import Registry
from tacl.errors import HomeInUse, StorageUnavailable
from tests.support.fakes import ADMIN, FakeLauncher, Scene, submission
from tests.support.postgres import Server
from tests.support.registry_scene import BASE, GENERIC_BLOB, accept


def test_who_was_superseded_writes_no_more(tmp_path: Path) -> None:
    """SQLite has no lock of a session: the epoch alone keeps two from writing."""
    url = f"sqlite:///{tmp_path / 'registry.db'}"
    first, second = Registry(url), Registry(url)
    first.founded(BASE, GENERIC_BLOB)
    first.acquire_writer()
    accept(first, "a")
    first.check_writer()
    second.acquire_writer()
    with pytest.raises(HomeInUse, match="another cluster writes the registry sqlite"):
        accept(first, "b")
    with pytest.raises(HomeInUse):
        first.check_writer()
    accept(second, "c")
    assert [task.name for task in first.tasks()] == ["a", "c"]
    first.close()
    second.close()


@pytest.mark.postgres
def test_a_writer_whose_connection_was_cut_is_superseded_and_ends(
    tmp_path: Path, postgres_server: Server
) -> None:
    first = Scene(tmp_path, registry=postgres_server.new_database())
    first.submit("a")
    process = first.process("train")
    postgres_server.hang_up()
    second = Coordinator(tmp_path, launcher := FakeLauncher())
    with pytest.raises(HomeInUse, match="another cluster writes the registry postgresql"):
        first.submit("b")
    with pytest.raises(HomeInUse):
        first.known(process.work.run_id, 0)
    with pytest.raises((HomeInUse, StorageUnavailable)):
        first.coordinator._registry.check_writer()  # it finds its connection cut
    with pytest.raises(HomeInUse):
        first.coordinator.tick()
    second.submit(ADMIN, submission(first.home, "c"))
    second.tick()
    assert [task.name for task in second.status(ADMIN).tasks] == ["a", "c"]
    assert len(launcher.running()) == 2
    second.close()


@pytest.mark.postgres
def test_a_connection_that_was_cut_is_made_again_with_its_lock(
    tmp_path: Path, postgres_server: Server
) -> None:
    url = postgres_server.new_database()
    scene = Scene(tmp_path, registry=url)
    postgres_server.hang_up()
    scene.coordinator.tick()
    assert "connection" in str(scene.coordinator.status(ADMIN).trouble)
    scene.coordinator.tick()
    assert scene.coordinator.status(ADMIN).trouble is None
    scene.submit("a")
    other = Registry(url)
    with pytest.raises(HomeInUse):
        other.acquire_writer()
    scene.coordinator.tick()
    scene.coordinator.close()


@pytest.mark.postgres
def test_a_standby_takes_no_writes_now(postgres_server: Server) -> None:
    Registry(url := postgres_server.new_database()).close()
    standby = Registry(f"{url}%20-cdefault_transaction_read_only%3Don")
    with pytest.raises(StorageUnavailable, match="read-only transaction"):
        standby.acquire_writer()
    standby.close()
