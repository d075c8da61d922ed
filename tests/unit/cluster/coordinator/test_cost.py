"""What one person asks reads by an index: it costs the same however many others there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from cluster.domain.base import PAGE, RequestContext
from cluster.domain.compositions import CompositionMethod
from cluster.scheduler.state import Node
from tests.support.fakes import ADMIN, Scene, asks, submission

GROWING = {"run", "user", "composition", "holds", "made", "awaited", "token", "request", "event"}
ANN = RequestContext(user="ann", limited=True)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(tmp_path, Node(2))
    for name in ("news", "spam"):
        found.coordinator.submit(ADMIN, submission(found.home, name, owner="ann"))
    found.settle()
    for user in ("ann", "bob"):
        found.coordinator.compose(asks(f"compose {user}"), user, ["+news"])
        found.coordinator.evaluate(asks(f"evaluate {user}"), user)
        found.coordinator.issue_token(asks(f"issue {user}"), user, "user", f"{user:0<64}")
    found.settle()
    yield found
    found.coordinator.close()


def scans(scene: Scene, ask: Callable[[], object]) -> list[str]:
    """What the database says of the statements that read a whole table that grows with people."""
    engine, asked = scene.coordinator._registry._engine, list[tuple[str, Any]]()

    def heard(*told: Any) -> None:
        asked.append((told[2], told[3]))

    event.listen(engine, "before_cursor_execute", heard)
    try:
        ask()
    finally:
        event.remove(engine, "before_cursor_execute", heard)
    found = []
    with engine.connect() as db:
        for statement, values in asked:
            if not statement.startswith(("SELECT", "UPDATE", "DELETE")):
                continue
            for row in db.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values):
                words = row[-1].replace('"', "").split()
                if words[0] == "SCAN" and words[1] in GROWING:
                    found.append(f"{row[-1]}: {statement}")
    return found


CALLS: dict[str, Callable[[Any], object]] = {
    "compose": lambda call: call.compose(asks("again"), "ann", ["+spam"]),
    "update": lambda call: call.update_composition(asks("update"), "ann"),
    "composition": lambda call: call.composition(ANN, "ann"),
    "compositions": lambda call: call.compositions(["ann", "bob"]),
    "own model": lambda call: call.users(ANN, "ann"),
    "models": lambda call: call.users(ADMIN),
    "merge": lambda call: call.start_composition(
        asks("merge"), "ann", ["+news", "+spam"], CompositionMethod(method="ties")
    ),
    "cancel": lambda call: call.cancel_compositions(asks("cancel"), "ann"),
    "evaluate": lambda call: call.evaluate(asks("measure"), "bob", True),
    "accuracy": lambda call: call.accuracy_history(ANN, "ann"),
    "usage": lambda call: call.usage("ann"),
    "usage of all": lambda call: call.usage(),
    "admit": lambda call: call.admit(ANN, "third"),
    "holder": lambda call: call.holders([f"{'ann':0<64}"]),
    "tokens": lambda call: call.tokens("ann"),
    "tokens of all": lambda call: call.tokens(),
    "revoke": lambda call: call.revoke_tokens(asks("revoke"), "ann"),
    "rotate": lambda call: call.rotate_token(asks("rotate"), "bob00000", "c" * 64),
    "aliases": lambda call: call.aliases(ANN, "news"),
    "logs": lambda call: call.logs(ANN, "news"),
    "task": lambda call: call.task(ANN, "news"),
    "vectors": lambda call: call.vectors(ANN, "news"),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_question_of_one_reads_what_everybody_has(name: str, scene: Scene) -> None:
    assert scans(scene, lambda: CALLS[name](scene.coordinator)) == []


def test_models_are_listed_a_page_at_a_time(scene: Scene) -> None:
    users = [f"user{number:03}" for number in range(PAGE + 5)]
    for user in users:
        scene.coordinator.compose(asks(f"compose {user}"), user, ["+news"])
    first = [one.user for one in scene.coordinator.users(ADMIN)]
    assert first == ["ann", "bob", *users[: PAGE - 2]]
    rest = [one.user for one in scene.coordinator.users(ADMIN, after=first[-1])]
    assert rest == users[PAGE - 2 :]
    assert scene.coordinator.users(ADMIN, after=rest[-1]) == []
    assert [one.user for one in scene.coordinator.users(ADMIN, "user007")] == ["user007"]


def test_a_removed_task_names_the_users_whose_model_holds_it_now(scene: Scene) -> None:
    scene.coordinator.compose(asks("other"), "bob", ["+spam"])
    assert scene.coordinator.remove(asks("gone"), "news", False).users == ("ann",)


def test_usage_and_tokens_are_listed_by_user(scene: Scene) -> None:
    assert [one.user for one in scene.coordinator.usage()] == ["ann", "bob"]
    assert [one.user for one in scene.coordinator.usage(after="ann")] == ["bob"]
    assert [one.user for one in scene.coordinator.tokens(after="ann")] == ["bob"]
    assert scene.coordinator.tokens(after="bob") == []
