"""A disk that is full, read-only or lies: a clear error or another try, never a wrong model."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cluster.client.client import Client
from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.compositions import CompositionMethod
from cluster.domain.outcomes import Finished
from cluster.domain.work import Progress
from cluster.runtime import doctor
from cluster.runtime.doctor import Check, damage
from cluster.scheduler import plan
from cluster.storage import home as home_module
from cluster.storage.checkpoints import Checkpoints
from tacl.errors import CorruptBlob, RunFailed, StorageUnavailable
from tests.support.fakes import ADMIN, FakeLauncher, Scene, asks, calm, result_of, submission
from tests.support.kept import newest
from tests.support.lost import lost_answer


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture(params=[errno.ENOSPC, errno.EROFS])
def broken_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """No file can be written any more; what is there can be read."""
    real = Path.open

    def opened(path: Path, mode: str = "r", *arguments: object, **options: object) -> object:
        if set(mode) & set("wxa+"):
            raise OSError(request.param, os.strerror(request.param), str(path))
        return real(path, mode, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", opened)
    return request.param


def pragma(scene: Scene, text: str) -> Callable[[], None]:
    """Of every connection of the registry; what is returned ends it."""
    engine = scene.coordinator._registry._engine

    def say(pragma: str) -> None:
        with engine.connect() as db:
            db.exec_driver_sql(f"PRAGMA {pragma}")

    say(text)
    return lambda: say(text.split("=")[0] + "=" + ("0" if "only" in text else "1000000"))


def full(scene: Scene) -> Callable[[], None]:
    """The registry's file can grow no more: SQLite itself finds the disk full."""
    with scene.coordinator._registry._engine.connect() as db:
        pages = db.exec_driver_sql("PRAGMA page_count").scalar()
    return pragma(scene, f"max_page_count={pages}")


def read_only(scene: Scene) -> Callable[[], None]:
    return pragma(scene, "query_only=1")


# -- blobs


def test_a_blob_that_cannot_be_written_is_said(scene: Scene, broken_disk: int) -> None:
    with pytest.raises(StorageUnavailable, match=os.strerror(broken_disk)):
        scene.home.blobs().put(b"more")
    folder = Path(scene.home.blobs()._root)
    assert not [path for path in folder.rglob(".*") if path.is_file()]


@pytest.mark.parametrize("harm", ["truncated", "altered", "deleted"])
def test_a_vector_that_was_harmed_is_not_published(scene: Scene, harm: str) -> None:
    scene.submit("digits")
    process = scene.process("train")
    told = scene.known(process.work.run_id, 0)
    result = result_of(process.work, scene.home.blobs(), calm, told)
    hurt(scene.home.blobs().local_path(result.vector_blob), harm)  # type: ignore[union-attr]
    scene.end(Finished(result), "train")
    # What is gone is worked out again; what is wrong says that something is.
    assert scene.task("digits").state == ("training" if harm == "deleted" else "failed")
    assert result.vector_blob in str(scene.task("digits").reason)  # type: ignore[union-attr]
    assert not scene.coordinator.vectors(ADMIN, "digits")


def hurt(path: Path, harm: str) -> None:
    if harm == "deleted":
        path.unlink()
    elif harm == "unreadable":  # as on a broken disk, or another user's
        path.unlink()
        path.mkdir()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-1] if harm == "truncated" else bytes([data[0] ^ 1]) + data[1:])


@pytest.mark.parametrize("harm", ["truncated", "altered", "deleted"])
def test_samples_that_were_harmed_do_not_grow(scene: Scene, harm: str) -> None:
    scene.trained("digits")
    old = scene.coordinator._shards["digits"].blob
    more = submission(scene.home, "more").shard
    hurt(scene.home.blobs().local_path(old.digest), harm)
    with pytest.raises(CorruptBlob, match=old.digest):
        scene.coordinator.add_samples(asks("grow"), "digits", more)
    assert len(scene.coordinator._registry.shards("digits")) == 1


# -- the registry


@pytest.mark.parametrize("fault", [full, read_only])
def test_what_cannot_be_recorded_is_refused_and_can_be_repeated(
    scene: Scene, fault: Callable[[Scene], Callable[[], None]]
) -> None:
    big = submission(scene.home, "digits", classes=tuple(f"class {n}" for n in range(3000)))
    mend = fault(scene)
    with pytest.raises(StorageUnavailable, match="registry"):
        scene.coordinator.submit(ADMIN, big)
    assert not scene.running()
    mend()
    scene.coordinator.tick()
    assert scene.coordinator.submit(ADMIN, big).task == "digits"
    scene.settle()
    assert scene.ready() == ["digits"]


