"""A home whose files are in a bucket, seen from a node that knows nothing but its URI."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from cluster.api.service import Question
from cluster.coordinator import garbage
from cluster.domain.base import Base
from cluster.learner import training
from cluster.learner.learner import Learner
from cluster.registry import Registry
from cluster.serving.predictor import Predictor
from cluster.storage import home as homes
from cluster.storage import samples
from cluster.storage.blobs import Blobs
from cluster.storage.checkpoints import checkpoints, runs
from cluster.storage.filesystem import Storage
from cluster.storage.home import Founding, Home, Settings, publish, require_founder
from tacl.errors import HomeInUse, StorageUnavailable
from tests.support import s3, tiny
from tests.support.kept import newest
from tests.support.lost import make_old


@pytest.fixture
def bucket(s3_server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "node"))
    return s3_server.new_bucket()


def founded(uri: str, folder: Path, base: Base) -> None:
    """As by `tacl up --storage`, on another machine."""
    store = Storage(uri).below("blobs").uri
    images, _ = tiny.pictures(40, classes=8, task=99)
    blobs = Blobs(store, cache=folder / "elsewhere")
    shard = samples.store_shard(blobs, images, [row % 6 == 0 for row in range(40)])
    publish(Settings(base=base, generic=shard, blobs=store, storage=uri, registry="sqlite://"))


def test_a_node_finds_settings_checkpoints_and_vectors(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny.LeaseClient, "seconds", -1.0)  # every step is asked for
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)  # and is a checkpoint
    described = Learner(str(tmp_path), tiny.LeaseClient()).describe_base(tiny.base(tmp_path))
    founded(bucket, tmp_path, described)
    home = Home.at(bucket)
    task = tiny.submission(home, 1, steps=10, engine="plain")
    work, generic = tiny.train_work(home, task), tiny.generic(home)
    with pytest.raises(ConnectionError):
        Learner(bucket, tiny.LeaseClient(generic, dies_at=7)).work(work)
    assert runs(home) == [work.run_id]
    assert newest(checkpoints(home, work.run_id)) == 6

    shutil.rmtree(home.path)  # and it goes on at another node
    teller, copied, copy = tiny.LeaseClient(generic), list[str](), pyarrow.fs.copy_files

    def counted(source: str, destination: str, *which: Any, **named: Any) -> None:
        copied.append(destination)
        copy(source, destination, *which, **named)

    with monkeypatch.context() as patch:
        patch.setattr(pyarrow.fs, "copy_files", counted)
        patch.setattr(training, "CHECKPOINT_SECONDS", 1e9)
        resumed = Learner(bucket, teller).work(work)
    assert teller.asked[0][0] == 6
    assert len(copied) == 1  # a large one takes minutes
    assert Path(copied[0]).is_relative_to(home.path)
    checkpoints(home, work.run_id).clear()
    undisturbed = Learner(bucket, tiny.LeaseClient(generic)).work(work)
    assert resumed.vector_digest == undisturbed.vector_digest  # type: ignore[union-attr]

    shutil.rmtree(home.path)
    reference = tiny.published(task, resumed)  # type: ignore[arg-type]
    images, _ = tiny.pictures(2)
    found = Predictor(bucket).ask(Question(tiny.composition((1.0, reference)), images))
    assert [len(answer["task1"]) for answer in found.answers] == [4, 4]


def test_a_node_takes_what_is_founded_anew_at_the_same_place(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that starts then; what it has read it keeps."""
    found = []
    for number in range(2):
        monkeypatch.setattr(homes, "_LOOKED_AT", set())
        base = tiny_base(f"{number}")
        founded(bucket, tmp_path, base)
        found.append(Home.at(bucket).settings())
        assert Home.at(bucket).settings() == found[-1]
    assert [one and one.base.digest for one in found] == ["0", "1"]

    def away(storage: str) -> Settings | None:
        raise StorageUnavailable("the bucket is away")

    monkeypatch.setattr(homes, "_LOOKED_AT", set())
    monkeypatch.setattr(homes, "published", away)
    assert Home.at(bucket).settings() == found[-1]


def tiny_base(digest: str) -> Base:
    return Base(spec="fake:encoder", digest=digest, modality="image", head_kind="text")


def test_a_small_file_is_on_the_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, real, replace = list[str](), os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (order.append("flushed"), real(file))[1])
    put = lambda self, to: (order.append("there"), replace(self, to))[1]  # noqa: E731
    monkeypatch.setattr(Path, "replace", put)
    Storage(tmp_path).write("notes/backup.json", b"what is here")
    assert order == ["flushed", "there", "flushed"]
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["backup.json"]

    def full(file: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        Storage(tmp_path).write("notes/backup.json", b"what is here now")
    assert (tmp_path / "notes" / "backup.json").read_bytes() == b"what is here"
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["backup.json"]


def test_a_home_keeps_its_storage_and_registry(bucket: str, tmp_path: Path) -> None:
    base = Base(spec="fake:encoder", digest="ba5e", modality="image", head_kind="text")
    founded(bucket, tmp_path, base)
    home = Home.at(bucket)
    assert (home.where, home.registry_url) == (bucket, "sqlite://")
    for same in (bucket, f"{bucket}/"):
        require_founder(home, Founding("fake:encoder", None, same, None))
    for other in (
        Founding(storage=bucket.replace("place", "other")),
        Founding(registry="postgresql://x@y/z"),
        Founding(base="hf:x"),
    ):
        with pytest.raises(HomeInUse, match="asked for"):
            require_founder(home, other)


def of_this_machine(bucket: str, tmp_path: Path) -> tuple[Home, Home]:
    """As the coordinator knows it, whose registry is a file, and as its learners do."""
    base = Base(spec="x", digest="x", modality="image", head_kind="prototype")
    founded(bucket, tmp_path, base)
    home, settings = Home(tmp_path / "home"), homes.published(bucket)
    assert settings is not None
    home.close_to_others()
    homes.write(home.settings_file, settings)
    return home, Home.at(bucket)


def test_a_purge_erases_what_learners_of_this_machine_downloaded(
    bucket: str, tmp_path: Path
) -> None:
    home, learners = of_this_machine(bucket, tmp_path)
    kept, purged = home.blobs().put(b"others"), home.blobs().put(b"private")
    for place in (home, learners):
        for digest in (kept, purged):
            assert place.blobs().local_path(digest).is_file()
    garbage.erase(home, {purged})
    assert not [*tmp_path.rglob(purged)]
    assert len([*tmp_path.rglob(kept)]) == 2


def test_old_caches_of_learners_of_this_machine_are_garbage(bucket: str, tmp_path: Path) -> None:
    home, learners = of_this_machine(bucket, tmp_path)
    files = [learners.path / "cache" / name for name in ("tangents/a", "tangents/new", "bases/x")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"can be made again")
        if file.name != "new":
            os.utime(file, (0, 0))
    with closing(Registry(f"sqlite:///{tmp_path / 'registry.sqlite'}")) as registry:
        assert garbage.scan(home, registry).files.keys() == {files[0]}  # theta0 stays


def test_what_killed_processes_of_this_machine_left_is_deleted(bucket: str, tmp_path: Path) -> None:
    home, learners = of_this_machine(bucket, tmp_path)
    caches = [place.path / "cache" / part for place in (home, learners) for part in ("", "blobs")]
    left = [cache / "drafts" / "half made" for cache in caches]
    for folder in left:
        folder.mkdir(parents=True)
        make_old(folder)
    garbage.sweep(home, home.blobs())
    assert not any(folder.exists() for folder in left)
