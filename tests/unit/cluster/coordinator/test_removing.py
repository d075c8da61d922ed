"""Cancel, remove, purge, collect: what ends, what goes on, and whose bytes are gone."""

from __future__ import annotations

import os
import shutil
import time
import weakref
from pathlib import Path
from typing import NoReturn

import pytest

from cluster.coordinator import retries
from cluster.coordinator.garbage import GRACE, scan, unreferenced
from cluster.domain.base import BlobRef, RequestContext
from cluster.domain.compositions import CompositionMethod
from cluster.domain.outcomes import Finished, Gone, Outcome, Raised
from cluster.domain.receipts import CancelledTask, CollectedGarbage
from cluster.domain.status import RunState
from cluster.domain.tasks import GENERIC
from cluster.domain.work import RefreshWork, TrainWork
from cluster.registry import Request
from cluster.scheduler.state import Node
from cluster.storage.blobs import Stored
from tacl.errors import Erased, NameTaken, RunFailed, TaclError, UnknownTask
from tests.support.fakes import (
    ADMIN,
    BASE,
    Scene,
    asks,
    calm,
    loud,
    result_of,
    shard_blob,
    submission,
)
from tests.support.statements import statements


def on_disk(scene: Scene) -> set[str]:
    return {blob.digest for blob in scene.home.blobs().stored()}


def checkpoint(scene: Scene, run_id: str) -> Path:
    place = scene.home.path / "checkpoints" / run_id / "3"
    place.mkdir(parents=True)
    return place


# -- cancelling


def test_a_training_is_cancelled_and_taken_up_again(scene: Scene) -> None:
    for name in ("digits", "shapes", "signs"):
        scene.submit(name)
    process = scene.process("train", "digits")
    scene.known(process.work.run_id, 0)
    kept = checkpoint(scene, process.work.run_id)
    done = scene.coordinator.cancel(asks("stop"), "digits", keep=True)
    assert done == CancelledTask(task="digits", cancelled=(process.work.run_id,))
    assert process.cancelled
    assert scene.process("train", "signs")  # its room is free
    assert scene.task("digits").state == "cancelled"
    with pytest.raises(RunFailed, match="cancelled"):
        scene.coordinator.evaluation(ADMIN, process.work.run_id)
    with pytest.raises(RunFailed):
        scene.known(process.work.run_id, 1)
    scene.restart()
    assert scene.task("digits").state == "cancelled"
    assert scene.coordinator.cancel(asks("stop"), "digits", keep=True) == done
    scene.settle()
    assert scene.ready() == ["shapes", "signs"]
    assert kept.exists()
    for _ in range(2):  # repeated, it is answered the same
        again = scene.coordinator.retry(asks("again"), "digits")
        assert again.retried == (process.work.run_id,)
        scene.settle()
    assert scene.ready() == ["digits", "shapes", "signs"]


def test_a_result_that_comes_with_the_cancel_is_not_published(scene: Scene) -> None:
    scene.submit("digits")
    process = scene.process("train")
    told = scene.known(process.work.run_id, 0)
    process.outcome = Finished(result_of(process.work, scene.home.blobs(), calm, told))
    scene.coordinator._execution.underway.poll()  # seen, and not recorded yet
    scene.coordinator.cancel(asks("stop"), "digits", keep=True)
    scene.coordinator.retry(RequestContext(), "digits")
    scene.coordinator.tick()
    assert scene.task("digits").state == "training"
    scene.finish("train")
    assert scene.task("digits").version == 1


