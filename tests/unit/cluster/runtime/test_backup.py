"""A home that is destroyed is there again from its backup, whatever happened while it was taken."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster import failpoints
from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.compositions import CompositionMethod
from cluster.runtime import backup as backups
from cluster.runtime import local_socket
from cluster.runtime.backup import backup, restore
from cluster.runtime.doctor import damage
from cluster.storage.blobs import Blobs
from cluster.storage.filesystem import Storage
from cluster.storage.home import Home, Running, write
from tacl.errors import BadConfig, CorruptBlob, DataNotFound, HomeInUse, StorageUnavailable
from tests.support.budget import budget
from tests.support.fakes import ADMIN, FakeLauncher, Scene, asks, new_home, task_of


def quiet(done: int, total: int) -> None:
    """Nobody is told."""


def lived(path: Path, registry: str | None = None) -> Scene:
    """Tasks with vectors, a model, one task that was purged."""
    scene = Scene(path, registry=registry).trained("digits", "faces", "gone")
    call = scene.coordinator
    call.compose(asks("compose"), "alice", ["+digits", "-0.5*faces"])
    call.remove(asks("purge"), "gone", True)
    call.tick()
    return scene


def told(coordinator: Coordinator) -> list[Any]:
    """What does not change when a process is started again."""
    tasks = coordinator.status(ADMIN).tasks
    return [
        [(task.name, task.version) for task in tasks],
        coordinator.vectors(ADMIN, None),
        coordinator.users(ADMIN),
        coordinator.interference(ADMIN),
        [coordinator.aliases(ADMIN, task.name) for task in tasks],
    ]


def again(source: str | Path, path: Path, **where: str) -> tuple[Home, Coordinator]:
    """Restored and opened."""
    home = Home(path)
    restore(source, home, where.get("storage"), where.get("registry"), quiet)
    assert not readable_by_others(path)
    assert list(damage(home)) == []
    return home, Coordinator(path, FakeLauncher())


def readable_by_others(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]


def test_a_destroyed_home_answers_as_before(tmp_path: Path, storage_uri: str) -> None:
    scene = lived(tmp_path / "home")
    scene.submit("signs")
    found = backup(scene.home, storage_uri, quiet)
    before = told(scene.coordinator)
    scene.coordinator.close()
    shutil.rmtree(scene.home.path)
    home, coordinator = again(storage_uri, tmp_path / "home")
    assert told(coordinator) == before
    assert found.tasks == 3
    assert found.files == len(list(home.blobs().stored()))
    launcher = coordinator._execution._launcher
    assert isinstance(launcher, FakeLauncher)
    assert "signs" in [task_of(one.work) for one in launcher.running()]  # it was accepted
    coordinator.close()


def test_a_disk_that_is_full_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, kept = lived(tmp_path / "home"), tmp_path / "kept"
    backup(scene.home, kept, quiet)
    scene.coordinator.close()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # without the name of a file

    monkeypatch.setattr(Storage, "write", full)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageUnavailable, match=r"kept cannot be written: No space left"):
        backup(scene.home, kept, quiet)
    with pytest.raises(StorageUnavailable, match=r"new cannot be written: No space left"):
        restore(kept, Home(tmp_path / "new"), None, None, quiet)
    assert not (tmp_path / "new").exists()


def test_a_copy_of_the_registry_that_is_not_whole_is_no_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk SQLite closes it without an error, and leaves rows in the file beside it."""
    scene, kept = lived(tmp_path / "home"), tmp_path / "kept"
    backup(scene.home, kept, quiet)
    before = told(scene.coordinator)
    scene.submit("signs")
    readers = list[sqlite3.Connection]()

    def reads(step: str) -> None:
        if step == "registry copy committed":  # with a reader, too, the rows stay there
            (path,) = scene.home.path.glob("cache/drafts/*/files/snapshot.sqlite")
            readers.append(sqlite3.connect(path))
            readers[0].execute("SELECT count(*) FROM task").fetchall()

    monkeypatch.setattr(failpoints, "watch", reads)
    with pytest.raises(StorageUnavailable, match="is incomplete: its disk may be full"):
        backup(scene.home, kept, quiet)
    monkeypatch.setattr(failpoints, "watch", None)
    readers[0].close()
    _, coordinator = again(kept, tmp_path / "again")
    assert told(coordinator) == before
    scene.coordinator.close()
    coordinator.close()


