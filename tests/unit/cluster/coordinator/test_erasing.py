"""A purge's files are deleted while everything else goes on, and nothing comes to need them."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from cluster.coordinator import erasing, retries
from cluster.coordinator.garbage import GRACE
from cluster.domain.base import BlobRef
from cluster.domain.compositions import Adapt, CompositionMethod
from cluster.domain.outcomes import Finished
from cluster.domain.tasks import Submission, VectorRef
from cluster.registry import Registry, erasure
from cluster.registry.erasure import References
from cluster.storage.blobs import Blobs
from cluster.storage.drafts import atomic_write, scratch
from cluster.storage.samples import store_rows
from tacl.errors import (
    CorruptBlob,
    NameTaken,
    NotPlaceable,
    StorageUnavailable,
    UnknownTask,
)
from tests.support.fakes import ADMIN, Scene, asks, calm, result_of, submission
from tests.support.lost import killed_after_removing, killed_while, make_old


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[bool]:
    """While the first file is being deleted somebody acts; whether they were answered by then."""
    answered, real = list[bool](), Blobs.remove

    def slow(blobs: Blobs, digest: str) -> None:
        if not answered:
            other = threading.Thread(target=act)
            other.start()
            other.join(10)
            answered.append(not other.is_alive())
        real(blobs, digest)

    monkeypatch.setattr(Blobs, "remove", slow)
    return answered


def twin(scene: Scene) -> Submission:
    """A task of the same rows."""
    parts = submission(scene.home, "digits").model_dump(include={"train", "shard", "test"})
    return submission(scene.home, "twin", **{k: BlobRef(**blob) for k, blob in parts.items()})


def with_twin(scene: Scene) -> None:
    scene.trained("digits")
    scene.coordinator.submit(ADMIN, twin(scene))
    scene.settle()


def test_requests_are_answered_while_files_are_deleted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.trained("digits")
    scene.coordinator.remove(asks("purge"), "digits", True)
    answered = meanwhile(monkeypatch, lambda: scene.submit("signs"))
    scene.coordinator.tick()
    assert answered == [True]
    assert scene.process("train", "signs")
    assert scene.coordinator._registry.erasures() == []


def test_a_purge_deletes_what_was_computed_of_samples_and_rows(scene: Scene) -> None:
    scene.trained("digits")
    kept = [scene.home.path / "cache" / kind / "x" for kind in ("tangents", "heads", "probes")]
    for path in kept:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"of digits, perhaps")
    scene.coordinator.remove(asks("purge"), "digits", True)
    scene.coordinator.tick()
    assert not any(path.exists() for path in kept)


def test_what_killed_processes_were_writing_goes_and_what_is_written_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whom it was nobody knows, of purged tasks perhaps."""
    monkeypatch.setattr(erasing, "PACE", 0.0)
    cache = scene.home.path / "cache"
    halves = killed_while(lambda place: Blobs(place).put(b"rows"), scene.home.path / "blobs")
    cached = killed_while(lambda place: Blobs(place).put(b"downloaded"), cache / "blobs")
    with scratch(cache) as folder, atomic_write(cache / "mine", cache / "drafts") as stream:
        stream.write(b"a vector")
        stream.flush()
        (folder / "file").write_bytes(b"a vector")
        for path in (cache / "drafts").rglob("*"):
            make_old(path)
        scene.coordinator.tick()
        assert (folder / "file").exists()
    assert (cache / "mine").read_bytes() == b"a vector"
    assert not any(path.exists() for path in (*halves, *cached))


def test_who_ends_while_it_is_looked_deletes_what_was_its_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = shutil.rmtree

    def both(path: Path) -> None:
        delete(path)
        delete(path)

    folder = scene.home.path / "cache" / "drafts" / "its own"
    folder.mkdir(parents=True)
    make_old(folder)
    monkeypatch.setattr(erasing, "PACE", 0.0)
    monkeypatch.setattr(shutil, "rmtree", both)
    scene.coordinator.tick()
    assert not folder.exists()
    assert scene.coordinator._erasing.trouble is None