def test_a_result_waits_until_it_can_be_recorded(scene: Scene) -> None:
    scene.submit("digits")
    mend = read_only(scene)
    process = scene.process("train")
    result = result_of(process.work, scene.home.blobs(), calm)
    process.outcome = Finished(result)
    scene.coordinator.tick()
    assert "readonly" in str(scene.coordinator.status(ADMIN).trouble)
    with pytest.raises(StorageUnavailable):  # a run waits for it, too: `cluster.runtime.connection`
        scene.known(process.work.run_id, 1, Progress(step=1, steps=3, loss=1.0))
    mend()
    scene.coordinator.tick()
    assert scene.coordinator.status(ADMIN).trouble is None
    assert scene.task("digits").version == 1


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("asked_at_once", [True, False])
def test_a_commit_of_unknown_outcome_is_looked_up(
    scene: Scene, landed: bool, asked_at_once: bool
) -> None:
    """The connection is lost with the answer: the request's id says whether it was recorded."""
    sent = submission(scene.home, "digits")
    with lost_answer(scene, "accept", landed, asked_at_once):
        if landed and asked_at_once:
            scene.coordinator.submit(ADMIN, sent)
        else:
            with pytest.raises(StorageUnavailable):
                scene.coordinator.submit(ADMIN, sent)
    scene.coordinator.tick()
    assert len(scene.running()) == landed  # trained once, also when nobody repeats the request
    accepted = scene.coordinator.submit(ADMIN, sent)
    assert [work.run_id for work in scene.running()] == [accepted.run_id]
    scene.settle()
    assert scene.ready() == ["digits"]


@pytest.mark.parametrize("repeated", [True, False])
def test_what_follows_a_commit_is_carried_out_though_it_could_not_be_read(
    scene: Scene, repeated: bool
) -> None:
    """The registry is away right after it recorded a request."""
    scene.trained("shapes")
    call, sent = scene.coordinator, submission(scene.home, "digits")
    with pytest.MonkeyPatch.context() as away:
        away.setattr(call._registry, "run", unavailable)
        with pytest.raises(StorageUnavailable):
            call.submit(ADMIN, sent)
    if repeated:
        assert call.submit(ADMIN, sent).task == "digits"
    call.tick()
    assert scene.process("train", "digits")
    with pytest.MonkeyPatch.context() as away:
        away.setattr(plan, "handle", unavailable)
        with pytest.raises(StorageUnavailable):
            call.cancel(asks("stop"), "digits")
    call.tick()
    assert not scene.running()
    assert call.status(ADMIN).trouble is None


def test_a_vector_that_may_be_published_is_not_cancelled(scene: Scene) -> None:
    scene.submit("digits")
    process = scene.process("train")
    process.outcome = Finished(result_of(process.work, scene.home.blobs(), calm))
    with lost_answer(scene, "publish"):
        scene.coordinator.tick()
    assert scene.coordinator.cancel(asks("cancel"), "digits").left is False
    assert scene.task("digits").version == 1


def test_a_death_whose_record_may_have_landed_is_counted_once(scene: Scene) -> None:
    scene.submit("digits")
    with lost_answer(scene, "requeue"):
        scene.die("train")
    while not scene.running():  # it is tried again now and then
        time.sleep(0.02)
        scene.coordinator.tick()
    run_id = scene.process("train").work.run_id
    assert scene.coordinator._registry.run(run_id).deaths == 1


def unavailable(*_: object) -> None:
    raise StorageUnavailable("the registry is away")


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("repeated", ["before", "after"])
def test_a_cancel_of_unknown_outcome_stops_what_it_cancelled(
    scene: Scene, landed: bool, repeated: str
) -> None:
    scene.submit("digits")
    process = scene.process("train")
    process.outcome = Finished(result_of(process.work, scene.home.blobs(), calm))
    with lost_answer(scene, "cancel", landed), pytest.raises(StorageUnavailable):
        scene.coordinator.cancel(asks("stop"), "digits", keep=True)
    if repeated == "before":  # anybody looked after what runs
        scene.coordinator.cancel(asks("stop"), "digits", keep=True)
    scene.coordinator.tick()
    assert scene.coordinator.status(ADMIN).trouble is None
    if landed or repeated == "before":
        assert process.cancelled
        assert (scene.task("digits").state, scene.ready()) == ("cancelled", [])
        scene.coordinator.retry(RequestContext(), "digits")
        scene.settle()
    assert scene.ready() == ["digits"]


