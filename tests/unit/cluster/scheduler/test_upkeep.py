"""What becomes of vectors when tasks arrive: examples, then what holds however many arrive."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.domain.tasks import GENERIC, Options
from cluster.scheduler import budget as costs
from cluster.scheduler import matrix, upkeep
from cluster.scheduler.plan import handle
from cluster.scheduler.state import (
    CellsMeasured,
    Effect,
    Ended,
    Failed,
    MatrixCell,
    Measure,
    Node,
    NodesChanged,
    PlannedRun,
    PlannedTask,
    Published,
    RefreshChampion,
    Removed,
    SamplesArrived,
    VectorVersion,
)
from cluster.scheduler.upkeep import (
    MEASURE_BATCH,
    RECENT,
    REFRESH_FROM,
    SHARED,
    TURN,
    disturbed,
    harm,
    is_due,
    refresh_of,
)
from tests.support.budget import budget
from tests.support.world import NEVER, ON_ARRIVAL, World


def measures(world: World) -> list[Measure]:
    return [said for said in world.said if isinstance(said, Measure)]


def refreshes(world: World) -> list[RefreshChampion]:
    return [said for said in world.said if isinstance(said, RefreshChampion)]


def owed(world: World) -> list[PlannedRun]:
    return [run for run in world.state.runs.values() if run.kind == "measure"]


def arrived(world: World, task: str, tau: float, options: Options = NEVER) -> None:
    """It has a vector, and what others do to its inputs is measured."""
    world.submit(task, options)
    world.publish(f"train {task}")
    while owed(world):
        world.measure(tau)


# -- measuring


def test_older_vectors_are_measured_on_a_newcomer_behind_its_head() -> None:
    world = World(Node(4)).trained("a", "b")
    before = len(measures(world))
    world.submit("c")
    assert len(measures(world)) == before
    world.publish("train c")
    assert measures(world)[-1].cells == (
        MatrixCell("a", "a v1", "c", "c 1", "head of c"),
        MatrixCell("b", "b v1", "c", "c 1", "head of c"),
    )


def test_of_very_many_vectors_the_loudest_and_those_that_wait_longest_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By turns, until enough are measured on the newcomer."""
    monkeypatch.setattr(upkeep, "LOOKED_AT", 3)
    monkeypatch.setattr(upkeep, "COLUMN", 4)
    names = [f"t{number}" for number in range(8)]
    world = World(Node(4)).trained(*names)
    for number, name in enumerate(names):
        matrix.put(world.state, name, "t3" if name != "t3" else "t4", Effect(0.01 * number))
    marks = {name: matrix.mark(world.state, name) for name in names}
    loud = sorted(names, key=lambda name: (-marks[name].loudness, name))[:3]
    waits = sorted(names, key=lambda name: (marks[name].newest, name))[:3]
    world.trained("new")
    cells = [cell.task for cell in measures(world)[-1].cells if cell.on == "new"]
    assert cells == [*dict.fromkeys(chain.from_iterable(zip(loud, waits, strict=True)))][:4]


def test_on_a_private_newcomer_its_owners_vectors_are_looked_at_among_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "LOOKED_AT", 2)
    world = World(Node(4)).trained("mine", *(f"t{number}" for number in range(8)))
    world.state.tasks["mine"].owner = "ann"
    for number in range(8):  # louder than that of ann, and measured longer ago
        matrix.put(world.state, f"t{number}", "mine", Effect(2.0 + number))
    new = PlannedTask(10, NEVER, "ann.x 1", "ann", allowance=99)
    world.happens(SamplesArrived("ann.x", new, private=True))
    world.request("train ann.x", "train", "ann.x")
    world.publish("train ann.x")
    assert [(c.task, c.on) for c in measures(world)[-1].cells][:1] == [("mine", "ann.x")]


def test_a_name_that_was_of_a_private_task_may_be_that_of_an_open_one() -> None:
    world = World(Node(4))
    world.happens(SamplesArrived("ann.x", PlannedTask(1, NEVER, "ann.x 1", "ann"), private=True))
    assert world.state.owners == {"ann.x": "ann"}
    world.happens(Removed("ann.x", ()))
    world.happens(SamplesArrived("ann.x", PlannedTask(2, NEVER, "ann.x 2", "ann")))
    assert world.state.owners == {}