@pytest.mark.parametrize("kind", ["train", "compose"])
@pytest.mark.parametrize("outcome", [None, Raised("no"), Gone("killed")])
def test_what_is_cancelled_stays_so_whatever_it_says_before_it_could_be_stopped(
    kind: str, outcome: Outcome | None, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "pause_after", lambda failures: 0.0)
    coordinator = scene.trained("a", "b").coordinator
    coordinator.start_composition(
        asks("make"), "ann", ["+a", "+b"], CompositionMethod(method="ties")
    )
    scene.submit("digits")
    process = scene.process(kind)
    told = scene.known(process.work.run_id, 0) if kind == "train" else ()
    result = result_of(process.work, scene.home.blobs(), calm, told)

    def refuse(*_: object) -> NoReturn:
        raise OSError("nobody can stop it now")

    with monkeypatch.context() as patched:
        patched.setattr(type(scene.launcher), "cancel", refuse)
        if kind == "train":
            coordinator.cancel(asks("stop"), "digits", keep=True)
        else:
            coordinator.cancel_compositions(asks("stop"), "ann")
        process.outcome = outcome or Finished(result)
        coordinator.tick()
    coordinator.tick()
    assert process.cancelled
    assert coordinator.run(ADMIN, process.work.run_id).state == RunState.CANCELLED
    assert process.work.run_id not in {work.run_id for work in scene.running()}
    assert coordinator.status(ADMIN).trouble is None


@pytest.mark.parametrize("outcome", [None, Raised("no"), Gone("killed")])
def test_what_is_asked_for_again_before_it_could_be_stopped_begins_anew(
    outcome: Outcome | None, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "pause_after", lambda failures: 0.0)
    coordinator = scene.coordinator
    scene.submit("digits")
    process = scene.process("train")
    told = scene.known(process.work.run_id, 0)
    said = outcome or Finished(result_of(process.work, scene.home.blobs(), calm, told))

    def refuse(*_: object) -> NoReturn:
        raise OSError("nobody can stop it now")

    with monkeypatch.context() as patched:
        patched.setattr(type(scene.launcher), "cancel", refuse)
        coordinator.cancel(asks("stop"), "digits", keep=True)
        process.outcome = said
        coordinator.tick()
        coordinator.retry(asks("again"), "digits")
        coordinator.tick()
    coordinator.tick()
    coordinator.tick()
    assert process.cancelled
    again = scene.process("train")
    assert again is not process
    assert again.work.run_id == process.work.run_id
    assert coordinator.run(ADMIN, again.work.run_id).state == RunState.RUNNING
    assert coordinator.status(ADMIN).trouble is None


