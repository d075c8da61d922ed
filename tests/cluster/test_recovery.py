"""Recovery: whatever happens and whenever the coordinator dies, nothing is lost or doubled."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cluster.launcher import Finished, Gone, Raised
from cluster.messages import CHAMPION, RefreshWork
from cluster.plan import validate
from cluster.recovery import restored
from cluster.registry import Registry
from cluster.state import Node
from tests.cluster.fakes import FakeProcess, Scene, calm, refreshed, shard_blob, submission


def loud(task: str, on: str) -> float:
    """Vectors that move every other task's inputs half as much as their own."""
    return 1.0 if task == on else 0.5


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses no writes, so these tests need not wait for them."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr(Registry._write, "__defaults__", ("relaxed",))


def test_checkpoints_of_ended_runs_are_forgotten(scene: Scene) -> None:
    scene.trained("digits")
    scene.submit("shapes")
    ended, owed = scene.task("digits")["run_id"], scene.task("shapes")["run_id"]
    for run in (ended, owed):
        (scene.home.path / "checkpoints" / run / "1").mkdir(parents=True)
    scene.restart()
    assert [folder.name for folder in (scene.home.path / "checkpoints").iterdir()] == [owed]


class Killed(BaseException):
    """The process is gone: nothing in it runs on."""


class Mortal:
    """A registry in a process that dies just before its n-th write."""

    WRITES = ("accept", "grow", "add_run", "start", "requeue", "fail", "finish", "publish", "told")

    def __init__(self, registry: object, lives: int) -> None:
        self._registry, self.lives = registry, lives

    def __getattr__(self, name: str) -> object:
        method = getattr(self._registry, name)
        if name not in (*self.WRITES, "compose", "retry"):
            return method

        def mortal(*arguments: object) -> object:
            self.lives -= 1
            if self.lives == 0:
                raise Killed(name)
            return method(*arguments)

        return mortal


def story(scene: Scene) -> None:
    """Submits, a death, measures, refreshes, growing samples, models; each call by its id."""
    call = scene.coordinator
    call.submit(submission(scene.home, "digits", refresh="on_arrival"))
    if scene.running() and scene.running()[0].kind == "train":
        scene.die("train")
    scene.settle()
    call.submit(submission(scene.home, "signs"))
    scene.settle()
    call.add_samples("signs", shard_blob(scene.home, "more"), "grow")
    scene.settle()
    call.compose("alice", ["+digits@v1", "-signs"], "compose")
    call.evaluate("alice")
    scene.settle()


def outcome(scene: Scene) -> dict:
    """What people see in the end."""
    call = scene.coordinator
    names = ("digits", "signs")
    versions = {name: [v["parent"] for v in call.vectors(name)] for name in names}
    status = call.status()
    return {
        "tasks": [(t["name"], t["state"], t["version"]) for t in status["tasks"]],  # type: ignore
        "work": status["work"],
        "versions": versions,
        "missing": call.interference()["missing"],
        "shards": [len(call.task(name)["shards"]) for name in names],  # type: ignore[arg-type]
        "model": [t.vector.version for t in call.composition("alice").terms],
        "result": call.result(call.evaluate("alice")) is not None,
    }


def undisturbed(path: Path) -> dict:
    scene = Scene(path, tau=loud)
    story(scene)
    return outcome(scene)


@pytest.mark.usefixtures("without_waiting_for_the_disk")
def test_a_kill_at_any_write_loses_and_doubles_nothing(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "undisturbed")
    assert all(state == "ready" for _, state, _ in expected["tasks"])
    assert expected["missing"] == 0
    assert len(expected["versions"]["digits"]) > 1
    for kill in count(1):
        scene = Scene(tmp_path / f"killed {kill}", tau=loud)
        mortal = Mortal(scene.coordinator._registry, kill)
        scene.coordinator._registry = mortal  # type: ignore[assignment]
        scene.coordinator._execution._registry = mortal  # type: ignore[assignment]
        try:
            story(scene)
            break
        except Killed:
            scene.restart()
            story(scene)  # the clients repeat their calls
        found = outcome(scene)
        assert found == expected, f"kill {kill}"
    assert kill > 20  # there were so many writes to die at