def test_what_goes_missing_meanwhile_is_the_next_batch() -> None:
    world = World(Node(1)).trained("a", "b")
    world.happens(SamplesArrived("b", PlannedTask(2, NEVER, "b 2")))
    first = owed(world)
    world.happens(SamplesArrived("a", PlannedTask(1, NEVER, "a 2")))
    assert owed(world) == first
    world.measure(0.1)
    (second,) = owed(world)
    assert {(cell.on, cell.shard) for cell in second.cells} == {("a", "a 2")}
    assert world.state.rows["a"]["b"].tau_jp == 0.1
    assert "a" not in world.state.rows["b"]  # the value was of the samples before


def test_batches_are_bounded() -> None:
    world = World(Node(1000))
    world.trained(*(f"t{number}" for number in range(RECENT - 4)))
    assert all(len(one.cells) <= MEASURE_BATCH for one in measures(world))
    assert max(len(one.cells) for one in measures(world)) < MEASURE_BATCH


def test_a_failed_measure_is_not_repeated_until_it_is_asked_for() -> None:
    world = World(Node(4)).trained("a", "b")
    world.happens(SamplesArrived("b", PlannedTask(2, NEVER, "b 2")))
    (run,) = owed(world)
    world.happens(Failed(run.run_id, "bad"))
    world.happens(NodesChanged((Node(5),)))
    assert not world.running
    world.request(run.run_id, "measure")
    world.measure()
    assert world.state.rows["a"].keys() == {GENERIC, "a", "b"}


def test_a_new_version_of_a_vector_leaves_what_others_do_to_its_task() -> None:
    world = World(Node(4)).trained("a", "b")
    world.request("again", "refresh", "b")
    said = world.happens(
        Published("again", "b", VectorVersion(2, "b v2", frozenset()), {}, "head of b")
    )
    assert "b" in world.state.rows["a"]  # the head is the same: nothing of others is asked again
    assert {cell.task for one in said if isinstance(one, Measure) for cell in one.cells} == {"b"}


def test_own_inputs_are_measured_first() -> None:
    world = World(Node(4)).trained("a", "b")
    world.request("again", "refresh", "b")
    world.happens(Published("again", "b", VectorVersion(2, "b v2", frozenset()), {}, "head of b"))
    assert measures(world)[-1].cells[0].on == "b"


# -- samples of the same kind


def test_what_is_of_the_same_kind_is_neither_measured_nor_refreshed_against() -> None:
    world = World(Node(4)).trained("a", "x", options=ON_ARRIVAL)
    world.submit("again", ON_ARRIVAL)
    world.publish("train again", near=("a",))
    (measure,) = owed(world)
    assert {(cell.task, cell.on) for cell in measure.cells} == {("x", "again")}
    world.measure(0.9)
    (refresh,) = refreshes(world)
    assert refresh.task == "x"
    assert "a" not in dict(refresh_of(world.state, "again").others)
    assert "again" not in dict(refresh_of(world.state, "a").others)
    assert "x" in dict(refresh_of(world.state, "a").others)
    handle(world.state, Removed("again", ()))
    assert world.state.near == set()


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
    world.publish("train b")
    assert not refreshes(world)  # not before it is measured
    world.measure(tau)
    found = refreshes(world)
    assert bool(found) == refreshed
    if refreshed:
        assert found[0].task == "a"
        assert found[0].others == ((GENERIC, "generic 1"), ("b", "b 1"))
        assert found[0].own == "a 1"


def test_a_vector_is_not_refreshed_for_what_it_met_or_for_the_generic_samples() -> None:
    world = World(Node(4), allowance=0)
    world.submit("a", ON_ARRIVAL)
    world.submit("b", ON_ARRIVAL)
    world.publish("train b", tau=0.9)
    world.publish("train a", tau=0.9)
    state = world.state
    assert disturbed(state, "a") == []
    state.champions["a"] = replace(state.champions["a"], seen=frozenset())
    assert disturbed(state, "a") == ["b"]
    assert is_due(state, "a")


def test_the_measure_is_relative_to_what_the_vector_does_to_its_own_inputs() -> None:
    world = World(Node(4)).trained("a", options=ON_ARRIVAL)
    matrix.put(world.state, "a", "a", Effect(10.0))
    arrived(world, "b", 0.9)
    assert not refreshes(world)


