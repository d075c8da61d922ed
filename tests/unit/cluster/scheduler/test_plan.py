"""The plan: examples of every decision, then random events with every invariant after each."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cluster.domain.status import RunState
from cluster.domain.tasks import GENERIC, Options
from cluster.scheduler.plan import (
    DEATHS,
    MEASURE_BATCH,
    REFRESH_FROM,
    is_current,
    is_due,
    refresh_of,
    validate,
)
from cluster.scheduler.queue import free, needs_of, reason, waits_for
from cluster.scheduler.state import (
    Cell,
    Died,
    Ended,
    Fail,
    Failed,
    Fit,
    Inconsistent,
    Measure,
    Measured,
    Node,
    NodesChanged,
    Published,
    Refresh,
    Requeue,
    SamplesArrived,
    Vector,
)
from tests.support.budget import budget
from tests.support.world import NEVER, ON_ARRIVAL, World

# -- failures


def test_deaths_are_forgiven_within_a_budget() -> None:
    world = World(Node(1))
    world.submit("a")
    for _ in range(DEATHS):
        assert Requeue("train a", "killed") in world.happens(Died("train a", "killed"))
        assert world.running == {"train a"}
    (fail,) = world.happens(Died("train a", "killed"))
    assert isinstance(fail, Fail)
    assert "lost 3 times" in fail.cause
    world.request("train a", "train", "a")
    assert world.running == {"train a"}
    assert world.state.runs["train a"].deaths == 0


def test_errors_are_not() -> None:
    world = World(Node(1))
    world.submit("a")
    assert world.happens(Failed("train a", "bad")) == [Fail("train a", "bad")]
    assert not world.running


# -- measuring


def test_a_column_is_measured_when_a_task_arrives() -> None:
    world = World(Node(4)).trained("a", "b")
    world.submit("c")
    (measure,) = [said for said in world.said if isinstance(said, Measure)][-1:]
    assert measure.cells == (Cell("a", "a v1", "c", "c 1"), Cell("b", "b v1", "c", "c 1"))


def test_what_goes_missing_meanwhile_is_the_next_batch() -> None:
    world = World(Node(1)).trained("a")
    world.submit("b")
    first = [run for run in world.state.runs.values() if run.kind == "measure"]
    world.submit("c")
    world.happens(SamplesArrived("b", 2, NEVER, "b 2"))
    assert [run for run in world.state.runs.values() if run.kind == "measure"] == first
    world.measure(0.1)
    (second,) = [run for run in world.state.runs.values() if run.kind == "measure"]
    assert {(cell.on, cell.shard) for cell in second.cells} == {("b", "b 2"), ("c", "c 1")}
    assert "b" not in world.state.rows["a"]  # the value was of the samples before


def test_batches_are_bounded() -> None:
    world = World(Node(1000))
    for number in range(MEASURE_BATCH + 8):
        world.submit(f"t{number}")
    world.publish("train t0", measured=False)
    (measure,) = [said for said in world.said if isinstance(said, Measure)]
    assert len(measure.cells) == MEASURE_BATCH
    world.measure()
    assert len([said for said in world.said if isinstance(said, Measure)]) == 2
    world.measure()
    assert not world.state.missing["t0"]


def test_a_failed_measure_is_not_repeated_until_it_is_asked_for() -> None:
    world = World(Node(4)).trained("a", "b")
    world.happens(SamplesArrived("b", 2, NEVER, "b 2"))
    (run,) = [run for run in world.state.runs.values() if run.kind == "measure"]
    world.happens(Failed(run.run_id, "bad"))
    world.happens(NodesChanged((Node(5),)))
    assert not world.running
    world.request(run.run_id, "measure")
    world.measure()
    assert not world.state.missing["a"]


def test_a_first_vector_has_its_column_measured_again_behind_its_head() -> None:
    world = World(Node(4)).trained("a")
    world.submit("b")
    world.measure(0.9)
    assert world.state.rows["a"]["b"] == 0.9
    world.publish("train b")
    (measure,) = [said for said in world.said if isinstance(said, Measure)][-1:]
    assert measure.cells == (Cell("a", "a v1", "b", "b 1", "head of b"),)
    assert "b" not in world.state.rows["a"]
    world.measure(0.8)
    assert world.state.rows["a"]["b"] == 0.8
    world.request("again", "refresh", "b")
    said = world.happens(Published("again", "b", Vector(2, "b v2", frozenset()), {}, "head of b"))
    assert "b" in world.state.rows["a"]  # the head is the same: nothing of others is asked again
    assert [cell.task for one in said if isinstance(one, Measure) for cell in one.cells] == [
        "b"
    ] * 3


def test_what_was_measured_before_there_was_a_head_counts_no_more() -> None:
    world = World(Node(4)).trained("a")
    world.submit("b")  # a column without a head is being measured now
    world.publish("train b")
    world.measure(0.9)
    assert "b" not in world.state.rows["a"]
    assert "b" in world.state.missing["a"]
    world.measure(0.8)
    assert world.state.rows["a"]["b"] == 0.8


# -- refreshing


@pytest.mark.parametrize(
    ("mine", "theirs", "tau", "refreshed"),
    [
        (NEVER, NEVER, 0.9, False),
        (NEVER, ON_ARRIVAL, 0.9, False),
        (ON_ARRIVAL, NEVER, 0.9, True),
        (ON_ARRIVAL, ON_ARRIVAL, REFRESH_FROM + 0.01, True),
        (ON_ARRIVAL, ON_ARRIVAL, REFRESH_FROM, False),
    ],
)
def test_the_trigger(mine: Options, theirs: Options, tau: float, refreshed: bool) -> None:
    world = World(Node(4)).trained("a", options=mine)
    world.submit("b", theirs)
    assert not any(isinstance(said, Refresh) for said in world.said)  # not before it is measured
    world.measure(tau)
    found = [said for said in world.said if isinstance(said, Refresh)]
    assert bool(found) == refreshed
    if refreshed:
        assert found[0].task == "a"
        assert found[0].others == ((GENERIC, "generic 1"), ("b", "b 1"))
        assert found[0].own == "a 1"


def test_a_vector_is_not_refreshed_for_what_it_met_or_for_the_generic_samples() -> None:
    world = World(Node(4))
    world.submit("a", ON_ARRIVAL)
    world.submit("b", ON_ARRIVAL)
    world.publish("train a", tau=0.9)
    assert not any(isinstance(said, Refresh) for said in world.said)
    world.state.champions["a"] = replace(world.state.champions["a"], seen=frozenset({"b 1"}))
    assert not is_due(world.state, "a")
    world.state.champions["a"] = replace(world.state.champions["a"], seen=frozenset())
    assert is_due(world.state, "a")


def test_the_measure_is_relative_to_what_the_vector_does_to_its_own_inputs() -> None:
    world = World(Node(4)).trained("a", options=ON_ARRIVAL)
    world.state.rows["a"]["a"] = 10.0
    world.submit("b")
    world.measure(0.9)
    assert not any(isinstance(said, Refresh) for said in world.said)


def test_one_refresh_of_a_vector_at_a_time_and_none_twice() -> None:
    world = World(Node(4)).trained("a", options=ON_ARRIVAL)
    world.submit("b")
    world.measure(0.9)
    (first,) = [said for said in world.said if isinstance(said, Refresh)]
    world.submit("c")
    world.measure(0.9)
    assert [said for said in world.said if isinstance(said, Refresh)] == [first]
    world.happens(Ended(first.run_id))  # refused; by now there is another store to try
    first_again, second = [said for said in world.said if isinstance(said, Refresh)]
    assert first_again == first
    assert [name for name, _ in second.others] == [GENERIC, "b", "c"]
    world.happens(Ended(second.run_id))
    assert refresh_of(world.state, "a").run_id == second.run_id
    assert not any(run.startswith("refresh") for run in world.running)
    assert len([said for said in world.said if isinstance(said, Refresh)]) == 2


def test_a_new_version_starts_afresh() -> None:
    world = World(Node(4)).trained("a", options=ON_ARRIVAL)
    world.submit("b")
    world.measure(0.9)
    (refresh,) = [said for said in world.said if isinstance(said, Refresh)]
    world.publish(refresh.run_id, tau=0.9)
    assert world.state.champions["a"].version == 2
    assert not any(run.kind == "refresh" for run in world.state.runs.values())
    world.submit("c")
    world.measure(0.9)
    assert [said for said in world.said if isinstance(said, Refresh)][1].vector == "a v2"


def test_a_vector_whose_alias_was_moved_meanwhile_is_no_champion() -> None:
    world = World(Node(4)).trained("a")
    world.request("force", "refresh", "a")
    world.happens(Published("force", "a", Vector(2, "a v2", frozenset()), {}, "h", champion=False))
    assert world.state.champions["a"].version == 1


# -- heads


def test_a_refresh_that_no_node_can_hold_keeps_no_head_waiting() -> None:
    options = Options(refresh="on_arrival", gpus_per_worker=1, heads="trained")
    world = World(Node(4, 1)).trained("a", options=options)
    world.happens(NodesChanged((Node(4),)))
    world.submit("b", Options(refresh="never"))
    world.publish("train b")
    world.measure(0.9)
    world.measure(0.9)
    (fit,) = [said for said in world.said if isinstance(said, Fit)]
    assert world.running == {fit.run_id}
    assert {run.kind for run in world.state.runs.values()} == {"refresh", "fit"}
    world.happens(NodesChanged((Node(4, 1),)))
    assert len(world.running) == 2


# -- contradictions are found


def test_validate_finds_what_is_wrong() -> None:
    world = World(Node(1)).trained("a")
    world.submit("b")
    state = world.state
    state.rows["a"].pop("a")
    with pytest.raises(Inconsistent, match="row of a"):
        validate(state)
    state.rows["a"]["a"] = 1.0
    validate(state)
    for run in state.runs.values():
        run.state = RunState.QUEUED
    with pytest.raises(Inconsistent, match="could start"):
        validate(state)


# -- anything may happen

options_of_tasks = st.builds(
    Options,
    workers=st.integers(1, 3),
    cpus_per_worker=st.integers(1, 3),
    gpus_per_worker=st.integers(0, 1),
    refresh=st.sampled_from(["never", "on_arrival"]),
    share=st.sampled_from(["samples", "statistics", "none"]),
    heads=st.sampled_from(["fitted", "trained"]),
)
nodes_of_clusters = st.lists(
    st.builds(
        lambda cpus, gpus, held: Node(cpus, gpus, held_cpus=held),
        st.integers(1, 4),
        st.integers(0, 2),
        st.integers(0, 1),
    ),
    max_size=3,
)
taus = st.sampled_from([0.0, 0.1, 0.5])


class Anything(RuleBasedStateMachine):
    """Random tasks, samples, requests, results, deaths, errors, retries and nodes."""

    @initialize(nodes=nodes_of_clusters)
    def begin(self, nodes: list[Node]) -> None:
        self.world = World(*nodes)
        self.counter = itertools.count()
        self.lost = False

    def pick(self, data: st.DataObject, found: set[str]) -> str:
        return data.draw(st.sampled_from(sorted(found)))

    @rule(options=options_of_tasks)
    def submit(self, options: Options) -> None:
        self.world.submit(f"t{next(self.counter)}", options)

    @precondition(lambda self: len(self.world.state.tasks) > 1)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        name = self.pick(data, self.world.state.tasks.keys() - {GENERIC})
        task = self.world.state.tasks[name]
        shard = f"{name} {next(self.counter)}"
        self.world.happens(SamplesArrived(name, task.ordinal, task.options, shard))

    @rule()
    def evaluate(self) -> None:
        self.world.request(f"evaluate {next(self.counter)}", "evaluate")

    @precondition(lambda self: self.world.state.champions)
    @rule(data=st.data())
    def force_a_refresh(self, data: st.DataObject) -> None:
        task = self.pick(data, set(self.world.state.champions))
        active = [run.task for run in self.world.state.runs.values() if run.kind == "refresh"]
        run_id = refresh_of(self.world.state, task).run_id
        if task not in active and run_id not in self.world.state.done:
            needs = needs_of("refresh", self.world.state.tasks[task].options)
            self.world.request(run_id, "refresh", task, needs)

    @rule(nodes=nodes_of_clusters)
    def nodes_change(self, nodes: list[Node]) -> None:
        self.lost = True
        self.world.happens(NodesChanged(tuple(nodes)))

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), tau=taus, well=st.booleans())
    def finish(self, data: st.DataObject, tau: float, well: bool) -> None:
        run = self.world.state.runs[self.pick(data, self.world.running)]
        if run.kind == "measure":
            values = {cell: 1.0 if cell.task == cell.on else tau for cell in run.cells}
            self.world.happens(Measured(run.run_id, values))
        elif run.kind in ("evaluate", "fit") or (run.kind == "refresh" and not well):
            self.world.happens(Ended(run.run_id))
        else:
            self.world.publish(run.run_id, tau, measured=well)

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), forever=st.booleans())
    def go_wrong(self, data: st.DataObject, forever: bool) -> None:
        run_id = self.pick(data, self.world.running)
        self.world.happens(Failed(run_id, "bad") if forever else Died(run_id, "killed"))

    @precondition(lambda self: any(r.state == "failed" for r in self.world.state.runs.values()))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        failed = {i for i, run in self.world.state.runs.items() if run.state == "failed"}
        run = self.world.state.runs[self.pick(data, failed)]
        if is_current(self.world.state, run):
            self.world.request(run.run_id, run.kind, run.task, run.needs)

    @invariant()
    def nothing_is_overcommitted(self) -> None:
        if hasattr(self, "world") and not self.lost:
            room = free(self.world.state)
            assert room.cpus >= 0
            assert room.gpus >= 0

    @invariant()
    def every_waiting_run_says_why(self) -> None:
        if hasattr(self, "world"):
            for run in self.world.state.runs.values():
                if run.state == "queued":
                    assert reason(self.world.state, run)
                    assert waits_for(self.world.state, run)

    def teardown(self) -> None:
        """With enough room, everything that is owed comes to its end."""
        if not hasattr(self, "world"):
            return
        self.world.happens(NodesChanged((Node(12, 4),)))
        for _ in range(1000):
            if not self.world.running:
                break
            run = self.world.state.runs[min(self.world.running)]
            if run.kind == "measure":
                self.world.measure()
            elif run.kind in ("evaluate", "fit"):
                self.world.happens(Ended(run.run_id))
            else:
                self.world.publish(run.run_id)
        assert all(run.state == "failed" for run in self.world.state.runs.values())
        for task, missing in self.world.state.missing.items():
            digest = self.world.state.champions[task].digest
            probes = {on: self.world.state.tasks[on] for on in missing}
            cells = [Cell(task, digest, on, p.shard, p.head) for on, p in probes.items()]
            assert set(cells) <= self.world.state.unmeasurable


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=budget(60), stateful_step_count=40, deadline=None)
