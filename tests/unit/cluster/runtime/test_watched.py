"""The actor that clients look up has all that is asked of a coordinator, and is light to name."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ray import cloudpickle

from cluster.domain.api import CoordinatorAPI, RunAPI
from cluster.runtime import actors, starting, watched
from cluster.runtime.actors import TickingCoordinator
from cluster.runtime.local_socket import SOCKET
from cluster.runtime.watched import WatchedCoordinator


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def parameters(kind: type, method: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(kind, method)).parameters.values())


class Behind:
    def task(self, context: str, name: str) -> tuple[str, str]:
        return context, name


def test_every_question_is_passed_on() -> None:
    inside = {"close", "tick"}  # nobody else's business
    assert public(WatchedCoordinator) == public(TickingCoordinator) - inside
    actor: Any = WatchedCoordinator.__new__(WatchedCoordinator)
    actor._coordinator, actor._turn = Behind(), threading.Lock()
    assert actor.task("alice", name="faces") == ("alice", "faces")


@pytest.mark.parametrize(
    ("declared", "method"),
    [(kind, name) for kind in (CoordinatorAPI, RunAPI) for name in sorted(public(kind))],
)
def test_the_coordinator_takes_what_is_declared(declared: type, method: str) -> None:
    """It may have more defaults, and no others: arguments go by position."""
    asked, taken = parameters(declared, method), parameters(TickingCoordinator, method)
    assert [(one.name, one.kind) for one in taken] == [(one.name, one.kind) for one in asked]
    for theirs, own in zip(asked, taken, strict=True):
        assert theirs.default in (own.default, inspect.Parameter.empty), own.name


def test_what_reads_everything_leaves_room_for_calls_through_ray(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of an actor's methods Ray runs only so many at once: one, unless it is told."""
    options: dict[str, Any] = {}

    def actor_of(kind: type, **given: Any) -> Any:
        options.update(given)
        return MagicMock()

    monkeypatch.setattr(starting, "actor_of", actor_of)
    monkeypatch.setattr(starting.ray, "get", lambda answer: answer)
    starting.start_coordinator("home", "learner", pinned=False, runs=1)
    assert options["max_concurrency"] > len(watched.LONG)


class Ended(BaseException):
    """The process, with this exit code."""


def ends(code: int) -> None:
    raise Ended(code)


@pytest.mark.parametrize(
    "damaged", ["settings.json", f"{SOCKET}.{os.getpid()}"], ids=["home", "socket"]
)
def test_a_start_that_fails_at_any_stage_ends_the_process_to_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    """As where a disk is read-only or a bucket away: Ray starts no actor again that raised."""
    if damaged != "settings.json":
        monkeypatch.setattr(actors, "TickingCoordinator", lambda *_: Behind())
    (tmp_path / damaged).mkdir()
    monkeypatch.setattr(os, "_exit", ends)
    monkeypatch.setattr(watched, "RETRY", 0.0)
    with pytest.raises(Ended, match="1"):
        WatchedCoordinator(str(tmp_path), "learner", 1)


def test_who_looks_it_up_imports_no_sql() -> None:
    """Ray gives the class to whoever finds the actor by its name."""

    class Derived(WatchedCoordinator):  # as ray.remote makes one
        pass

    code = (
        f"import pickle, sys; pickle.loads({cloudpickle.dumps(Derived)!r}); "
        "print([m for m in ('torch', 'sqlalchemy', 'cluster.coordinator') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert pickle.loads(cloudpickle.dumps(WatchedCoordinator)) is WatchedCoordinator