def test_one_refresh_of_a_vector_at_a_time_and_none_twice() -> None:
    world = World(Node(4)).trained("a", options=ON_ARRIVAL)
    arrived(world, "b", 0.9)
    (first,) = refreshes(world)
    arrived(world, "c", 0.9)
    assert refreshes(world) == [first]
    world.happens(Ended(first.run_id))  # refused; by now there is another store to try
    first_again, second = refreshes(world)
    assert first_again == first
    assert [name for name, _ in second.others] == [GENERIC, "b", "c"]
    world.happens(Ended(second.run_id))
    assert refresh_of(world.state, "a").run_id == second.run_id
    assert not any(run.startswith("refresh") for run in world.running)
    assert len(refreshes(world)) == 2


def test_a_new_version_starts_afresh() -> None:
    world = World(Node(4)).trained("a", options=ON_ARRIVAL)
    arrived(world, "b", 0.9)
    (refresh,) = refreshes(world)
    world.publish(refresh.run_id, tau=0.9)
    assert world.state.champions["a"].version == 2
    assert not any(run.kind == "refresh" for run in world.state.runs.values())
    arrived(world, "c", 0.9)
    assert refreshes(world)[1].vector == "a v2"


def test_a_vector_whose_alias_was_moved_meanwhile_is_no_champion() -> None:
    world = World(Node(4)).trained("a")
    world.request("force", "refresh", "a")
    world.happens(
        Published("force", "a", VectorVersion(2, "a v2", frozenset()), {}, "h", champion=False)
    )
    assert world.state.champions["a"].version == 1


def test_arrivals_that_are_being_trained_share_one_refresh() -> None:
    world = World(Node(8)).trained("a", options=ON_ARRIVAL)
    for number in range(SHARED):
        world.submit(f"t{number}")
    for number in range(SHARED):
        assert not refreshes(world)
        world.publish(f"train t{number}")
        while owed(world):
            world.measure(0.9)
    (refresh,) = refreshes(world)
    assert len(refresh.others) == 1 + SHARED


def test_a_refresh_waits_for_no_more_arrivals_than_that() -> None:
    world = World(Node(8)).trained("a", options=ON_ARRIVAL)
    world.submit("long")
    for number in range(SHARED):
        assert not refreshes(world)
        arrived(world, f"t{number}", 0.9)
    assert len(refreshes(world)) == 1


def test_a_training_that_no_node_can_hold_keeps_no_refresh_waiting() -> None:
    world = World(Node(8)).trained("a", options=ON_ARRIVAL)
    world.submit("stuck", Options(workers=9))
    arrived(world, "b", 0.9)
    assert len(refreshes(world)) == 1


# -- what it may cost


class Stream:
    """Tasks arrive one after another; `effect(s, t)` is what vector s does to the answers of t."""

    def __init__(self, allowance: int) -> None:
        self.world = World(Node(4), allowance=allowance)
        self.effects: dict[tuple[str, str], float] = {}
        self.granted = 0

    @property
    def spent(self) -> int:
        return sum(
            one.cost for one in self.world.said if isinstance(one, Measure | RefreshChampion)
        )

    def arrive(self, task: str, effects: dict[str, float]) -> int:
        """What it cost, when the cluster rests again."""
        before = self.spent
        self.effects |= {(other, task): size for other, size in effects.items()}
        self.world.submit(task, ON_ARRIVAL)
        self.world.publish(f"train {task}")
        while self.world.running:
            self._work(min(self.world.running))
        self.granted += self.world.allowance
        assert self.spent <= self.granted
        return self.spent - before

    def _work(self, run_id: str) -> None:
        run = self.world.state.runs[run_id]
        if run.kind != "measure":
            self._refreshed(run_id)
            return
        sizes = {
            c: 1.0 if c.task == c.on else self.effects.get((c.task, c.on), 0.0) for c in run.cells
        }
        values = {c: Effect(size, size if c.head else None) for c, size in sizes.items()}
        self.world.happens(CellsMeasured(run_id, values))

    def _refreshed(self, run_id: str) -> None:
        """It does nothing any more to those whose samples it met."""
        state = self.world.state
        task = state.runs[run_id].task
        assert task is not None
        others = state.runs[run_id].others
        self.effects |= {(task, other): 0.0 for other in others}
        old = state.champions[task]
        seen = old.seen | {state.tasks[name].shard for name in others}
        own = (task, state.tasks[task].shard, state.tasks[task].head)
        vector = VectorVersion(old.version + 1, f"{task} v{old.version + 1}", seen)
        self.world.happens(Published(run_id, task, vector, {own: Effect(1.0, 1.0)}, own[2]))

    def refreshed(self) -> list[str]:
        return [one.task for one in refreshes(self.world)]