def test_a_home_on_a_disk_that_nobody_may_write_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, usual = new_home(tmp_path / "home"), Path.touch

    def touch(path: Path, *how: Any, **more: Any) -> None:
        if path.is_relative_to(home.path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        usual(path, *how, **more)

    monkeypatch.setattr(Path, "touch", touch)
    with pytest.raises(StorageUnavailable, match=r"home/backup\.lock cannot be written: Read-only"):
        backup(home, tmp_path / "kept", quiet)


def test_a_file_that_cannot_be_read_is_told_as_such(tmp_path: Path) -> None:
    """And not that there is no room where it was to be written."""
    home, kept = lived(tmp_path / "home").home, tmp_path / "kept"
    backup(home, kept, quiet)
    files, own = Blobs(kept / "files"), {one.digest for one in home.blobs().stored()}
    (registry,) = {one.digest for one in files.stored()} - own
    again = partial(restore, kept, Home(tmp_path / "new"), None, None, quiet)
    anew = partial(backup, home, tmp_path / "other", quiet)
    harms = (min(own), files, again), (registry, files, again), (min(own), home.blobs(), anew)
    for digest, blobs, asked in harms:
        path = blobs.local_path(digest)
        path.unlink()
        path.mkdir()  # as on a broken disk, or another user's
        with pytest.raises(StorageUnavailable, match=f"cannot be read: .*{digest}"):
            asked()
        path.rmdir()


@pytest.mark.postgres
def test_a_registry_moves_between_servers_and_files(tmp_path: Path, postgres_server: Any) -> None:
    scene = lived(tmp_path / "home", registry=postgres_server.new_database())
    backup(scene.home, tmp_path / "kept", quiet)
    before = told(scene.coordinator)
    scene.coordinator.close()
    url = postgres_server.new_database()
    for number, where in enumerate(({}, {"registry": url})):
        _, coordinator = again(tmp_path / "kept", tmp_path / f"home {number}", **where)
        assert told(coordinator) == before
        coordinator.compose(RequestContext(request_id="next"), "bob", ["+digits"])  # it counts on
        coordinator.close()
    with pytest.raises(HomeInUse, match="keeps a home"):
        restore(tmp_path / "kept", Home(tmp_path / "third"), None, url, quiet)
    assert not (tmp_path / "third").exists()


def test_a_home_moves_to_a_bucket(
    tmp_path: Path, s3_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its backup goes on from there: it is the same home."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scene, kept = lived(tmp_path / "home"), tmp_path / "kept"
    backup(scene.home, kept, quiet)
    bucket = s3_server.new_bucket()
    home, coordinator = again(kept, tmp_path / "again", storage=bucket)
    assert told(coordinator) == told(scene.coordinator)
    assert not (home.path / "blobs").exists()
    other = Home.at(bucket)  # as another node finds it
    assert other.founded() == home.founded()
    assert backup(home, kept, quiet).copied == 0
    assert backup(home, s3_server.new_bucket(), quiet).copied > 0
    coordinator.close()


def test_what_is_new_is_copied_and_what_was_purged_is_erased(tmp_path: Path) -> None:
    scene, kept = lived(tmp_path / "home"), tmp_path / "kept"
    first = backup(scene.home, kept, quiet)
    assert first.copied == first.files
    scene.trained("signs")
    scene.coordinator.remove(asks("purge faces"), "faces", True)
    half = kept / "files/ab/.abc"
    half.parent.mkdir(exist_ok=True)
    half.write_bytes(b"rows of faces")  # as by a backup that was killed
    again_ = backup(scene.home, kept, quiet)
    assert 0 < again_.copied < 8
    assert again_.deleted > 1
    assert not half.exists()
    there = {one.digest for one in Blobs(kept / "files").stored()}
    assert len(there) == again_.files + 1  # the registry
    faces = scene.coordinator._registry.references_of("faces").keys()
    assert not there & (faces - scene.coordinator._registry.referenced().keys())


ACTIONS = ("submit", "finish", "purge", "collect", "merge", "nothing")


class Meanwhile:
    """Does things to a home whenever a file was copied; remembers the last moment taken."""

    def __init__(self, scene: Scene, actions: list[str]) -> None:
        self._scene, self._actions, self._busy = scene, iter(actions), False
        self._numbers = itertools.count()
        self.then: list[Any] = []

    def __call__(self, step: str) -> None:
        if self._busy or step not in ("blob stored", "registry copy committed"):
            return
        self._busy = True
        if step == "registry copy committed":
            self.then = told(self._scene.coordinator)
        else:
            getattr(self, next(self._actions, "nothing"))(f"t{next(self._numbers)}")
        self._busy = False

    def nothing(self, name: str) -> None: ...

    def submit(self, name: str) -> None:
        self._scene.submit(name, refresh="never")

    def finish(self, name: str) -> None:
        for process in self._scene.launcher.running()[:1]:
            self._scene.finish_process(process)

    def purge(self, name: str) -> None:
        for task in self._scene.coordinator.status(ADMIN).tasks[:1]:
            self._scene.coordinator.remove(asks(name), task.name, True)
            self._scene.coordinator.tick()

    def merge(self, name: str) -> None:
        for task in self._scene.ready()[:1]:
            how = CompositionMethod(method="ties")
            self._scene.coordinator.start_composition(asks(name), "alice", [f"+{task}"], how)

    def collect(self, name: str) -> None:
        for path in (self._scene.home.path / "blobs").glob("*/*"):
            os.utime(path, (0, 0))  # older than garbage must be
        self._scene.coordinator.collect()


@settings(max_examples=budget(40), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(ACTIONS), max_size=24))
def test_a_home_that_is_used_meanwhile(actions: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scene = lived(Path(folder) / "home")
        meanwhile = Meanwhile(scene, actions)
        failpoints.watch = meanwhile
        try:
            backup(scene.home, Path(folder) / "kept", quiet)
        finally:
            failpoints.watch = None
        _, coordinator = again(Path(folder) / "kept", Path(folder) / "again")
        assert told(coordinator) == meanwhile.then
        coordinator.close()
        scene.coordinator.close()


def test_a_backup_that_ends_early_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, kept = lived(tmp_path / "home"), tmp_path / "kept"
    backup(scene.home, kept, quiet)
    before = told(scene.coordinator)
    scene.trained("signs")

    def full(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup(scene.home, kept, full)
    assert told(again(kept, tmp_path / "again")[1]) == before


def damaged(path: Path) -> Callable[[], object]:
    return lambda: path.write_bytes(b"altered" + path.read_bytes()[7:])


def test_damage_is_said_and_nothing_is_restored(tmp_path: Path) -> None:
    scene, kept = lived(tmp_path / "home"), tmp_path / "kept"
    backup(scene.home, kept, quiet)
    vector = scene.coordinator.composition(ADMIN, "alice").terms[0].vector.blob
    path = kept / "files" / vector[:2] / vector
    damaged(path)()
    with pytest.raises(CorruptBlob, match=vector):
        restore(kept, Home(tmp_path / "again"), None, None, quiet)
    assert not (tmp_path / "again").exists()
    path.unlink()
    damaged(Path(scene.home.blobs().local_path(vector)))()
    with pytest.raises(CorruptBlob, match=vector):  # the home's own file, on its way to the target
        backup(scene.home, kept, quiet)


def test_damage_in_a_backup_is_repaired_when_it_is_verified(tmp_path: Path) -> None:
    scene, kept = lived(tmp_path / "home"), tmp_path / "kept"
    backup(scene.home, kept, quiet)
    one, other, *_ = sorted(blob.digest for blob in scene.home.blobs().stored())
    damaged(kept / "files" / one[:2] / one)()
    (unreadable := kept / "files" / other[:2] / other).unlink()
    unreadable.write_bytes(b"short")
    assert backup(scene.home, kept, quiet).copied == 1  # of another size
    assert backup(scene.home, kept, quiet, verify=True).copied == 1
    again(kept, tmp_path / "again")[1].close()
    assert backup(scene.home, kept, quiet, verify=True).copied == 0
    scene.coordinator.close()


def test_a_file_that_cannot_be_read_in_a_bucket_is_repaired(tmp_path: Path, s3_server: Any) -> None:
    scene, bucket = lived(tmp_path / "home"), s3_server.new_bucket()
    backup(scene.home, bucket, quiet)
    one = min(blob.digest for blob in scene.home.blobs().stored())
    place = Storage(bucket).below("files")
    place.write(f"{one[:2]}/{one}", bytes(len(place.read(f"{one[:2]}/{one}") or b"")))
    assert backup(scene.home, bucket, quiet, verify=True).copied == 1
    again(bucket, tmp_path / "again")[1].close()
    scene.coordinator.close()


def test_a_backup_is_closed_to_others(tmp_path: Path) -> None:
    scene, kept = lived(tmp_path / "home"), tmp_path / "kept"
    before = os.umask(0o022)
    try:
        backup(scene.home, kept, quiet)
    finally:
        os.umask(before)
    assert not readable_by_others(kept)
    scene.coordinator.close()


def test_what_is_refused(tmp_path: Path) -> None:
    scene, kept = lived(tmp_path / "home"), tmp_path / "kept"
    with pytest.raises(BadConfig, match="lies in the home"):
        backup(scene.home, scene.home.path / "kept", quiet)
    with pytest.raises(DataNotFound, match="no backup"):
        restore(kept, Home(tmp_path / "again"), None, None, quiet)
    assert not kept.exists()
    backup(scene.home, kept, quiet)
    with pytest.raises(HomeInUse, match="not empty"):
        restore(kept, scene.home, None, None, quiet)
    other = Scene(tmp_path / "other")
    with pytest.raises(HomeInUse, match="another home"):
        backup(other.home, kept, quiet)
    with backups._alone(scene.home), pytest.raises(HomeInUse, match="under way"):
        backup(scene.home, kept, quiet)
    storage = str(tmp_path / "storage")
    restore(kept, Home(tmp_path / "1"), storage, None, quiet)
    with pytest.raises(BadConfig, match="lies in the home"):
        backup(Home(tmp_path / "1"), f"{storage}/kept", quiet)
    with pytest.raises(HomeInUse, match="storage of a home"):
        restore(kept, Home(tmp_path / "2"), storage, None, quiet)
    with pytest.raises(BadConfig, match="PGPASSWORD"):
        restore(kept, Home(tmp_path / "3"), None, "postgresql://u@h/x?sslpassword=x", quiet)
    copied = list[tuple[int, ...]]()
    count = lambda *files: copied.append(files)  # noqa: E731
    with pytest.raises(HomeInUse, match="keeps a home"):
        restore(kept, Home(tmp_path / "3"), None, other.home.registry_url, count)
    assert copied == []
    with pytest.raises(Exception, match="never started"):
        backup(new_home(tmp_path / "new"), tmp_path / "nothing", quiet)


@pytest.mark.parametrize(
    ("target", "inside"),
    [("s3://b/home", True), ("s3://b/home/kept", True), ("s3://b/homes", False), ("s3://b", False)],
)
def test_a_target_within_a_bucket(target: str, inside: bool) -> None:
    options = "?endpoint_override=one:9000"
    assert backups._lies_in(target + options, f"s3://b/home/{options}") is inside
    assert not backups._lies_in(target, f"s3://b/home{options}")  # of another server
    assert backups._lies_in(f"{target}?region=eu-central-1", "s3://b/home") is inside


def test_a_head_that_is_not_seen_may_be_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from another container, whose processes have other numbers."""
    home = lived(tmp_path / "home").home
    write(home.running_file, Running(pid=2**22 + 1, address="127.0.0.1:1", token=None))
    monkeypatch.setattr(Home, "_locked", lambda self: True)
    with pytest.raises(HomeInUse, match="another machine"):
        backup(home, tmp_path / "target", quiet)
    monkeypatch.setattr(local_socket, "answers", lambda *_: True)
    assert backup(home, tmp_path / "target", quiet).files > 0
