"""The same rows twice: asked about, of tasks that the asker sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.client.client import Client
from cluster.domain.base import RequestContext
from tacl.errors import SameData
from tests.support.fakes import ADMIN, Scene, asks, submission

ROWS = "ab" * 32
BOB = RequestContext(user="bob")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_same_rows_are_refused_unless_they_are_sent_again(scene: Scene) -> None:
    scene.submit("digits", rows=ROWS)
    twice = submission(scene.home, "shapes", rows=ROWS)
    with pytest.raises(SameData, match=r"digits has exactly these rows.*--again"):
        scene.coordinator.submit(ADMIN, twice)
    assert [task.name for task in scene.coordinator.status(ADMIN).tasks] == ["digits"]
    accepted = scene.coordinator.submit(ADMIN, twice, again=True)
    assert scene.coordinator.submit(ADMIN, twice) == accepted  # it was answered before
    scene.submit("signs", rows="cd" * 32)


def test_nobody_is_told_of_private_tasks_of_others(scene: Scene) -> None:
    secret = {"owner": "ann", "private": True, "rows": ROWS}
    scene.submit("ann.digits", **secret)
    scene.coordinator.submit(BOB, submission(scene.home, "shapes", rows=ROWS, owner="bob"))
    mine = submission(scene.home, "mine", rows=ROWS, owner="ann")
    with pytest.raises(SameData, match=r"ann\.digits"):
        scene.coordinator.submit(RequestContext(user="ann"), mine)


@pytest.mark.parametrize("gone", ["cancelled", "removed"])
def test_what_is_gone_is_not_the_same(scene: Scene, gone: str) -> None:
    scene.submit("digits", rows=ROWS)
    if gone == "cancelled":
        scene.coordinator.cancel(asks("stop"), "digits")
    else:
        scene.coordinator.remove(asks("stop"), "digits", False)
    scene.submit("shapes", rows=ROWS)


def test_rows_of_a_vector_from_elsewhere_are_asked_about_too(scene: Scene) -> None:
    scene.submit("digits", rows=ROWS)
    vector = scene.home.blobs().put(b"a vector")
    imported = submission(scene.home, "shapes", rows=ROWS, vector_blob=vector)
    with pytest.raises(SameData, match=r"digits has exactly these rows.*--again"):
        scene.coordinator.submit(ADMIN, imported)
    assert scene.coordinator.submit(ADMIN, imported, again=True).task == "shapes"


def test_a_run_is_known_by_its_rows_alone_as_before(scene: Scene) -> None:
    plain = scene.coordinator.submit(ADMIN, submission(scene.home, "digits")).run_id
    scene.coordinator.cancel(asks("stop"), "digits")
    named = submission(scene.home, "digits", rows=ROWS, request_id="again")
    assert scene.coordinator.submit(ADMIN, named).run_id == plain


def test_a_client_asks(scene: Scene, tmp_path: Path) -> None:
    rows = [f"{row % 2},text {row}" for row in range(20)]
    (tmp_path / "one.csv").write_text("\n".join(["label,text", *rows]))
    (tmp_path / "two.csv").write_text("\n".join(["label,text", *reversed(rows)]))
    client = Client(scene.home.path, coordinator=scene.coordinator)
    client.submit("one", tmp_path / "one.csv")
    asked: list[str] = []
    with pytest.raises(SameData):
        client.submit("two", tmp_path / "two.csv", seed=7)
    with pytest.raises(SameData):
        client.submit("two", tmp_path / "two.csv", again=lambda why: asked.append(why) is not None)
    assert "one has exactly these rows" in asked[0]
    assert client.submit("two", tmp_path / "two.csv", again=lambda _: True).task == "two"
    assert client.submit("three", tmp_path / "two.csv", again=True).task == "three"
    (tmp_path / "two.csv").write_text("\n".join(["label,text", *rows[1:]]))
    client.submit("other", tmp_path / "two.csv")