arrivals = st.lists(
    st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.6, 0.9]), min_size=12, max_size=12),
    min_size=2,
    max_size=12,
)


@settings(max_examples=budget(40), deadline=None)
@given(arrivals=arrivals, allowance=st.sampled_from([200, 540, 900, 1800, 18000]))
def test_the_budget_is_never_exceeded(arrivals: list[list[float]], allowance: int) -> None:
    stream = Stream(allowance)
    most = max(allowance, costs.REFRESH) + allowance
    for number, sizes in enumerate(arrivals):
        older = (f"t{other}" for other in range(number))
        cost = stream.arrive(f"t{number}", dict(zip(older, sizes, strict=False)))
        assert cost <= most
        assert stream.world.state.balance >= 0


@settings(max_examples=budget(40), deadline=None)
@given(sizes=st.lists(st.sampled_from([0.25, 0.4, 0.6, 0.9]), min_size=2, max_size=8, unique=True))
def test_the_worst_goes_first(sizes: list[float]) -> None:
    stream = Stream(costs.REFRESH + len(sizes) * costs.CELL)
    for number in range(len(sizes)):
        stream.arrive(f"t{number}", {})
    stream.world.state.balance = 0
    stream.arrive("new", {f"t{number}": size for number, size in enumerate(sizes)})
    worst = f"t{sizes.index(max(sizes))}"
    assert stream.refreshed() == [worst]
    waiting = [task for task in stream.world.state.ask if is_due(stream.world.state, task)]
    assert len(waiting) == len(sizes) - 1


def test_the_answers_decide_and_not_the_features() -> None:
    world = World(Node(4), allowance=0).trained("a", "b", "c", options=ON_ARRIVAL)
    for task, effect in (("a", Effect(0.9, 0.1)), ("b", Effect(0.5, 0.8)), ("c", Effect(1.0, 1.0))):
        matrix.put(world.state, task, "c", effect)
    for task in "ab":
        old = world.state.champions[task]
        world.state.champions[task] = replace(old, seen=frozenset())
    assert harm(world.state, "a") == pytest.approx(0.1)
    assert harm(world.state, "b") == pytest.approx(0.8)
    world.state.ask = {"a", "b"}
    world.state.balance = costs.REFRESH
    world.happens(NodesChanged((Node(4),)))
    assert [one.task for one in refreshes(world)] == ["b"]


def test_nothing_starves() -> None:
    """One vector does little, all others more, and more than can be refreshed; its turn comes."""
    stream = Stream(costs.REFRESH + 8 * costs.CELL)
    names = ["quiet", *(f"t{number}" for number in range(12))]
    for number, name in enumerate(names):
        stream.arrive(name, dict.fromkeys(names[:number], 0.9) | {"quiet": 0.25})
    before = len(stream.refreshed())
    assert before <= 2 * len(names)
    for number in range(2 * TURN * len(names)):
        stream.arrive(f"late{number}", dict.fromkeys(names, 0.9) | {"quiet": 0.25})
    assert set(names) <= set(stream.refreshed()[before:])


@pytest.mark.parametrize("allowance", [96, 300, 600])
def test_arrivals_of_short_trainings_save_up_for_refreshes(allowance: int) -> None:
    stream = Stream(allowance)
    for number in range(40):
        stream.arrive(f"t{number}", {f"t{other}": 0.9 for other in range(number)})
    assert len(stream.refreshed()) >= 0.5 * stream.granted / costs.REFRESH
    assert all(task in row for task, row in stream.world.state.rows.items())


@pytest.mark.parametrize("allowance", [900, 1800])
def test_an_arrival_costs_the_same_however_many_tasks_there_are(allowance: int) -> None:
    stream = Stream(allowance)
    each = [
        stream.arrive(f"t{number}", {f"t{other}": 0.9 for other in range(number)})
        for number in range(60)
    ]
    for part in (each[4:20], each[20:40], each[40:]):
        assert sum(part) <= allowance * (len(part) + 1)  # one may have saved as much again
        assert sum(part) >= 0.7 * allowance * len(part)
