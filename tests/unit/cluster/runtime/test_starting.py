"""What a head does before its cluster is there, and a Ray that does not start."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from cluster.domain.base import BlobRef
from cluster.registry import Registry
from cluster.runtime import doctor, head, memory, nodes, processors
from cluster.storage.home import Founding, Home, Settings, publish, published, write
from tacl.errors import BadConfig, ClusterNotRunning, HomeInUse
from tests.support.fakes import BASE
from tests.support.released import unpacked


def test_a_ray_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed_out(**how: object) -> None:
        raise Exception("The current node timed out.\nThe GCS is overloaded.")

    monkeypatch.setattr(ray, "init", timed_out)
    with pytest.raises(ClusterNotRunning) as caught:
        head._start_ray(1)
    said = str(caught.value)
    assert said.startswith("Ray did not start: The current node timed out. The GCS is overloaded.")
    assert "`tacl up` again" in said


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 8),
        ({"max": "max 100000\n"}, 8),
        ({"max": "250000 100000\n"}, 2),
        ({"max": "50000 100000\n"}, 1),
        ({"max": "1600000 100000\n"}, 8),
        ({"quota": "-1\n", "period": "100000\n"}, 8),
        ({"quota": "300000\n", "period": "100000\n"}, 3),
    ],
)
def test_a_container_has_the_cpus_that_it_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cpus: int
) -> None:
    """As of `docker run --cpus`, which leaves the processors of its machine to be seen."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    quotas = (tmp_path / "max",), (tmp_path / "quota", tmp_path / "period")
    monkeypatch.setattr(processors, "QUOTAS", quotas)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    asked = dict[str, object]()
    monkeypatch.setattr(ray, "init", asked.update)
    head._start_ray(None)
    assert (asked["num_cpus"], doctor._processors().found) == (cpus, str(cpus))


@pytest.mark.parametrize("version", [0, 1])
def test_a_container_has_the_memory_that_it_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """As of `docker run --memory` or a pod's limit; what it has for caches it can give up."""
    _, limit, used, caches = memory.GROUPS[version]
    monkeypatch.setattr(memory, "GROUPS", ((tmp_path, limit, used, caches),))
    whole = memory.free()
    (tmp_path / limit).write_text("max\n")
    (tmp_path / used).write_text(f"{3 << 29}\n")
    (tmp_path / "memory.stat").write_text(f"anon 7\n{caches} {1 << 30}\n")
    assert memory.free() == pytest.approx(whole, rel=0.5)
    (tmp_path / limit).write_text(f"{1 << 30}\n")
    assert memory.free() == 1 << 29
    found = doctor._memory()
    assert (found.ok, found.found) == (False, "0.5 GiB free")
    (tmp_path / "memory.stat").unlink()  # as in gVisor, which tells of no caches
    (tmp_path / used).write_text(f"{1 << 28}\n")
    assert memory.free() == 3 << 28


def test_a_home_of_an_earlier_version_gets_the_tables_of_this_one(tmp_path: Path) -> None:
    home = unpacked(tmp_path)
    with pytest.raises(BadConfig, match="Migrate it"):
        Registry(home.registry_url)
    head._require_usable(home, Founding())
    Registry(home.registry_url).close()


def settings(registry: str | None, storage: Path) -> Settings:
    generic = BlobRef(digest="0" * 64, rows=1)
    told = {"blobs": f"{storage}/blobs", "storage": f"file://{storage}", "registry": registry}
    return Settings(base=BASE, generic=generic, **told)


def test_a_home_whose_registry_lies_on_another_machine_is_not_begun_anew(tmp_path: Path) -> None:
    """Its coordinator would take what is stored there for nobody's."""
    storage = tmp_path / "storage"
    for registry, refused in ((None, True), ("postgresql://db/tacl", False)):
        found = settings(registry, storage)
        publish(found)
        home = Home(tmp_path / f"home {refused}")
        home.close_to_others()
        chosen = Founding(storage=found.storage)
        if refused:
            with pytest.raises(HomeInUse, match="SQLite file on the machine"):
                head._take_over(home, chosen)
            assert home.settings() is None
        else:
            head._take_over(home, chosen)
            assert home.settings() == found


def test_what_a_head_did_not_come_to_publish_is_published_by_the_next(tmp_path: Path) -> None:
    found, home = settings(None, tmp_path / "storage"), Home(tmp_path / "home")
    home.close_to_others()
    write(home.settings_file, found)
    head._take_over(home, Founding(storage=found.storage))
    assert published(found.storage or "") == found


def test_a_home_is_taken_over_by_the_name_that_it_was_founded_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slash at the end of its storage says nothing."""
    found, home = settings(None, tmp_path / "storage"), Home(tmp_path / "home")
    home.close_to_others()
    write(home.settings_file, found)
    taken = list[str]()
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(nodes, "join", lambda *_: True)
    monkeypatch.setattr(nodes, "take_over", taken.append)
    for name in ("require_shared", "end_actors"):
        monkeypatch.setattr(nodes, name, lambda *_: None)
    here = SimpleNamespace(gcs_address="127.0.0.1:1")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: here)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with head._joined(home, Founding(storage=f"{found.storage}/"), "127.0.0.1:1", True) as running:
        assert running.joined
    assert taken == [found.storage]


def test_a_token_that_was_not_written_whole_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    home = Home(tmp_path / "home")
    home.close_to_others()
    home.token_file.touch()
    head._prepare_environment(home)
    token = home.token_file.read_text()
    assert len(token) == 64
    assert home.token_file.stat().st_mode & 0o777 == 0o600
    head._prepare_environment(home)
    assert home.token_file.read_text() == token


def test_threads_of_learners_leave_the_processor_to_others_whoever_starts_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ.pop("GOMP_SPINCOUNT", None)
    home = Home(tmp_path / "home")
    home.close_to_others()
    head._prepare_environment(home)
    assert os.environ["GOMP_SPINCOUNT"] == "1000"
