"""The plan: examples of every decision, then random events with every invariant after each."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.domain.status import RunState
from cluster.domain.tasks import GENERIC, Options
from cluster.scheduler.plan import DEATHS, validate
from cluster.scheduler.queue import free, needs_of, outlook, reason, waits_for
from cluster.scheduler.state import (
    CellsMeasured,
    Died,
    Effect,
    Ended,
    Fail,
    Failed,
    FitHeads,
    Inconsistent,
    MinutesTaken,
    Node,
    NodesChanged,
    PlaceGivenBack,
    PlannedTask,
    Requeue,
    SamplesArrived,
)
from cluster.scheduler.upkeep import could_measure, fits, is_current, refresh_of
from tests.support.budget import budget
from tests.support.world import PLENTY, World, values_of

# -- failures


def test_deaths_are_forgiven_within_a_budget() -> None:
    world = World(Node(1))
    world.submit("a")
    for _ in range(DEATHS):
        assert Requeue("train a", "killed") in world.happens(Died("train a", "killed"))
        assert world.running == {"train a"}
    (fail,) = world.happens(Died("train a", "killed"))
    assert isinstance(fail, Fail)
    assert "tried 3 times" in fail.cause
    world.request("train a", "train", "a")
    assert world.running == {"train a"}
    assert world.state.runs["train a"].deaths == 0


def test_errors_are_not() -> None:
    world = World(Node(1))
    world.submit("a")
    assert world.happens(Failed("train a", "bad")) == [Fail("train a", "bad")]
    assert not world.running


# -- heads


def test_a_refresh_that_no_node_can_hold_keeps_no_head_waiting() -> None:
    options = Options(refresh="on_arrival", gpus_per_worker=1, heads="trained")
    world = World(Node(4, 1)).trained("a", options=options)
    world.happens(NodesChanged((Node(4),)))
    world.submit("b", Options(refresh="never"))
    world.publish("train b")
    world.measure(0.9)
    (fit,) = [said for said in world.said if isinstance(said, FitHeads)]
    assert world.running == {fit.run_id}
    assert {run.kind for run in world.state.runs.values()} == {"refresh", "fit"}
    world.happens(NodesChanged((Node(4, 1),)))
    assert len(world.running) == 2


# -- contradictions are found


def test_validate_finds_what_is_wrong() -> None:
    world = World(Node(1)).trained("a")
    world.submit("b")
    state = world.state
    state.rows["a"] |= dict.fromkeys("xyz", Effect(1.0))
    with pytest.raises(Inconsistent, match="row of a"):
        validate(state)
    state.rows["a"] = {"a": Effect(1.0)}
    with pytest.raises(Inconsistent, match="could be measured"):
        validate(state)
    state.balance = 0
    validate(state)
    for run in state.runs.values():
        run.state = RunState.QUEUED
    with pytest.raises(Inconsistent, match="could start"):
        validate(state)


# -- anything may happen

USERS = st.sampled_from([None, "ann", "ben"])
options_of_tasks = st.builds(
    lambda places, **others: Options(workers=places[0], gpus_per_worker=places[1], **others),
    places=st.one_of(
        st.tuples(st.integers(1, 3), st.integers(0, 1)),
        st.tuples(st.just(1), st.sampled_from([0.125, 0.5, 0.625])),
    ),
    cpus_per_worker=st.integers(1, 3),
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

    @initialize(nodes=nodes_of_clusters, allowance=st.sampled_from([300, 1800, PLENTY]))
    def begin(self, nodes: list[Node], allowance: int) -> None:
        self.world = World(*nodes, allowance=allowance)
        self.counter = itertools.count()
        self.lost = False

    def pick(self, data: st.DataObject, found: set[str]) -> str:
        return data.draw(st.sampled_from(sorted(found)))

    @rule(options=options_of_tasks, user=USERS)
    def submit(self, options: Options, user: str | None) -> None:
        self.world.submit(f"t{next(self.counter)}", options, user)

    @precondition(lambda self: len(self.world.state.tasks) > 1)
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        name = self.pick(data, self.world.state.tasks.keys() - {GENERIC})
        task = self.world.state.tasks[name]
        shard = f"{name} {next(self.counter)}"
        self.world.happens(SamplesArrived(name, PlannedTask(task.ordinal, task.options, shard)))

    @rule(user=USERS)
    def evaluate(self, user: str | None) -> None:
        self.world.request(f"evaluate {next(self.counter)}", "evaluate", user=user)

    @rule(users=st.sets(st.sampled_from(["ann", "ben"])))
    def take_minutes(self, users: set[str]) -> None:
        self.world.happens(MinutesTaken(frozenset(users)))

    @precondition(lambda self: self.world.state.champions)
    @rule(data=st.data(), user=USERS)
    def force_a_refresh(self, data: st.DataObject, user: str | None) -> None:
        task = self.pick(data, set(self.world.state.champions))
        active = [run.task for run in self.world.state.runs.values() if run.kind == "refresh"]
        run_id = refresh_of(self.world.state, task).run_id
        if task not in active and run_id not in self.world.state.done:
            needs = needs_of("refresh", self.world.state.tasks[task].options)
            self.world.request(run_id, "refresh", task, needs, user)

    @rule(nodes=nodes_of_clusters)
    def nodes_change(self, nodes: list[Node]) -> None:
        self.lost = True
        self.world.happens(NodesChanged(tuple(nodes)))

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), tau=taus, well=st.booleans())
    def finish(self, data: st.DataObject, tau: float, well: bool) -> None:
        run = self.world.state.runs[self.pick(data, self.world.running)]
        if run.kind == "measure":
            self.world.happens(CellsMeasured(run.run_id, values_of(run, tau)))
        elif run.kind in ("evaluate", "fit") or (run.kind == "refresh" and not well):
            self.world.happens(Ended(run.run_id))
        else:
            self.world.publish(run.run_id, tau, measured=well)

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), forever=st.booleans())
    def go_wrong(self, data: st.DataObject, forever: bool) -> None:
        run_id = self.pick(data, self.world.running)
        self.world.happens(Failed(run_id, "bad") if forever else Died(run_id, "killed"))

    @precondition(lambda self: self.world.giving_way)
    @rule(data=st.data())
    def give_way(self, data: st.DataObject) -> None:
        self.world.happens(PlaceGivenBack(self.pick(data, self.world.giving_way)))

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
    def fits_are_of_the_champions_of_now(self) -> None:
        if hasattr(self, "world"):
            assert fits(self.world.state) == fits(
                replace(self.world.state, fits=None, champion_sets=None)
            )

    @invariant()
    def every_waiting_run_says_why(self) -> None:
        """The same where most runs that wait are left out."""
        if hasattr(self, "world"):
            state, few = self.world.state, outlook(self.world.state)
            for run in state.queued:
                assert (why := reason(state, run))
                assert (until := waits_for(state, run))
                assert (reason(few, run), waits_for(few, run)) == (why, until)

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
        assert not could_measure(self.world.state)


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=budget(60), stateful_step_count=40, deadline=None)
