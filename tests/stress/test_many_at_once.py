"""Hundreds of calls at once: versions without gaps or doubles, and conflicts said as such."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cluster.domain.tasks import CHAMPION
from cluster.registry import Registry, Request
from cluster.scheduler.state import Node
from tacl.errors import AliasMoved, NameTaken
from tests.support.fakes import ADMIN, Scene, asks, submission
from tests.support.places import ROOT
from tests.support.registry_scene import BASE, GENERIC_BLOB, accept, publish, refresh, refreshed

THREADS = 16


def at_once(jobs: list[Callable[[], Any]]) -> list[Any]:
    """All results, or the errors; the threads begin together."""
    begin = threading.Barrier(THREADS)

    def run(mine: list[Callable[[], Any]]) -> list[Any]:
        begin.wait()
        return [tried(job) for job in mine]

    def tried(job: Callable[[], Any]) -> Any:
        try:
            return job()
        except Exception as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        shares = [jobs[number::THREADS] for number in range(THREADS)]
        return [result for share in pool.map(run, shares) for result in share]


@pytest.mark.usefixtures("without_waiting_for_the_disk")
def test_callers_of_one_coordinator(tmp_path: Path, registry_url: str) -> None:
    scene = Scene(tmp_path / "home", Node(500), registry=registry_url).trained("digits", "shapes")
    for _ in range(3):
        scene.coordinator.refresh(asks(f"refresh {_}"), "digits")
        scene.settle()
    call = scene.coordinator
    sent = [submission(scene.home, f"t{number}") for number in range(40)]
    lookups: list[Callable[[], Any]] = [
        *(lambda: call.status(ADMIN) for _ in range(20)),
        *(lambda: call.composition(ADMIN, "alice") for _ in range(100)),
        *(lambda: call.vectors(ADMIN, "digits") for _ in range(40)),
    ]
    writes: list[Callable[[], Any]] = [
        *(lambda s=s: call.submit(ADMIN, s) for s in sent * 3),  # every request three times
        *(
            lambda n=n: call.compose(asks(f"compose {n}"), "alice", ["+digits", f"{n}*shapes"])
            for n in range(1, 101)
        ),
        *(
            lambda n=n: call.move_alias(asks(f"move {n}"), "digits", "blessed", 1 + n % 4, None)
            for n in range(60)
        ),
        *(lambda: call.tick() for _ in range(20)),
    ]
    call.compose(asks("first"), "alice", ["+digits"])
    mixed = [job for pair in zip(writes, [*lookups, *lookups], strict=False) for job in pair]
    results = at_once([*mixed, *writes[len(lookups) * 2 :]])
    errors = [one for one in results if isinstance(one, Exception)]
    assert all(isinstance(one, AliasMoved) for one in errors), errors
    assert len(errors) == 59  # one of sixty found no alias yet
    tasks = call._registry.tasks()
    assert [task.ordinal for task in tasks] == list(range(1, 43))
    assert {task.name for task in tasks} == {"digits", "shapes", *(one.name for one in sent)}
    answers = [one for one in results if hasattr(one, "run_id")]
    assert len(answers) == 120
    assert len({one.run_id for one in answers}) == 40
    scene.settle()
    assert len(scene.ready()) == 42
    matrix = call.interference(ADMIN)
    rows = zip(matrix.vectors, matrix.raw, strict=True)
    assert all(row[matrix.on.index(one.task)] for one, row in rows)  # others have a budget
    call.close()


WRITER = """
import json, sys
from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.tasks import CHAMPION
from cluster.registry import Registry, Request
from tacl.errors import AliasMoved, NameTaken
from tests.support.registry_scene import accept, refreshed
url, who = sys.argv[1:]
registry, done = Registry(url), {"mine": [], "taken": 0, "moved": 0, "conflicts": 0}
print("ready", flush=True); sys.stdin.readline()
for number in range(25):
    accept(registry, f"{who} {number}")
    try:
        accept(registry, f"shared {number}")
        done["mine"].append(number)
    except NameTaken:
        done["taken"] += 1
    published = registry.publish(f"refresh a {who} {number}", refreshed(number))
    terms = (RecipeTerm(coefficient=number, vector=registry.vector("a", 1)),)
    model = Composition(digest=f"recipe {number}", user="bob", terms=terms)
    registry.compose(model, Request(f"compose {who} {number}", "asked", "answer"))
    aliases, looked_up = registry.aliases("a"), registry.compositions("bob")[0].digest
    registry.vector("a", aliases[CHAMPION])  # raises when an alias is ahead of its version
    assert looked_up in {f"recipe {other}" for other in range(25)}
    held = aliases.get("blessed")
    try:
        request = Request(f"move {who} {number}", "asked", "answer")
        registry.move_alias("a", "blessed", published.version, held, request)
        done["moved"] += 1
    except AliasMoved:
        done["conflicts"] += 1
print(json.dumps(done))
"""


@pytest.mark.parametrize("processes", [4])
def test_writers_in_several_processes(registry_url: str, processes: int) -> None:
    registry = Registry(registry_url)
    registry.founded(BASE, GENERIC_BLOB)
    publish(registry, "a")
    who = [f"p{number}" for number in range(processes)]
    for name in who:
        for number in range(25):
            refresh(registry, "a", f"{name} {number}")  # type: ignore[arg-type]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, registry_url, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for name in who
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    outputs = [writer.communicate("go\n")[0] for writer in writers]
    done = [json.loads(output) for output in outputs]
    tasks = registry.tasks()
    assert [task.ordinal for task in tasks] == list(range(1, len(tasks) + 1))
    assert len(tasks) == 1 + processes * 25 + 25
    assert sorted(number for one in done for number in one["mine"]) == list(range(25))
    versions = [entry.reference.version for entry in registry.vectors("a")]
    assert versions == list(range(1, processes * 25 + 2))
    moves = [move for move in registry.alias_changes("a") if move.name == "blessed"]
    assert len(moves) == sum(one["moved"] for one in done)
    assert all(one["moved"] + one["conflicts"] == 25 for one in done)
    chain = [(move.came_from, move.version) for move in moves]
    assert [old for old, _ in chain[1:]] == [new for _, new in chain[:-1]]  # no move was lost
    assert registry.aliases("a")["blessed"] == chain[-1][1]
    assert registry.aliases("a")[CHAMPION] >= 2
    assert registry.compositions("bob")[0].digest == "recipe 24"  # the last of whoever was last
    requests = [f"compose {name} {number}" for name in who for number in range(25)]
    assert {registry.answer(request, "asked") for request in requests} == {"answer"}
    registry.close()


def test_a_conflict_says_what_it_found(registry_url: str) -> None:
    registry = Registry(registry_url)
    registry.founded(BASE, GENERIC_BLOB)
    publish(registry, "a")
    registry.publish(refresh(registry, "a", 1).run_id, refreshed(1))
    with pytest.raises(AliasMoved, match="expected at v1; it is at v2"):
        registry.move_alias("a", CHAMPION, 1, 1, Request("one", "asked", "answer"))
    assert registry.answer("one", "asked") is None
    registry.move_alias("a", CHAMPION, 1, 2, Request("two", "asked", "answer"))
    assert [(m.came_from, m.version, m.cause) for m in registry.alias_changes("a")] == [
        (None, 1, "published"),
        (1, 2, "published"),
        (2, 1, "asked"),
    ]
    with pytest.raises(NameTaken):
        accept(registry, "a")
    registry.close()