class Life(RuleBasedStateMachine):
    """Submits, growing samples, models, results, deaths, errors, retries, nodes, and restarts."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.scene = Scene(self.folder / "home", Node(2), tau=loud)
        self.names: list[str] = []
        self.counter = itertools.count()

    def pick(self, data: st.DataObject) -> FakeProcess:
        return data.draw(st.sampled_from(self.scene.launcher.running()))

    @rule(arrival=st.sampled_from(["never", "on_arrival"]), workers=st.integers(1, 2))
    def submit(self, arrival: str, workers: int) -> None:
        name = f"t{next(self.counter)}"
        self.names.append(name)
        workers = min(workers, sum(node.cpus for node in self.scene.coordinator._state.nodes))
        for _ in range(2):  # a client that did not hear the answer
            self.scene.submit(name, refresh=arrival, workers=workers)

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        name, number = data.draw(st.sampled_from(self.names)), next(self.counter)
        blob = shard_blob(self.scene.home, f"more {number}")
        self.scene.coordinator.add_samples(name, blob, f"grow {number}")

    @precondition(lambda self: self.scene.ready())
    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        name, number = data.draw(st.sampled_from(self.scene.ready())), next(self.counter)
        self.scene.coordinator.compose("alice", [f"+{name}"], f"compose {number}")
        self.scene.coordinator.evaluate("alice")
        self.scene.coordinator.refresh(name, f"refresh {number}")

    @precondition(lambda self: self.scene.launcher.running())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.scene.finish_process(self.pick(data))

    @precondition(lambda self: self.scene.launcher.running())
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        process = self.pick(data)
        if isinstance(process.work, RefreshWork):
            result = refreshed(process.work, self.scene.home.blobs(), calm, accepted=False)
            process.outcome = Finished(result)

    @precondition(lambda self: self.scene.launcher.running())
    @rule(data=st.data(), forever=st.booleans())
    def go_wrong(self, data: st.DataObject, forever: bool) -> None:
        self.pick(data).outcome = Raised("bad") if forever else Gone("killed")

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        self.scene.coordinator.retry(data.draw(st.sampled_from(self.names)))

    @rule(room=st.sampled_from([(Node(1),), (Node(2),), (Node(1), Node(2))]))
    def nodes_change(self, room: tuple[Node, ...]) -> None:
        self.scene.launcher.room = room

    @rule()
    def tick(self) -> None:
        self.scene.coordinator.tick()

    @rule()
    def die(self) -> None:
        self.scene.restart()

    @invariant()
    def registry_and_plan_agree(self) -> None:
        if not hasattr(self, "scene"):
            return
        live = self.scene.coordinator._state
        again = restored(self.scene.coordinator._registry, live.base)
        validate(live)
        assert self.scene.coordinator.status()["trouble"] is None
        for name in ("tasks", "champions", "rows", "missing", "unmeasurable"):
            assert getattr(again, name) == getattr(live, name), name
        assert again.runs.keys() == live.runs.keys()
        for run_id, run in live.runs.items():
            found = again.runs[run_id]
            assert (run.deaths, run.needs, run.cells) == (found.deaths, found.needs, found.cells)
            assert (run.state == "failed") == (found.state == "failed")

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        if not hasattr(self, "scene"):
            return
        registry = self.scene.coordinator._registry
        assert [task.name for task in registry.tasks()] == self.names
        working = [process.work.run_id for process in self.scene.launcher.running()]
        assert len(working) == len(set(working))
        for name in self.names:
            refs = [entry.reference for entry in registry.vectors(name)]
            assert [ref.version for ref in refs] == list(range(1, len(refs) + 1))
            assert len({ref.run_id for ref in refs}) == len(refs)
            assert (registry.run(registry.task(name).run_id).state == "done") == bool(refs)
            if refs:
                assert 1 <= registry.aliases(name)[CHAMPION] <= len(refs)

    def teardown(self) -> None:
        if hasattr(self, "scene"):
            shutil.rmtree(self.folder)


@pytest.mark.usefixtures("without_waiting_for_the_disk")
def test_any_life() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    chosen = settings(
        max_examples=12,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(Life, settings=chosen)
