"""A connection to PostgreSQL is cut while its commit is under way: the server ends that all the
same, after somebody could have asked whether it did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.domain.outcomes import Finished
from cluster.registry.timeouts import TimeoutConnection
from cluster.scheduler.state import Node
from tacl.errors import StorageUnavailable
from tests.support.fakes import Scene, asks, calm, result_of
from tests.support.postgres import Server

pytestmark = pytest.mark.postgres
SECONDS = 1.5  # that a commit takes


def slow_to_commit(scene: Scene, change: str) -> None:
    with scene.coordinator._registry._write() as db:
        db.exec_driver_sql(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql "
            f"AS 'BEGIN PERFORM pg_sleep({SECONDS}); RETURN NULL; END'"
        )
        db.exec_driver_sql(
            f"CREATE CONSTRAINT TRIGGER slow AFTER {change} DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION slow()"
        )


@contextmanager
def next_commit_cut() -> Iterator[None]:
    real = TimeoutConnection.commit
    with pytest.MonkeyPatch.context() as patch:

        def cut(connection: TimeoutConnection) -> None:
            patch.undo()
            connection.answer_timeout = SECONDS / 5
            real(connection)

        patch.setattr(TimeoutConnection, "commit", cut)
        yield
        assert TimeoutConnection.commit is real, "nothing was committed"


def test_a_request_is_answered_as_it_ends(tmp_path: Path, postgres_server: Server) -> None:
    """Not as it was when its connection was cut: its answer, found later, would start nothing."""
    scene = Scene(tmp_path, registry=postgres_server.new_database())
    slow_to_commit(scene, "INSERT ON request")
    with next_commit_cut():
        scene.submit("digits")
    assert scene.process("train", "digits")
    scene.coordinator.close()


def test_the_registry_is_read_again_as_it_is_then(tmp_path: Path, postgres_server: Server) -> None:
    scene = Scene(tmp_path, Node(2), registry=postgres_server.new_database())
    scene.submit("digits")
    scene.submit("shapes", share="statistics")
    slow_to_commit(scene, "UPDATE ON shard")
    blob = scene.home.blobs().put(b"statistics of shapes")
    with next_commit_cut(), pytest.raises(StorageUnavailable):
        scene.coordinator.publish_statistics(scene.process("train", "shapes").work.run_id, blob, 1)
    told = scene.known(scene.process("train", "digits").work.run_id, 0)
    assert [shard.statistics for shard in told] == [None, blob]
    scene.coordinator.close()


def test_a_task_whose_vector_is_being_published_is_not_taken_away(
    tmp_path: Path, postgres_server: Server
) -> None:
    """Who cancels its training comes too late."""
    scene = Scene(tmp_path, registry=postgres_server.new_database())
    scene.submit("digits")
    process = scene.process("train", "digits")
    told = scene.known(process.work.run_id, 0)
    process.outcome = Finished(result_of(process.work, scene.home.blobs(), calm, told))
    slow_to_commit(scene, "INSERT ON vector")
    with next_commit_cut():
        scene.coordinator.tick()
    answer = scene.coordinator.cancel(asks("stop"), "digits")
    assert (answer.left, answer.cancelled) == (False, ())
    assert scene.ready() == ["digits"]
    scene.coordinator.close()
