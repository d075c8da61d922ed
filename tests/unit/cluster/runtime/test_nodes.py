"""What a run may not take of a node, and what of a head that died the next one leaves."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path
from typing import NoReturn

import pytest

from cluster.runtime import nodes
from cluster.runtime.actors import _node
from cluster.runtime.connection import COORDINATOR
from cluster.runtime.nodes import with_place_kept
from cluster.runtime.process import name_of
from cluster.scheduler.adoption import Attempt
from cluster.scheduler.state import Node
from cluster.storage.filesystem import Storage
from cluster.storage.home import Serving, try_lock

SERVING = Serving(host="127.0.0.1", port=1, most=2, cpus=2.0, open_to_all=False, gpus=1.0)


def test_the_place_of_a_predictor_that_died_is_kept() -> None:
    assert with_place_kept({}, "here", SERVING) == {"here": {"CPU": 2.0, "GPU": 1.0}}
    other = {"there": {"CPU": 0.5}}
    kept = {"there": {"CPU": 0.5}, "here": {"CPU": 1.5, "GPU": 1.0}}
    assert with_place_kept(other, "here", SERVING) == kept
    assert other == {"there": {"CPU": 0.5}}


def test_a_node_has_parts_of_gpus_and_holds_whole_ones() -> None:
    assert _node({"CPU": 3.0, "GPU": 1.875}, {"GPU": 0.5}) == Node(3, 1.875, 0, 1)
    assert _node({"CPU": 2.5, "GPU": 0.99}) == Node(2, 0.875)


def test_predictors_that_live_hold_what_they_have_wherever_they_are() -> None:
    held = {"there": {"CPU": 4.0, "GPU": 2.0}}
    assert with_place_kept(held, "here", SERVING) == held


def test_where_nothing_is_served_nothing_is_kept() -> None:
    assert with_place_kept({}, "here", None) == {}


def test_a_node_that_does_not_see_locks_of_another_shares_no_directory(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    storage.write("probe", b"written")
    asked = storage.uri, "probe", "node"
    with nodes._locked(storage, "probe") as is_locked, (tmp_path / "probe").open("rb") as read:
        assert is_locked
        assert try_lock(read.fileno(), fcntl.LOCK_EX)  # on some disks a lock is no advice
        assert nodes._echo(*asked, is_locked) == "written"
    assert "does not see what was locked here" in nodes._echo(*asked, is_locked)
    assert nodes._echo(*asked, False) == "written"


def test_where_a_disk_has_no_locks_none_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(nodes, "try_lock", no_locks)
    storage = Storage(tmp_path)
    storage.write("probe", b"written")
    with nodes._locked(storage, "probe") as is_locked:
        assert nodes._echo(storage.uri, "probe", "node", is_locked) == "written"


@pytest.mark.parametrize("headless", [True, False])
def test_learners_outlive_their_head_and_end_with_their_home(
    monkeypatch: pytest.MonkeyPatch, headless: bool
) -> None:
    learner, ended = name_of(Attempt("9f", 1)), list[str]()
    there = [learner, "SERVE_CONTROLLER_ACTOR", *([] if headless else [COORDINATOR])]

    def kill(name: str, no_restart: bool) -> None:
        there.remove(name)
        ended.append(name)

    monkeypatch.setattr(nodes, "list_named_actors", lambda: list(there))
    monkeypatch.setattr(nodes.ray, "get_actor", lambda name: name)
    monkeypatch.setattr(nodes.ray, "kill", kill)
    for check in ("_require_headless", "_require_served"):
        monkeypatch.setattr(nodes, check, lambda *_: None)
    nodes.take_over("/home")
    assert there == [learner]
    assert headless or ended[0] == COORDINATOR
    nodes.end_actors()
    assert there == []