def test_a_making_that_may_have_been_cancelled_gives_no_model(scene: Scene) -> None:
    scene.trained("digits", "shapes")
    before = scene.coordinator.compose(asks("before"), "alice", ["+digits"])
    ties = CompositionMethod(method="ties")
    run_id = scene.coordinator.start_composition(
        asks("make"), "alice", ["+digits", "+shapes"], ties
    ).run_id
    process = scene.process("compose")
    with lost_answer(scene, "cancel"), pytest.raises(StorageUnavailable):
        scene.coordinator.cancel_compositions(asks("stop"), "alice")
    scene.coordinator.tick()
    assert scene.coordinator.cancel_compositions(asks("stop"), "alice").cancelled == (run_id,)
    assert process.cancelled
    assert not scene.running()
    assert scene.coordinator.composition(ADMIN, "alice") == before


@pytest.mark.parametrize("first", ["tick", "known"])
def test_a_purge_of_unknown_outcome_is_carried_out(scene: Scene, first: str) -> None:
    """Whoever comes first afterwards: the process that met what is purged, too."""
    scene.trained("digits", "shapes")
    mine = scene.coordinator._registry.references_of("digits")
    scene.submit("signs")
    process = scene.process("train", "signs")
    run_id = process.work.run_id
    assert "digits" in {shard.task for shard in scene.known(run_id, 0)}
    old = scene.home.path / "checkpoints" / run_id / "1"
    old.mkdir(parents=True)
    with lost_answer(scene, "remove"), pytest.raises(StorageUnavailable):
        scene.coordinator.remove(asks("purge"), "digits", True)
    if first == "known":
        with pytest.raises(RunFailed):
            scene.known(run_id, 1, attempt=1)
    scene.coordinator.tick()
    assert process.cancelled
    assert not old.exists()
    assert not any(scene.home.blobs().exists(digest) for digest in mine)
    assert scene.coordinator._registry.erasures() == []
    scene.settle()
    assert scene.ready() == ["shapes", "signs"]
    (vector,) = scene.coordinator.vectors(ADMIN, "signs")
    assert "digits" not in {met.task for met in vector.arrivals}


def test_what_waits_forgets_what_a_purge_of_unknown_outcome_took(scene: Scene) -> None:
    """A run without a process, too, has checkpoints that met the samples."""
    scene.trained("digits")
    scene.submit("signs")
    run_id = scene.process("train", "signs").work.run_id
    scene.known(run_id, 0)
    old = scene.home.path / "checkpoints" / run_id / "1"
    old.mkdir(parents=True)
    scene.coordinator.cancel(asks("stop"), "signs", keep=True)
    with lost_answer(scene, "remove"), pytest.raises(StorageUnavailable):
        scene.coordinator.remove(asks("purge"), "digits", True)
    scene.coordinator.tick()
    assert not old.exists()
    assert not scene.running()


def test_what_runs_rightly_runs_on_after_a_commit_of_unknown_outcome(scene: Scene) -> None:
    scene.submit("digits")
    process = scene.process("train")
    told = scene.known(process.work.run_id, 0, attempt=1)
    kept = scene.home.path / "checkpoints" / process.work.run_id / "1"
    kept.mkdir(parents=True)
    with lost_answer(scene, "accept"), pytest.raises(StorageUnavailable):
        scene.submit("shapes")
    scene.coordinator.tick()
    assert not process.cancelled
    assert kept.exists()
    assert scene.known(process.work.run_id, 0, attempt=1) == told
    assert [work.attempt for work in scene.running()] == [1, 1]


@pytest.mark.parametrize("landed", [True, False])
def test_what_a_run_was_told_by_a_commit_of_unknown_outcome_it_is_told_again(
    scene: Scene, landed: bool
) -> None:
    """The run asks again, because nobody answered; a newcomer joins at that step, once."""
    scene.submit("digits")
    run_id = scene.process("train").work.run_id
    scene.known(run_id, 0, attempt=1)
    scene.submit("shapes")
    with lost_answer(scene, "grant_lease", landed), pytest.raises(StorageUnavailable):
        scene.known(run_id, 1, attempt=1)
    assert "shapes" in {shard.task for shard in scene.known(run_id, 1, attempt=1)}
    registry = scene.coordinator._registry
    assert [(a.step, a.shard.task) for a in registry.arrivals(run_id)] == [
        (0, "generic"),
        (1, "shapes"),
    ]
    scene.settle()
    assert scene.ready() == ["digits", "shapes"]


