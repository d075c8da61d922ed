"""Reading beside the coordinator: what it costs, and that the order in which things happen is no
matter."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cluster.domain.base import RequestContext
from cluster.domain.compositions import Fitted
from cluster.reading import reader as reading
from cluster.reading.reader import Reader
from cluster.registry import Registry
from tacl.errors import StorageUnavailable, UnknownTask
from tests.support.fakes import ADMIN, Scene, asks
from tests.support.statements import statements

BOB = RequestContext(user="bob")
SECRET = "ann.secret"


def selects(reader: Reader, ask: Callable[[], object]) -> list[str]:
    asked = statements(reader._registry, ask)
    return [said for said, _ in asked if said.startswith("SELECT")]


def test_a_look_at_which_nothing_happened_is_one_short_question(
    scene: Scene, reader: Reader
) -> None:
    scene.trained("a")
    scene.coordinator.compose(asks("compose"), "ann", ["+a"])
    reader.composition(ADMIN, "ann")
    look, *answer = selects(reader, lambda: reader.composition(ADMIN, "ann"))
    assert look.startswith("SELECT max(event.number)")
    assert len(answer) == 2  # the model, and what is purged
    assert not any("event" in said for said in answer)


def test_what_happened_is_read_and_nothing_else(
    scene: Scene, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.trained("a", heads="fitted")
    reader.compositions([])
    found, result = list[str](), Registry.result

    def heard(registry: Registry, run_id: str, kind: type[Any]) -> Any:
        found.append(kind.__name__)
        return result(registry, run_id, kind)

    monkeypatch.setattr(Registry, "result", heard)
    monkeypatch.setattr(Registry, "fits", None)  # all of them
    scene.trained("b", heads="fitted")
    assert not any("FROM shard" in said for said in selects(reader, lambda: reader.users(BOB)))
    assert found
    assert set(found) == {Fitted.__name__}
    assert reader._heads == scene.coordinator._execution.heads


def test_heads_are_read_once_somebody_needs_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are of thousands of tasks; also where one looked when others had looked already."""
    scene.trained("a", heads="fitted")
    scene.coordinator.compose(asks("compose"), "ann", ["+a"])
    reader, read, fits = Reader(scene.home, note=lambda hashes: None), list[int](), Registry.fits
    monkeypatch.setattr(Registry, "fits", lambda registry: read.append(1) or fits(registry))
    for ask in (reader.vectors, reader.users, lambda who: reader.logs(who, "a")):
        assert ask(ADMIN)
    assert not read
    with ThreadPoolExecutor(1) as other, reader._reading() as before:
        scene.trained("b", heads="fitted")
        other.submit(reader.users, ADMIN).result()
        assert len(before.heads().fits) == 1
    assert reader.composition(ADMIN, "ann") == scene.coordinator.composition(ADMIN, "ann")
    with reader._reading() as known:
        assert len(known.heads().fits) == 2
    assert len(read) == 2
    reader.close()


@pytest.mark.parametrize("many", [0, 5000])
def test_memory_is_what_the_registry_says(
    many: int, scene: Scene, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether what happened is taken in, or all is read again."""
    monkeypatch.setattr(reading, "MANY", many)
    steps: list[Callable[[], object]] = [
        lambda: scene.submit("a", heads="fitted"),
        lambda: scene.submit(SECRET, owner="ann", private=True, heads="fitted"),
        scene.settle,
        lambda: scene.submit("ann.b", owner="ann", private=True),
        lambda: scene.coordinator.cancel(asks("cancel"), "ann.b"),
        lambda: (scene.coordinator.close(), scene.restart()),
        lambda: scene.trained("c", heads="fitted"),
        lambda: scene.coordinator.collect(False),
        lambda: scene.coordinator.remove(asks("remove"), "c", False),
        lambda: scene.coordinator.remove(asks("purge"), SECRET, True),
        scene.settle,
    ]
    for step in steps:
        step()
        with reader._reading() as known, scene.coordinator._reading() as now:
            assert known.owners == now.owners
            assert known.heads() == now.heads()


def test_a_registry_that_forgot_is_read_again(scene: Scene, reader: Reader) -> None:
    """As one that a server of another moment took the place of."""
    scene.submit(SECRET, owner="ann", private=True)
    reader.compositions([])
    reader._last += 1000
    scene.submit("ann.other", owner="ann", private=True)
    with reader._reading() as known:
        assert set(known.owners) == {SECRET, "ann.other"}


def test_what_happens_between_a_look_and_its_answer_is_in_neither(
    scene: Scene, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private task is submitted, trained and published just then."""
    scene.trained("open")
    look = reader._look

    def meanwhile() -> Any:
        known = look()
        if SECRET not in scene.coordinator._state.tasks:
            scene.submit(SECRET, owner="ann", private=True)
            scene.settle()
        return known

    monkeypatch.setattr(reader, "_look", meanwhile)
    assert {one.task for one in reader.vectors(BOB)} == {"open"}
    assert SECRET in scene.ready()
    assert {one.task for one in reader.vectors(BOB)} == {"open"}
    assert {one.task for one in reader.vectors(ADMIN)} == {"open", SECRET}


def test_threads_read_while_the_coordinator_writes(scene: Scene, reader: Reader) -> None:
    """None of them is ever told of a private task."""
    told, done = set[str](), threading.Event()
    failed: list[Exception] = []

    def ask() -> None:
        while not done.is_set():
            try:
                told.update(one.task for one in reader.vectors(BOB))
                with pytest.raises(UnknownTask) as refused:
                    reader.logs(BOB, "nobody")
                told.update(str(refused.value).replace(",", " ").split())
            except Exception as error:
                failed.append(error)
                return

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(3):
            scene.submit(f"ann.secret{number}", owner="ann", private=True)
            scene.submit(f"open{number}", owner="bob")
            scene.settle()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert "open0" in told
    assert not [name for name in told if "secret" in name]


def test_it_writes_nothing(scene: Scene, reader: Reader) -> None:
    """The use of a token is told to who writes it down."""
    used: list[str] = []
    reader._told = used.extend
    scene.coordinator.issue_token(asks("issue"), "ann", "user", "a" * 64)
    reader.holder("a" * 64)
    assert used == ["a" * 64]
    with pytest.raises(Exception, match="read-?only"):
        reader._registry.used(used, 1.0)
    assert scene.coordinator.tokens("ann")[0].used is None
    scene.coordinator.holder("a" * 64)
    reader.holder("a" * 64)
    assert used == ["a" * 64]  # it was noted


def test_a_registry_that_is_away_is_said_to_be(
    scene: Scene, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And afterwards nothing is missing."""

    def away(*_: object, **named: object) -> None:
        raise StorageUnavailable("away")

    scene.submit(SECRET, owner="ann", private=True)
    monkeypatch.setattr(Registry, "tasks", away)
    with pytest.raises(StorageUnavailable):
        reader.vectors(BOB)
    monkeypatch.undo()
    with pytest.raises(UnknownTask):
        reader.logs(BOB, SECRET)
