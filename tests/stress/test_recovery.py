"""Recovery: whatever happens and whenever the coordinator dies, nothing is lost or doubled."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.coordinator.recovery import restored
from cluster.domain.base import RequestContext
from cluster.domain.compositions import CompositionMethod, Fit
from cluster.domain.outcomes import Finished, Gone, Raised
from cluster.domain.status import RunState
from cluster.domain.tasks import CHAMPION, GENERIC
from cluster.domain.work import RefreshWork
from cluster.scheduler.plan import validate
from cluster.scheduler.state import MatrixCell, Node, State
from cluster.storage.samples import store_rows
from tacl.errors import AliasMoved, StorageUnavailable
from tests.support.budget import budget, seconds
from tests.support.fakes import ADMIN, FakeProcess, Scene, asks, calm, loud, refreshed, shard_blob
from tests.support.lost import lost_answer
from tests.support.world import assert_all_due_are_asked


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_checkpoints_of_ended_runs_are_forgotten(scene: Scene) -> None:
    scene.trained("digits")
    scene.submit("shapes")
    ended, owed = scene.task("digits").run_id, scene.task("shapes").run_id
    scene.known(owed, 0)
    for run in (ended, owed):
        (scene.home.path / "checkpoints" / run / "1").mkdir(parents=True)
    scene.restart()
    assert [folder.name for folder in (scene.home.path / "checkpoints").iterdir()] == [owed]


def still_unmeasurable(state: State) -> set[MatrixCell]:
    """Of tasks that were not removed."""
    return {cell for cell in state.unmeasurable if {cell.task, cell.on} <= state.tasks.keys()}


class Life(RuleBasedStateMachine):
    """Everything that people and processes can do, in any order, and restarts.

    The plan in memory and the registry on the disk are one: after every step the state that would
    be read again is the state that there is."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.scene = Scene(self.folder / "home", Node(2), tau=loud)
        self.names: list[str] = []  # accepted, by arrival
        self.gone: set[str] = set()  # and removed since
        self.purged: set[str] = set()
        self.left: set[str] = set()  # of those that are gone, whose name is free
        self.counter = itertools.count()

    def pick(self, data: st.DataObject) -> FakeProcess:
        return data.draw(st.sampled_from(self.scene.launcher.running()))

    def heard(self, write: str, heard: bool) -> AbstractContextManager[None]:
        """Whether the coordinator hears the answer to a commit; the client never does."""
        return nullcontext() if heard else lost_answer(self.scene, write)

    def cpus(self) -> int:
        return sum(node.cpus for node in self.scene.coordinator._state.nodes)

    def present(self, data: st.DataObject) -> str | None:
        """A task that was not removed."""
        names = [name for name in self.names if name not in self.gone]
        return data.draw(st.sampled_from(names)) if names else None

    @rule(
        arrival=st.sampled_from(["never", "on_arrival"]),
        workers=st.integers(1, 2),
        owner=st.sampled_from(["ann", "bob"]),
        private=st.booleans(),
    )
    def submit(self, arrival: str, workers: int, owner: str, private: bool) -> None:
        name = f"t{next(self.counter)}"
        name = f"{owner}.{name}" if private else name
        self.names.append(name)
        workers = min(workers, self.cpus())
        for _ in range(2):  # a client that did not hear the answer
            whose = {"owner": owner, "private": private}
            self.scene.submit(name, refresh=arrival, workers=workers, **whose)

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        name, number = self.present(data), next(self.counter)
        if name is not None:
            blob = shard_blob(self.scene.home, f"more {number}")
            self.scene.coordinator.add_samples(asks(f"grow {number}"), name, blob)

    @precondition(lambda self: self.scene.ready())
    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        name, number = data.draw(st.sampled_from(self.scene.ready())), next(self.counter)
        user = data.draw(st.sampled_from(["alice", "eve"]))
        self.scene.coordinator.compose(asks(f"compose {number}"), user, [f"+{name}"])
        self.scene.coordinator.evaluate(asks(f"evaluate {number}"), user)
        self.scene.coordinator.refresh(asks(f"refresh {number}"), name)

    @precondition(lambda self: self.scene.ready())
    @rule(data=st.data(), fitted=st.booleans())
    def make(self, data: st.DataObject, fitted: bool) -> None:
        """Few names, few recipes: the same is asked for again and again."""
        name, number = data.draw(st.sampled_from(self.scene.ready())), next(self.counter)
        user, making = (
            data.draw(st.sampled_from(["alice", "eve"])),
            CompositionMethod(method="ties"),
        )
        if fitted:
            shots = store_rows(self.scene.home.blobs(), ["one", "two"], [0, 1])
            making = CompositionMethod(method="atlas", fit=Fit(classes=("x", "y"), shots=shots))
        call = self.scene.coordinator
        asked = [call.start_composition(asks(f"make {number}"), user, [name], making) for _ in "ab"]
        assert asked[0].run_id == asked[1].run_id
        if asked[0].state == "ready":
            assert call.composition(ADMIN, user) == asked[0].model

    @precondition(lambda self: self.scene.ready())
    @rule(data=st.data())
    def move_an_alias(self, data: st.DataObject) -> None:
        name, number = data.draw(st.sampled_from(self.scene.ready())), next(self.counter)
        call = self.scene.coordinator
        there = call.aliases(ADMIN, name).aliases
        version = data.draw(st.integers(1, len(call.vectors(ADMIN, name))))
        alias = data.draw(st.sampled_from([CHAMPION, "blessed"]))
        if data.draw(st.booleans()):
            wrong = there.get(alias, 0) + 1
            with pytest.raises(AliasMoved):
                call.move_alias(asks(f"move {number} wrongly"), name, alias, version, wrong)
        call.move_alias(asks(f"move {number}"), name, alias, version, there.get(alias))
        assert call.aliases(ADMIN, name).aliases == {**there, alias: version}

    @precondition(lambda self: self.names)
    @rule(data=st.data(), keep=st.booleans(), heard=st.booleans())
    def cancel(self, data: st.DataObject, keep: bool, heard: bool) -> None:
        name, number = self.present(data), next(self.counter)
        if name is not None:
            leaves = not keep and name not in self.scene.ready()
            write = "remove" if leaves else "cancel"
            with suppress(StorageUnavailable), self.heard(write, heard):
                self.scene.coordinator.cancel(asks(f"cancel {number}"), name, keep)
            answer = self.scene.coordinator.cancel(asks(f"cancel {number}"), name, keep)
            assert answer.left == leaves
            if leaves:
                self.gone.add(name)
                self.left.add(name)

    @precondition(lambda self: self.left)
    @rule(data=st.data(), same=st.booleans())
    def come_again(self, data: st.DataObject, same: bool) -> None:
        """What left, under its name: the same, or other data."""
        name, number = data.draw(st.sampled_from(sorted(self.left))), next(self.counter)
        old = self.scene.coordinator._registry.any_task(name).submission
        rows = {} if same else {"shard": shard_blob(self.scene.home, f"other {number}")}
        workers = min(old.options.workers, self.cpus())
        options = old.options.model_copy(update={"workers": workers})
        again = {"request_id": f"again {number}", "options": options}
        new = old.model_copy(update=again | rows)
        for _ in range(2):
            self.scene.coordinator.submit(ADMIN, new)
        self.names.remove(name)
        self.names.append(name)
        self.gone.remove(name)
        self.left.remove(name)

    @precondition(lambda self: self.names)
    @rule(data=st.data(), purge=st.booleans(), heard=st.booleans())
    def remove(self, data: st.DataObject, purge: bool, heard: bool) -> None:
        name, number = self.present(data), next(self.counter)
        if name is not None:
            self.gone.add(name)
            self.purged |= {name} if purge else set()
            with suppress(StorageUnavailable), self.heard("remove", heard):
                self.scene.coordinator.remove(asks(f"remove {number}"), name, purge)
            self.scene.coordinator.remove(asks(f"remove {number}"), name, purge)

    @rule()
    def collect_garbage(self) -> None:
        self.scene.coordinator.collect()

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
        name = self.present(data)
        if name is not None:
            self.scene.coordinator.retry(RequestContext(), name)

    @rule(room=st.sampled_from([(Node(1),), (Node(2),), (Node(1), Node(2))]))
    def nodes_change(self, room: tuple[Node, ...]) -> None:
        self.scene.launcher.room = room

    @rule()
    def tick(self) -> None:
        self.scene.coordinator.tick()

    @rule(data=st.data(), alone=st.booleans())
    def die(self, data: st.DataObject, alone: bool) -> None:
        """The coordinator, alone or with some of its learners."""
        if not alone and (running := self.scene.launcher.running()):
            for process in data.draw(st.lists(st.sampled_from(running), min_size=1)):
                process.cancelled = True
        self.scene.restart(outlived=True)

    @invariant()
    def registry_and_plan_agree(self) -> None:
        if not hasattr(self, "scene"):
            return
        live = self.scene.coordinator._state
        again = restored(self.scene.coordinator._registry, live.base)
        validate(live)
        assert_all_due_are_asked(live)
        assert self.scene.coordinator.status(ADMIN).trouble is None
        for name in ("tasks", "owners", "champions", "rows", "balance"):
            assert getattr(again, name) == getattr(live, name), name
        asked = [
            {c for c in s.unmeasurable if {c.task, c.on} <= s.tasks.keys()} for s in (again, live)
        ]
        assert asked[0] == asked[1]
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
        assert [task.name for task in registry.tasks(with_removed=True)] == self.names
        assert {task.name for task in registry.tasks()} == set(self.names) - self.gone
        working = [process.work.run_id for process in self.scene.launcher.running()]
        assert len(working) == len(set(working))
        assert set(working) <= {run.run_id for run in registry.runs(states=(RunState.RUNNING,))}
        for name in self.names:
            refs = [entry.reference for entry in registry.vectors(name)]
            assert [ref.version for ref in refs] == list(range(1, len(refs) + 1))
            assert len({ref.run_id for ref in refs}) == len(refs)
            assert (registry.run(registry.any_task(name).run_id).state == "done") == bool(refs)
            if refs:
                assert 1 <= registry.aliases(name)[CHAMPION] <= len(refs)

    @invariant()
    def private_samples_stay_with_their_owner(self) -> None:
        if not hasattr(self, "scene"):
            return
        registry = self.scene.coordinator._registry
        tasks = {task.name: task.submission for task in registry.tasks(with_removed=True)}
        for entry in registry.vectors():
            work = registry.run(entry.reference.run_id).work
            met = {one.shard.task for one in registry.arrivals(work.run_id)}
            if isinstance(work, RefreshWork):
                met = {shard.task for shard in work.others}
            for other in met - {GENERIC}:
                allowed = tasks[entry.reference.task].owner, None
                assert (tasks[other].owner if tasks[other].private else None) in allowed

    @invariant()
    def everything_needed_is_there_and_nothing_erased(self) -> None:
        if not hasattr(self, "scene"):
            return
        self.scene.coordinator.tick()
        registry, blobs = self.scene.coordinator._registry, self.scene.home.blobs()
        needed = registry.referenced()
        assert all(blobs.exists(digest) for digest in needed)
        assert registry.fits_of_purged() == {}
        for name in self.purged:
            gone = registry.references_of(name).keys() - needed.keys()
            assert not any(blobs.exists(digest) for digest in gone)

    def teardown(self) -> None:
        if hasattr(self, "scene"):
            shutil.rmtree(self.folder)


@pytest.mark.timeout(seconds(900))  # a minute of one core, which others may share
@pytest.mark.usefixtures("without_waiting_for_the_disk")
def test_any_life() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    chosen = settings(
        max_examples=budget(10),
        stateful_step_count=25,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],  # explaining is slow
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(Life, settings=chosen)