@pytest.mark.parametrize("landed", [True, False])
def test_a_retry_of_unknown_outcome_is_carried_out_once(scene: Scene, landed: bool) -> None:
    scene.submit("digits")
    scene.fail("train")
    with lost_answer(scene, "retry", landed), pytest.raises(StorageUnavailable):
        scene.coordinator.retry(asks("again"), "digits")
    again = scene.coordinator.retry(asks("again"), "digits")
    assert len(again.retried) == 1
    scene.settle()
    assert scene.ready() == ["digits"]


# -- checkpoints


def save(folder: Path) -> None:
    (folder / "tau").write_bytes(b"numbers")


@pytest.mark.parametrize("harm", ["truncated", "altered", "deleted"])
def test_a_checkpoint_that_was_harmed_is_passed_over(tmp_path: Path, harm: str) -> None:
    store = Checkpoints(tmp_path / "run")
    for step in (3, 6):
        store.write(step, save)
    assert newest(store) == 6
    hurt(tmp_path / "run" / "6" / "tau", harm)
    assert newest(store) == 3
    store.write(6, save)
    assert newest(store) == 6
    for step in (3, 6):
        hurt(tmp_path / "run" / str(step) / "tau", harm)
    assert newest(store) is None


# -- the doctor


def test_a_sound_home_has_no_damage(scene: Scene) -> None:
    """And nothing is left there, which root may have made who looked."""
    scene.trained("digits", "shapes")
    before = {*scene.home.path.glob("blobs/*")}
    assert list(damage(scene.home)) == []
    assert list(damage(scene.home, partial(scene.coordinator.references, ADMIN))) == []
    assert {*scene.home.path.glob("blobs/*")} == before


@pytest.mark.parametrize("harm", ["truncated", "altered", "deleted", "unreadable"])
def test_the_doctor_names_every_harmed_file(
    scene: Scene, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = Check(check="torch", ok=True, found="not looked at: it takes seconds")
    monkeypatch.setattr(doctor, "_libraries", lambda: fine)
    scene.trained("digits", "shapes")
    references = scene.coordinator.references(ADMIN).files
    named = [d for d, what in references.items() if "vector" in what or "head of digits" in what]
    assert len(named) == 3
    for digest in named:
        hurt(scene.home.blobs().local_path(digest), harm)
    found = list(damage(scene.home, partial(scene.coordinator.references, ADMIN)))
    assert len(found) == 3
    for digest in named:
        assert any(references[digest] in one and digest in one for one in found)
    client = Client(scene.home.path, scene.coordinator)
    checks = [check for check in client.doctor() if check.check == "storage"]
    assert [check.found for check in checks] == found
    assert not any(check.ok for check in checks)


def test_the_doctor_finds_a_broken_disk(scene: Scene, broken_disk: int) -> None:
    found = " ".join(damage(scene.home))
    word = "is full" if broken_disk == errno.ENOSPC else "Read-only"
    assert word in found
    assert "blobs" in found


def test_the_doctor_finds_a_damaged_registry(scene: Scene) -> None:
    scene.trained("digits")
    scene.coordinator.close()
    path = Path(scene.home.registry_url.removeprefix("sqlite:///"))
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 6] = os.urandom(4096 * 3)
    path.write_bytes(data)
    assert any("registry" in one and "damaged" in one for one in damage(scene.home))


def test_a_home_that_cannot_be_written_does_not_start_wrongly(
    scene: Scene, broken_disk: int
) -> None:
    """Settings are read; what is written is the old file or the new."""
    settings = scene.home.settings()
    assert settings is not None
    with pytest.raises(OSError):
        home_module.write(scene.home.settings_file, settings)
    assert scene.home.settings() == settings
    assert Coordinator(scene.home.path, FakeLauncher()).status(ADMIN).tasks == ()


def test_nobody_is_refused_because_nodes_could_not_be_asked_for(scene: Scene) -> None:
    scene.coordinator._execution.unsure = True
    with pytest.MonkeyPatch.context() as away:
        away.setattr(scene.launcher, "nodes", unavailable)
        scene.coordinator.tick()
    scene.submit("digits")
    scene.coordinator.tick()
    assert scene.running()