def test_files_of_what_was_refused_are_deleted_soon(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTP they lie there before it is known whether it is accepted: else whoever is refused
    again and again fills the store. What an accepted task needs too stays."""
    monkeypatch.setattr(erasing, "PACE", 0.0)
    monkeypatch.setattr(erasure, "LATER", 0.0)
    accepted = submission(scene.home, "digits")
    scene.coordinator.submit(asks("digits"), accepted)
    rows = accepted.train
    large = submission(scene.home, "large", workers=300, validation=rows)
    samples = store_rows(scene.home.blobs(), ["new one", "new two"], [0, 1])
    how = CompositionMethod(method="adamerging", adapt=Adapt(inputs=samples))
    scene.coordinator.tick()
    with pytest.raises(NotPlaceable):
        scene.coordinator.submit(asks("large"), large)
    with pytest.raises(UnknownTask):
        scene.coordinator.start_composition(asks("make"), "eve", ["+nobody"], how)
    scene.coordinator.tick()
    there = scene.home.blobs().exists
    assert [there(one) for one in (large.train.digest, samples.digest)] == [False, False]
    assert there(rows.digest)


def test_files_of_what_is_refused_because_its_name_is_taken_are_deleted_soon(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a removed task, or the id of another request."""
    monkeypatch.setattr(erasing, "PACE", 0.0)
    monkeypatch.setattr(erasure, "LATER", 0.0)
    coordinator, blobs = scene.trained("digits", "removed").coordinator, scene.home.blobs()
    coordinator.remove(asks("remove"), "removed", False)
    first, second = (store_rows(blobs, [f"{text} one", f"{text} two"], [0, 1]) for text in "ab")
    anew = submission(scene.home, "removed", train=second, request_id="anew")
    other = submission(scene.home, "digits", train=second)

    def make(rows: BlobRef) -> object:
        how = CompositionMethod(method="adamerging", adapt=Adapt(inputs=rows))
        return coordinator.start_composition(asks("make"), "eve", ["+digits"], how)

    make(first)
    for act in (
        partial(coordinator.submit, ADMIN, anew),
        partial(coordinator.submit, ADMIN, other),
        partial(make, second),
    ):
        store_rows(blobs, ["b one", "b two"], [0, 1])
        with pytest.raises(NameTaken):
            act()
        coordinator.tick()
        assert [blobs.exists(one.digest) for one in (first, second)] == [True, False]


def test_files_of_what_could_not_be_decided_stay(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again."""

    def away(*_: object) -> NoReturn:
        raise StorageUnavailable("the registry is away")

    monkeypatch.setattr(erasing, "PACE", 0.0)
    monkeypatch.setattr(erasure, "LATER", 0.0)
    asked = submission(scene.home, "digits", rows="0" * 64)
    with monkeypatch.context() as patched:
        patched.setattr(scene.coordinator._registry, "with_rows", away)
        with pytest.raises(StorageUnavailable):
            scene.coordinator.submit(asks("d"), asked)
    scene.coordinator.tick()
    assert scene.coordinator.submit(asks("d"), asked).task == "digits"


READING: dict[str, Callable[[Scene], object]] = {
    "what gc would delete": lambda scene: scene.coordinator.collect(True),
    "what gc deletes": lambda scene: (scene.coordinator.collect(), scene.coordinator.tick()),
    "what is referred to": lambda scene: scene.coordinator.references(ADMIN),
    "what a purge spares": lambda scene: scene.coordinator.tick(),
}


@pytest.mark.parametrize("what", READING)
def test_requests_are_answered_while_all_that_is_referred_to_is_read(
    what: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At ten thousand tasks that takes a second."""
    stray(scene, b"of nobody")
    scene.trained("digits")
    scene.coordinator.remove(asks("purge"), "digits", True)
    answered, real = list[bool](), Registry.referenced

    def slow(registry: Registry, *files: frozenset[str]) -> References:
        other = threading.Thread(target=scene.coordinator.version)
        other.start()
        other.join(10)
        answered.append(not other.is_alive())
        return real(registry, *files)

    monkeypatch.setattr(Registry, "referenced", slow)
    READING[what](scene)
    assert answered
    assert all(answered)


def test_what_others_need_is_there_while_a_purge_is_decided(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_twin(scene)
    shared = twin(scene).train.digest
    scene.coordinator.remove(asks("purge"), "digits", True)
    there, real = list[bool](), Registry.referenced

    def asked(registry: Registry, files: frozenset[str]) -> References:
        there.append(scene.coordinator._blobs.exists(shared))
        return real(registry, files)

    monkeypatch.setattr(Registry, "referenced", asked)
    scene.coordinator.tick()
    assert there
    assert all(there)


def test_a_purge_while_another_is_decided_spares_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files were still needed as the first was decided."""
    with_twin(scene)
    mine = set(scene.coordinator._registry.references_of("twin"))
    scene.coordinator.remove(asks("purge"), "digits", True)
    real = Registry.referenced

    def late(registry: Registry, files: frozenset[str]) -> References:
        found = real(registry, files)
        scene.coordinator.remove(asks("purge both"), "twin", True)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "referenced", late)
        scene.coordinator.tick()
    scene.coordinator.tick()
    assert not any(map(scene.home.blobs().exists, mine))
    assert scene.coordinator._registry.erasures() == []


def stray(scene: Scene, data: bytes) -> str:
    """A file of long ago that nothing refers to."""
    blobs, long_ago = scene.home.blobs(), time.time() - 2 * GRACE
    os.utime(blobs.local_path(digest := blobs.put(data)), (long_ago, long_ago))
    return digest


def test_requests_are_answered_while_garbage_is_deleted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = stray(scene, b"of nobody")
    answered = meanwhile(monkeypatch, lambda: scene.submit("signs"))
    assert scene.coordinator.collect(False).blobs == 1
    assert scene.home.blobs().exists(old)
    scene.coordinator.tick()
    assert answered == [True]
    assert not scene.home.blobs().exists(old)
    assert scene.process("train", "signs")


def test_what_is_needed_by_then_is_no_garbage(scene: Scene) -> None:
    """A task came that has the file, or somebody stored it again and will tell of it."""
    again, asked = stray(scene, b"stored again"), submission(scene.home, "digits")
    long_ago = time.time() - 2 * GRACE
    for blob in (asked.train, asked.shard, asked.test):
        os.utime(scene.home.blobs().local_path(blob.digest), (long_ago, long_ago))
    assert scene.coordinator.collect(False).blobs > 1
    scene.home.blobs().put(b"stored again")
    scene.coordinator.submit(ADMIN, asked)
    scene.coordinator.tick()
    for digest in (again, asked.train.digest, asked.shard.digest, asked.test.digest):
        scene.home.blobs().verify(digest)
    assert scene.coordinator.collect(True).blobs == 0


def test_what_is_being_deleted_is_not_there_for_a_new_task(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.trained("digits")
    asked, said = twin(scene), list[Exception]()
    scene.coordinator.remove(asks("purge"), "digits", True)

    def submit() -> None:
        with pytest.raises(CorruptBlob, match="Submit again") as raised:
            scene.coordinator.submit(ADMIN, asked)
        said.append(raised.value)

    assert not meanwhile(monkeypatch, submit)
    scene.coordinator.tick()
    assert len(said) == 1
    scene.coordinator.submit(ADMIN, twin(scene))  # which stores them again
    scene.settle()
    scene.coordinator.tick()
    assert "twin" in scene.ready()
    for digest in scene.coordinator._registry.referenced():
        scene.home.blobs().verify(digest)


def test_a_second_purge_of_the_same_bytes_meanwhile_is_owed_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_twin(scene)
    registry, blobs = scene.coordinator._registry, scene.home.blobs()
    both = {*registry.references_of("digits"), *registry.references_of("twin")}
    scene.coordinator.remove(asks("purge"), "digits", True)
    purge = partial(scene.coordinator.remove, asks("purge both"), "twin", True)
    answered = meanwhile(monkeypatch, purge)
    scene.coordinator.tick()
    assert answered == [True]
    scene.coordinator.tick()
    assert not any(map(blobs.exists, both))
    assert registry.erasures() == []


def test_a_result_that_waits_to_be_recorded_is_looked_at_again_after_a_purge(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of the same classes have the same head: nothing referred to this one yet."""

    def full(*_: object) -> NoReturn:
        raise StorageUnavailable("the disk is full")

    scene.trained("digits").submit("signs")
    registry, process = scene.coordinator._registry, scene.process("train", "signs")
    (digits,) = registry.references("digits")
    result = result_of(process.work, scene.home.blobs(), calm)
    process.outcome = Finished(result.model_copy(update={"head_blob": digits.head_blob}))
    with monkeypatch.context() as patched:
        patched.setattr(retries, "pause_after", lambda failures: retries.LONGEST)
        patched.setattr(registry, "publish", full)
        scene.coordinator.tick()
    scene.coordinator.remove(asks("purge"), "digits", True)
    scene.coordinator.tick()
    assert "signs" not in scene.ready()
    later = time.monotonic() + retries.LONGEST
    monkeypatch.setattr(scene.coordinator._execution._retries, "_clock", lambda: later)
    scene.coordinator.tick()
    assert scene.process("train", "signs").work.attempt == 2
    scene.settle()
    (signs,) = registry.references("signs")
    assert scene.home.blobs().exists(signs.head_blob)


@pytest.mark.parametrize("few", [0, 1])
def test_of_some_files_it_is_found_which_are_needed_without_reading_the_rest(
    few: int, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large home has hundreds of thousands."""
    monkeypatch.setattr(erasure, "FEW", few)
    scene.trained("digits", "signs", heads="fitted")
    scene.coordinator.compose(asks("alice"), "alice", ["+digits", "+signs"])
    registry = scene.coordinator._registry
    every = registry.referenced()
    for digest, use in every.items():
        assert registry.referenced({digest})[digest] == use
    assert "no file" not in registry.referenced({"no file"})
    read, real = list[str](), VectorRef.model_validate_json

    def noting(text: str) -> VectorRef:
        read.append(text)
        return real(text)

    monkeypatch.setattr(VectorRef, "model_validate_json", noting)
    (blob,) = (one.blob for one in registry.references("signs"))
    read.clear()
    registry.referenced({blob})
    assert [blob in text for text in read] == [True]


def test_a_store_that_does_not_delete_holds_up_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.trained("digits")
    mine = set(scene.coordinator._registry.references_of("digits"))
    scene.submit("signs")

    def away(*_: object) -> None:
        raise StorageUnavailable("the bucket is away")

    with monkeypatch.context() as network:
        network.setattr(Blobs, "remove", away)
        scene.coordinator.remove(asks("purge"), "digits", True)
        scene.settle()
        assert scene.ready() == ["signs"]
        assert "bucket is away" in str(scene.coordinator.status(ADMIN).trouble)
    monkeypatch.setattr(retries, "FIRST", 0.0)
    scene.restart()
    scene.coordinator.tick()
    assert scene.coordinator.status(ADMIN).trouble is None
    assert not any(map(scene.home.blobs().exists, mine))


def test_a_death_while_files_are_deleted_leaves_the_rest_owed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.trained("digits")
    mine = set(scene.coordinator._registry.references_of("digits"))
    scene.coordinator.remove(asks("purge"), "digits", True)
    with killed_after_removing(2):
        scene.coordinator.tick()
    assert sum(map(scene.home.blobs().exists, mine)) == len(mine) - 2
    scene.restart()
    scene.coordinator.tick()
    assert not any(map(scene.home.blobs().exists, mine))


def test_inside_without_a_blob_is_neither_there_nor_put(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    digest = blobs.put(b"to be erased")
    with blobs.hiding({digest}):
        assert not blobs.exists(digest)
        for ask in (blobs.open, blobs.read, blobs.verify):
            with pytest.raises(CorruptBlob):
                ask(digest)
        with pytest.raises(StorageUnavailable, match="repeat"):
            blobs.put(b"to be erased")
        assert Blobs(tmp_path).exists(digest)
    assert blobs.read(digest) == b"to be erased"