def test_what_cannot_be_stopped_yet_hears_no_more_and_leaves_no_trace(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It met what is purged: its next attempt begins with the first step."""
    monkeypatch.setattr(retries, "pause_after", lambda failures: 0.0)
    scene.trained("digits").submit("signs")
    process = scene.process("train", "signs")
    run_id = process.work.run_id
    assert "digits" in {shard.task for shard in scene.known(run_id, 0)}

    def refuse(*_: object) -> NoReturn:
        raise OSError("nobody can stop it now")

    with monkeypatch.context() as patched:
        patched.setattr(type(scene.launcher), "cancel", refuse)
        scene.coordinator.remove(asks("purge"), "digits", True)
        with pytest.raises(RunFailed, match="attempt 1"):
            scene.known(run_id, 1, attempt=1)
    scene.coordinator.tick()
    scene.coordinator.tick()
    assert process.cancelled
    assert scene.process("train", "signs").work.attempt == 2
    assert [shard.task for shard in scene.known(run_id, 0)] == [GENERIC]


def test_a_refresh_is_cancelled(scene: Scene) -> None:
    scene.trained("digits", "shapes")
    run = scene.coordinator.refresh(asks("now"), "digits").run_id
    assert scene.coordinator.cancel(asks("stop"), "digits", keep=True).cancelled == (run,)
    assert not scene.running()
    assert scene.task("digits").refresh == "cancelled"
    with pytest.raises(UnknownTask):
        scene.coordinator.cancel(asks("stop nobody"), "nobody")


# -- removing


def test_what_is_removed_is_used_no_more_and_models_work_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(4), tau=loud).trained("digits", "shapes", refresh="on_arrival")
    scene.coordinator.compose(asks("alice"), "alice", ["+digits", "-shapes"])
    scene.coordinator.compose(asks("bob"), "bob", ["+shapes"])
    scene.submit("signs")
    training = scene.process("train", "signs").work.run_id
    assert [s.task for s in scene.known(training, 0)] == [GENERIC, "digits", "shapes"]
    scene.coordinator.refresh(asks("refresh"), "shapes")
    doing = {work.kind for work in scene.running()}
    assert doing == {"train", "refresh"}
    answer = scene.coordinator.remove(asks("remove"), "digits", False)
    assert answer.users == ("alice",)
    assert all(
        "digits" not in {shard.task for shard in work.others}
        for work in scene.running()
        if isinstance(work, RefreshWork)
    )
    assert [shard.task for shard in scene.known(training, 1)] == [GENERIC, "shapes"]
    scene.die("train", "signs")
    told = [[s.task for s in scene.known(training, step)] for step in (0, 1)]
    assert told == [[GENERIC, "digits", "shapes"], [GENERIC, "shapes"]]
    scene.settle()
    scene.restart()
    assert not scene.running()
    assert scene.ready() == ["shapes", "signs"]
    assert scene.coordinator.interference(ADMIN).on == (GENERIC, "shapes", "signs")
    assert scene.coordinator.interference(ADMIN).missing == 0
    assert {one.task for one in scene.coordinator.vectors(ADMIN)} == {"shapes", "signs"}
    model = scene.coordinator.composition(ADMIN, "alice")
    assert [term.vector.task for term in model.terms] == ["digits", "shapes"]
    (alice,) = scene.coordinator.users(ADMIN, "alice")
    assert (alice.removed, alice.purged) == (("digits",), ())
    assert alice.again == "tacl compose alice -shapes"
    run = scene.coordinator.evaluate(ADMIN, "alice").run_id
    scene.settle()
    assert scene.coordinator.evaluation(ADMIN, run)
    refused: list[tuple[type[TaclError], object]] = [
        (UnknownTask, lambda: scene.coordinator.compose(asks("eve"), "eve", ["+digits"])),
        (UnknownTask, lambda: scene.coordinator.update_composition(asks("update"), "alice")),
        (UnknownTask, lambda: scene.coordinator.remove(asks("again"), "digits", False)),
        (NameTaken, lambda: scene.submit("digits", request_id="same name")),
        (NameTaken, lambda: scene.coordinator.admit(asks("admit"), "digits")),
    ]
    for error, call in refused:
        with pytest.raises(error, match="digits"):
            call()  # type: ignore[operator]
    assert scene.coordinator.remove(asks("remove"), "digits", False) == answer


def test_what_could_not_be_started_yet_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, tau=loud).trained("digits", "shapes", refresh="on_arrival")
    started = len(scene.launcher.processes)

    def unreachable(*_: object) -> None:
        raise ConnectionError("no answer")

    with monkeypatch.context() as network:
        network.setattr(type(scene.launcher), "start", unreachable)
        monkeypatch.setattr(retries, "FIRST", 0.0)
        scene.submit("signs")
        scene.submit("faces")
        scene.coordinator.remove(asks("remove"), "digits", False)
        scene.coordinator.cancel(asks("cancel"), "signs", keep=True)
        scene.coordinator.tick()
        assert "no answer" in str(scene.coordinator.status(ADMIN).trouble)
    scene.coordinator.tick()
    scene.settle()
    for process in scene.launcher.processes[started:]:
        assert "digits" not in process.work.model_dump_json()
        assert not (isinstance(process.work, TrainWork) and process.work.submission.name == "signs")
    assert scene.task("signs").state == "cancelled"
    assert scene.ready() == ["shapes", "faces"]
    scene.restart()
    assert not scene.running()


def test_a_purge_erases_the_bytes_and_says_so(scene: Scene) -> None:
    scene.trained("digits", "shapes")
    scene.coordinator.add_samples(asks("grow"), "digits", shard_blob(scene.home, "more"))
    scene.settle()
    before = on_disk(scene)
    mine = set(scene.coordinator._registry.references_of("digits"))
    scene.coordinator.compose(asks("alice"), "alice", ["+digits"])
    scene.coordinator.compose(asks("bob"), "bob", ["+shapes"])
    scene.coordinator.remove(asks("remove"), "digits", False)
    assert on_disk(scene) == before
    assert scene.coordinator.remove(asks("purge"), "digits", True).users == ("alice",)
    scene.coordinator.tick()
    assert on_disk(scene) == before - mine
    assert len(mine) >= 5
    for call in (scene.coordinator.composition, scene.coordinator.evaluate):
        with pytest.raises(Erased, match="digits@v1.*erased for ever"):
            call(ADMIN, "alice")
    assert scene.coordinator.composition(ADMIN, "bob")
    scene.restart()
    assert not scene.running()
    assert scene.coordinator.status(ADMIN).trouble is None
    with pytest.raises(UnknownTask, match="was purged"):
        scene.coordinator.remove(asks("once more"), "digits", True)


def test_a_removal_does_not_put_off_the_purge_before_it(scene: Scene) -> None:
    scene.trained("digits", "shapes")
    mine = set(scene.coordinator._registry.references_of("digits"))
    scene.coordinator.remove(asks("purge"), "digits", True)
    scene.coordinator.remove(asks("remove"), "shapes", False)
    scene.coordinator.tick()
    assert not mine & on_disk(scene)
    assert scene.coordinator._registry.erasures() == []


def test_a_purge_spares_the_same_bytes_of_another_task(scene: Scene) -> None:
    scene.trained("digits")
    parts = submission(scene.home, "digits").model_dump(include={"train", "shard", "test"})
    scene.submit("twin", **{part: BlobRef(**blob) for part, blob in parts.items()})
    scene.settle()
    scene.coordinator.remove(asks("purge"), "digits", True)
    scene.coordinator.tick()
    assert set(scene.coordinator._registry.references_of("twin")) <= on_disk(scene)


def test_a_training_that_met_what_is_purged_begins_anew(scene: Scene) -> None:
    scene.trained("digits")
    scene.submit("signs")
    run = scene.process("train", "signs").work.run_id
    assert [shard.task for shard in scene.known(run, 0)] == [GENERIC, "digits"]
    old, first = checkpoint(scene, run), scene.process("train", "signs")
    scene.coordinator.remove(asks("purge"), "digits", True)
    assert first.cancelled
    scene.coordinator.tick()
    assert not old.exists()
    again = scene.process("train", "signs").work
    assert isinstance(again, TrainWork)
    assert again.attempt == 2
    assert [shard.task for shard in scene.known(run, 0)] == [GENERIC]
    scene.settle()
    (vector,) = scene.coordinator.vectors(ADMIN, "signs")
    assert [met.task for met in vector.arrivals] == [GENERIC]


def test_what_a_training_met_is_forgotten_when_nobody_waits_for_the_purge(scene: Scene) -> None:
    """Of thousands of tasks: by its next start."""
    scene.trained("digits", "shapes")
    scene.submit("signs")
    run = scene.process("train", "signs").work.run_id
    scene.known(run, 0)
    coordinator, registry = scene.coordinator, scene.coordinator._registry
    heard = weakref.ref(coordinator._execution.underway.lease_state(run, 1))
    asked = statements(registry, lambda: coordinator.remove(asks("purge"), "digits", True))
    assert not [said for said, _ in asked if said.startswith("DELETE FROM arrival")]
    assert heard() is not None
    assert registry.that_met("shapes") == [], "it begins anew already"
    coordinator.tick()
    assert heard() is None
    assert registry.arrivals(run) == []
    assert [shard.task for shard in scene.known(run, 0)] == [GENERIC, "shapes"]
    assert registry.that_met("shapes") == [run]


def test_samples_of_a_cancelled_task_are_kept_for_whom_they_are_told_again(scene: Scene) -> None:
    """Not for a training that begins anew."""
    coordinator, registry = scene.trained("digits").coordinator, scene.coordinator._registry
    scene.submit("faces")
    scene.submit("signs")
    met = scene.known(scene.process("train", "signs").work.run_id, 0)
    (faces,) = (shard.blob.digest for shard in met if shard.task == "faces")
    coordinator.cancel(asks("stop"), "signs", keep=True)
    coordinator.cancel(asks("leave"), "faces")
    assert faces in registry.referenced()
    coordinator.remove(asks("purge"), "digits", True)
    assert faces not in registry.referenced()


def test_what_a_training_met_before_a_purge_is_forgotten_after_a_crash_too(scene: Scene) -> None:
    scene.trained("digits")
    scene.submit("signs")
    run = scene.process("train", "signs").work.run_id
    scene.known(run, 0)
    old = checkpoint(scene, run)
    registry, request = scene.coordinator._registry, Request("purge", "asked", "{}")
    registry.remove("digits", "purged", [], registry.that_met("digits"), [], request)
    scene.restart()  # between that transaction and what follows from it
    assert not old.exists()
    assert [shard.task for shard in scene.known(run, 0)] == [GENERIC]


# -- collecting


def test_only_old_files_that_nobody_needs_are_garbage() -> None:
    found = [Stored("needed", 1, 0.0), Stored("old", 2, 0.0), Stored("new", 3, 100.0)]
    assert unreferenced(found, {"needed"}, now=100.0 + GRACE) == [found[1]]


def test_collecting_frees_what_nothing_refers_to(scene: Scene) -> None:
    scene.trained("digits", "shapes")
    scene.coordinator.refresh(asks("now"), "digits")
    scene.settle()
    needed = on_disk(scene)
    blobs, long_ago = scene.home.blobs(), time.time() - 2 * GRACE
    stray, fresh = blobs.put(b"of nobody"), blobs.put(b"of a submission under way")
    for digest in needed | {stray}:
        os.utime(blobs.local_path(digest), (long_ago, long_ago))
    again = blobs.put(b"stored by an attempt that died")
    os.utime(blobs.local_path(again), (long_ago, long_ago))
    blobs.put(b"stored by an attempt that died")  # and by the next one, which will publish it
    half = blobs.local_path(stray).with_name(f".{stray}.half")
    half.write_bytes(b"hal")
    os.utime(half, (long_ago, long_ago))
    cache = scene.home.path / "cache"
    kept, base = cache / "tangents" / "x", cache / "bases" / BASE.digest
    for file in (kept, base):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"123")
        os.utime(file, (long_ago, long_ago))
    expected = CollectedGarbage(blobs=1, bytes=len(b"of nobody") + 6, others=2)
    assert scene.coordinator.collect(dry_run=True) == expected
    assert stray in on_disk(scene)
    assert scene.coordinator.collect() == expected
    scene.coordinator.tick()
    assert on_disk(scene) == needed | {fresh, again}
    assert [file.exists() for file in (half, kept, base)] == [False, False, True]
    assert scene.coordinator.collect() == CollectedGarbage(blobs=0, bytes=0, others=0)


def test_folders_in_which_learners_write_may_go_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [scene.home.path / "cache" / "drafts" / name for name in ("1", "2")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"a vector")
    is_file = Path.is_file

    def looked(path: Path) -> bool:
        """At the first of the two; the learner of the other has done."""
        for other in folders if path.parent in folders else ():
            if other != path.parent:
                shutil.rmtree(other, ignore_errors=True)
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", looked)
    assert scan(scene.home, scene.coordinator._registry).files == {}
    assert sum(folder.exists() for folder in folders) == 1
