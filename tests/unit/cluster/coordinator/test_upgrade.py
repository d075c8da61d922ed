"""A home made by version 0.1.0 opens, says the same, and answers repeated requests the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cluster.coordinator.core import Coordinator
from cluster.domain.base import RequestContext
from cluster.domain.compositions import CompositionMethod
from cluster.domain.tasks import ANY, CHAMPION
from cluster.runtime.doctor import migrated
from cluster.storage.home import Home
from tests.support import released
from tests.support.fakes import FakeLauncher, shard_blob, versions

ASKER = RequestContext()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = released.unpacked(tmp_path_factory.mktemp("old"))
    migrated(home)
    return home.path


@pytest.fixture(scope="module")
def coordinator(unpacked: Path) -> Iterator[Coordinator]:
    found = Coordinator(unpacked, FakeLauncher())
    yield found
    found.close()


def told(answer: Any) -> Any:
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json")
    return [told(one) for one in answer]


def subset(new: Any, old: Any) -> Any:
    """`new` with the fields that `old` has; what a version adds is no change."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: subset(new.get(key), value) for key, value in old.items()}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [subset(one, other) for one, other in zip(new, old, strict=True)]
    return new


def test_what_it_says_is_what_it_said(coordinator: Coordinator, unpacked: Path) -> None:
    expected = json.loads((unpacked / "expected.json").read_text())
    user = "alice"
    run = coordinator.evaluate(ASKER, user, False).run_id
    names = dict.fromkeys(one.task for one in versions(coordinator))
    found = {
        "status": coordinator.status(ASKER),
        # With their curves, which a list of all tasks leaves out.
        "vectors": [v for name in names for v in versions(coordinator, name)],
        "compare": coordinator.compare(ASKER, "digits", 1, 2),
        "aliases": coordinator.aliases(ASKER, "digits"),
        "interference": coordinator.interference(ASKER),
        "users": coordinator.users(ASKER),
        "alice": coordinator.composition(ASKER, "alice"),
        "carol": coordinator.composition(ASKER, "carol"),
        "dave": coordinator.composition(ASKER, "dave"),
        "evaluations": coordinator.accuracy_history(ASKER, user),
        "task": coordinator.task(ASKER, "digits"),
        "logs": coordinator.logs(ASKER, "digits"),
        "tokens": coordinator.tokens(),
        "result": coordinator.evaluation(ASKER, run),
    }
    (fit,) = found["status"].work  # heads of its vectors can be fitted now
    assert fit.kind == "fit"
    without = {"work": (), "room": coordinator.cluster().model_copy(update={"free_cpus": 2})}
    found["status"] = found["status"].model_copy(update=without)
    for model in expected["users"]:
        if model["removed"]:  # how it is composed without them was not said
            assert model.pop("again") is None
    for name, answer in found.items():
        assert subset(told(answer), expected[name]) == expected[name], name


def test_requests_of_before_are_recognised(coordinator: Coordinator, unpacked: Path) -> None:
    def under(request_id: str) -> RequestContext:
        return RequestContext(request_id=request_id)

    before = coordinator.status(ASKER)
    home = Home(unpacked)
    kept = coordinator._registry.task("digits").submission
    assert kept.options.strength is None
    again = coordinator.submit(under(kept.request_id), kept)
    assert again.run_id == coordinator._registry.task("digits").run_id
    grown = coordinator.add_samples(under("grow"), "signs", shard_blob(home, "more"))
    assert (grown.version, grown.rows, grown.added) == (2, 8, 4)
    assert coordinator.refresh(under("refresh"), "signs").run_id.startswith("7fbed45c")
    assert coordinator.move_alias(under("back"), "digits", CHAMPION, 1, ANY).version == 1
    assert coordinator.compose(under("compose"), "alice", ["+digits", "-signs"]).user == "alice"
    assert [run[:8] for run in coordinator.cancel(under("cancel"), "faces").cancelled] == [
        "2047d426"
    ]
    how = CompositionMethod(method="ties")
    made = coordinator.start_composition(under("make"), "carol", ["+digits@v1", "-signs@v1"], how)
    assert made.model is not None
    assert made.model.merged is not None
    assert coordinator.remove(under("remove"), "faces", True).users == ("bob",)
    assert coordinator.status(ASKER) == before
