"""Compositions as work of a real cluster: two embedded tasks, a learner killed, and questions."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster.client.client import Client
from cluster.domain.compositions import Method
from cluster.domain.status import CompositionRun
from cluster.runtime.doctor import damage
from tacl import embedded
from tacl.embedded.parquet import png, write_parquet
from tests.integration.test_head import pids, readable_by_others, until

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.timeout(900)]

LEARNER = "LearnerProcess"
NEW = "signs"  # has no vector


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A cluster of the embedded base with two short trainings behind it."""
    found = Client(tmp_path / "home")
    try:
        found.up("embedded", cpus=2)
        for task in ("digits", "shapes"):
            write_parquet(task, tmp_path / task, train_rows=80, test_rows=30, seed=1)
            options: dict[str, Any] = {"steps": 10, "engine": "plain", "penalty": "none"}
            options["refresh"] = "never"
            found.submit(task, tmp_path / task, **options)
        found.wait(timeout=400)
        yield found
        assert not readable_by_others(found.home.path)
    finally:
        found.down()


def asked_and_killed(client: Client, terms: list[str], method: Method, **data: Any) -> str:
    """A composition of alice's; the first process that works on it is killed."""
    until(lambda: not pids(client.home, LEARNER), "nothing else is done")
    run_id = client.start_composition("alice", terms, method, **data).run_id
    (learner,) = until(lambda: pids(client.home, LEARNER), "its process is there")
    assert client.composition_run("alice", run_id).state == "running"
    os.kill(learner, signal.SIGKILL)
    return run_id


def made(client: Client, user: str, run_id: str) -> CompositionRun:
    until(lambda: not client.composition_run(user, run_id).is_owed, "it is made", 300)
    return client.wait_composition(user, run_id)


def test_a_killed_learner_makes_the_same_model(client: Client, tmp_path: Path) -> None:
    images, _ = embedded.generate(NEW, 2, seed=9)
    asked = [png(image) for image in images]
    write_parquet(NEW, tmp_path / NEW, train_rows=60, test_rows=30, seed=1)
    few: dict[str, Any] = {"fit": tmp_path / NEW, "shots": 2}
    run_id = asked_and_killed(client, ["digits", "shapes"], "atlas", **few)
    learned = made(client, "alice", run_id)
    assert learned.attempt == 2
    assert learned.model is not None
    assert learned.report is not None
    assert learned.report.accuracies["fitted"].rows == 30
    assert {(one.vector, one.on) for one in learned.report.tau_jp} >= {("digits@v1", "shapes")}
    undisturbed = client.compose("bob", ["+shapes", "+digits"], method="atlas", **few)
    assert undisturbed.digest == learned.model.digest
    answer = client.query("alice", asked)
    assert answer.digest == undisturbed.digest
    for one in answer.answers:
        assert one.keys() == {"fitted"}
        assert {name for name, _ in one["fitted"]} == set(embedded.classes(NEW))

    run_id = asked_and_killed(client, ["digits", "-0.5*shapes"], "ties")
    merged = made(client, "alice", run_id)
    assert merged.attempt == 2
    assert client.composition("alice").merged is not None
    answer = client.query("alice", asked)
    assert merged.model is not None
    assert answer.digest == merged.model.digest
    assert answer.answers[0].keys() == {"digits"}
    evaluated = client.evaluate("alice")
    assert evaluated.per_task.keys() == {"digits", "shapes"}
    references = partial(client.coordinator.references, client.context())
    assert list(damage(client.home, references)) == []

    adapt: dict[str, Any] = {"adapt": tmp_path / NEW, "classes": list(embedded.classes(NEW))}
    adapted = client.compose("eve", ["digits", "shapes"], method="atlas", **adapt)
    assert adapted.target is not None
    assert client.query("eve", asked).answers[0].keys() == {"fitted"}
