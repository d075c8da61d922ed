"""The doctor names what is wrong, what others reach, and what this distribution is called."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import psutil
import pytest

from cluster.coordinator.core import Coordinator
from cluster.runtime import doctor, restart
from cluster.runtime.doctor import DISTRIBUTION, access, checks, reach
from cluster.storage.home import Home, Running, write
from tacl.errors import HomeInUse
from tests.support.fakes import ADMIN, FakeLauncher, Scene, new_home
from tests.support.places import ROOT
from tests.support.released import unpacked


def test_a_home_that_others_may_enter_is_named(tmp_path: Path) -> None:
    home = new_home(tmp_path / "a home")
    home.path.chmod(0o755)
    found = doctor._privacy(home)
    assert not found.ok
    assert f"chmod 700 '{home.path}'," in found.advice
    home.close_to_others()
    assert doctor._privacy(home).ok
    assert doctor._privacy(Home(tmp_path / "not made yet")).ok


def test_a_head_of_another_machine_is_not_looked_at() -> None:
    """A process of its number may be anybody's here."""
    found = reach(Running(pid=os.getpid(), address="10.0.0.7:1", token="t"))
    assert (found.ok, "another machine" in found.found) == (True, True)


@pytest.mark.parametrize("place", ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "::"])
def test_a_port_that_other_machines_reach_is_named(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart, "HEAD", psutil.Process().cmdline()[:1])  # this process is a head
    family = int(socket.AF_INET6 if ":" in place else socket.AF_INET)
    listen = f"import socket; s = socket.create_server(('{place}', 0), family={family}); "
    child = subprocess.Popen(
        [sys.executable, "-c", f"{listen}print(s.getsockname()[1], flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        port = child.stdout.readline().strip()
        found = reach(Running(pid=os.getpid(), address="127.0.0.1:1", token="t"))
        child.communicate("")
    assert found.ok is ("127.0.0.1" in place), found
    assert found.ok or f"port {port}" in found.found


@pytest.mark.parametrize("insecure", [False, True])
def test_a_cluster_that_asks_for_no_token_is_named(insecure: bool) -> None:
    where = {"pid": os.getpid(), "address": "10.0.0.1:6379", "token": None}
    found = access(Running(**where, insecure=insecure))
    assert (found.ok, "10.0.0.1:6379" in found.found) == (not insecure, insecure)


def test_a_registry_of_before_is_named_and_migrated_and_a_purge_erases_what_was_kept_of_it(
    tmp_path: Path,
) -> None:
    home = unpacked(tmp_path)
    (wrong,) = doctor._schema(home)
    assert not wrong.ok
    assert "tacl doctor --migrate" in wrong.found
    with home.lock(), pytest.raises(HomeInUse):
        doctor.migrated(home)
    assert "from schema 0000 to" in doctor.migrated(home).found
    assert "nothing to migrate" in doctor.migrated(home).found
    assert [one.ok for one in doctor._schema(home)] == [True]
    assert len(list(home.old_registries.iterdir())) == 1
    coordinator = Coordinator(home.path, FakeLauncher())
    coordinator.remove(ADMIN, "digits", True)
    coordinator.tick()
    coordinator.close()
    assert list(home.old_registries.iterdir()) == []


@pytest.mark.parametrize("readable", [True, False])
def test_on_a_disk_that_can_only_be_read_it_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    """SQLite may write beside a registry that it reads, and then cannot."""
    scene = Scene(tmp_path / "home").trained("digits")
    scene.coordinator.close()
    registry = Path(scene.home.registry_url.removeprefix(doctor.SQLITE))
    registry.with_name(f"{registry.name}-shm").mkdir()
    if not readable:
        registry.unlink()
        registry.mkdir()

    def refused(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    for method in ("write_bytes", "unlink"):
        monkeypatch.setattr(Path, method, refused)
    loaded = doctor.Check(check="torch", ok=True, found="loads")
    monkeypatch.setattr(doctor, "_libraries", lambda: loaded)
    found = {one.found: one.ok for one in checks(scene.home)}
    places = (scene.home.path, scene.home.path / "blobs")
    expected = {f"{place} cannot be written: Read-only file system" for place in places}
    if not readable:
        expected.add(f"the registry {registry} cannot be read: disk I/O error")
    assert {one for one, ok in found.items() if not ok} == expected


def test_all_are_looked_at_while_a_cluster_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = doctor.Check(check="torch", ok=True, found="loads")
    monkeypatch.setattr(doctor, "_libraries", lambda: loaded)
    home = new_home(tmp_path / "home")
    with home.lock():
        write(home.running_file, Running(pid=os.getpid(), address="127.0.0.1:1", token="t"))
        assert {"torch", "privacy", "access", "ports"} <= {one.check for one in checks(home)}


def test_what_is_known_is_told_before_the_next_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch alone takes most of the time of all."""
    looked = list[str]()
    for name in ("torch", "memory"):
        check = doctor.Check(check=name, ok=True, found="well")
        of = {"torch": "_libraries"}.get(name, f"_{name}")
        monkeypatch.setattr(doctor, of, lambda check=check: looked.append(check.check) or check)
    found = checks(new_home(tmp_path / "home"))
    assert [next(found).check, next(found).check, looked] == ["Python", "packages", []]
    assert [next(found).check, looked] == ["torch", ["torch"]]


def test_its_packages_are_those_of_the_distribution() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert declared["project"]["name"] == DISTRIBUTION


def test_the_number_format_of_passes_is_advised_by_measurement() -> None:
    found = doctor._libraries()
    assert found.ok, found
    assert re.search(r"takes [\d.]+ times that in float32: (bfloat16 pays|stay with)", found.found)
    assert doctor._speed("1", "0.41", "bfloat16").endswith(
        "0.41 times that in float32: bfloat16 pays"
    )
    slow = doctor._speed("0", "3.2", "float32")
    assert slow.endswith("3.20 times that in float32: stay with float32")


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe{"])
def test_damaged_settings_do_not_end_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    fine = doctor.Check(check="torch", ok=True, found="")
    monkeypatch.setattr(doctor, "_libraries", lambda: fine)
    home = new_home(tmp_path / "home")
    home.settings_file.write_bytes(damage)
    found = list(checks(home))
    assert "home" in [one.check for one in found if not one.ok]
    assert found[-1].check == "cluster"
