"""Leases: what runs are told of samples, from which step on, and the same again after a death."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.coordinator import arrivals as arrivals_module
from cluster.coordinator import runs
from cluster.coordinator.arrivals import Arrivals, ShardChange, is_met
from cluster.domain.base import BlobRef
from cluster.domain.tasks import GENERIC, Arrival, Shard
from cluster.domain.visibility import Visibility
from cluster.domain.work import Lease, Leave, Progress
from cluster.learner import training
from cluster.scheduler import leases
from tests.support.fakes import Scene, asks, shard_blob

BLOB = BlobRef(digest="d", rows=1)
GENERIC_0, A = (Shard(task=t, ordinal=o, blob=BLOB) for t, o in [(GENERIC, 0), ("a", 1)])


def test_a_run_meets_everybody_else() -> None:
    assert is_met(A, own="b")
    assert is_met(GENERIC_0, own="a")
    assert not is_met(A, own="a")


def test_a_private_task_enters_only_the_cycles_of_its_owner() -> None:
    shards = [Shard(task=t, ordinal=o, blob=BLOB) for o, t in enumerate([GENERIC, "mine", "open"])]

    def cycle(who: str) -> list[str]:
        visibility = Visibility(who, {"mine": "ann"})
        return [shard.task for shard in shards if is_met(shard, "new", visibility)]

    assert cycle("ann") == [GENERIC, "mine", "open"]
    assert cycle("bob") == [GENERIC, "open"]


def test_what_arrives_in_a_lease_joins_at_the_next() -> None:
    b, grown = Shard(task="b", ordinal=2, blob=BLOB), A.model_copy(update={"version": 2})
    arrivals, run, told = Arrivals(), Arrivals(), []
    leases = [
        (0, 0, [GENERIC_0], [GENERIC]),
        (1, 4, [b, A], ["b", "a"]),
        (5, 6, [grown], ["a"]),
        (7, 9, [], ["b"]),
    ]
    for first, last, current, looked_at in leases:
        change = arrivals.change(first, current, looked_at)
        arrivals.record(change, last)
        told.append(arrivals.after(first - 1))
        run.apply(told[-1])
    assert [[(one.shard.task, one.step) for one in log] for log in told] == [
        [(GENERIC, 0)],
        [("a", 1), ("b", 1)],
        [("a", 5)],
        [("b", 1)],
    ]
    assert told[-1][0].left == 7
    again = Arrivals(9, arrivals.after(-1))
    for log in (arrivals, run, again):
        assert [log.at(step) for step in (0, 1, 4, 5, 6, 7, 99)] == [
            (GENERIC_0,),
            (GENERIC_0, A, b),
            (GENERIC_0, A, b),
            (GENERIC_0, grown, b),
            (GENERIC_0, grown, b),
            (GENERIC_0, grown),
            (GENERIC_0, grown),
        ]
    assert again.is_replayed(9)
    assert not again.is_replayed(10)
    assert again.change(8, [], []) == ShardChange(10)  # 8 and 9 were told before


LEASES = st.lists(
    st.tuples(
        st.integers(1, 5),  # steps
        st.integers(0, 4),  # of them undone, by a death before the next lease; 0: nobody died
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),  # samples that grow, or leave
    ),
    max_size=12,
)


@given(LEASES, st.sampled_from([1, 2, 100]))
def test_a_run_sees_at_every_step_what_was_recorded_and_a_resumed_one_the_same(
    leases: list[tuple[int, int, dict[str, int]]], page: int
) -> None:
    """Whatever grows, leaves and dies, however it is told: newcomers never join at a step that was
    told before."""
    with pytest.MonkeyPatch.context() as changed:
        for module in (arrivals_module, training):
            changed.setattr(module, "PAGE", page)
        leases_are_replayed(leases)


def told_of(arrivals: Arrivals, since: int) -> Sequence[Arrival]:
    asked = Lease(run_id="run", first=0, last=0, since=since)
    told = training.page_by_page(lambda asked: Leave(arrivals.after(asked.since), 2.0), asked)
    return told.arrivals


def leases_are_replayed(leases: list[tuple[int, int, dict[str, int]]]) -> None:
    there: dict[str, int] = {}  # task -> version; 0: left for ever
    arrivals, run, step, since = Arrivals(), Arrivals(), 0, -1
    saw: dict[int, tuple[Shard, ...]] = {}
    for steps, undone, changes in leases:
        there |= {t: v and max(v, there.get(t, 1)) for t, v in changes.items() if there.get(t, 1)}
        now = [Shard(task=t, ordinal=ord(t), blob=BLOB, version=v) for t, v in there.items() if v]
        last = step + steps - 1
        if not arrivals.is_replayed(last):
            arrivals.record(arrivals.change(step, now, there), last)
        run.apply(told_of(arrivals, since))
        for one in range(step, last + 1):
            assert saw.setdefault(one, run.at(one)) == run.at(one)
        step, since = last + 1, last
        if undone:
            step, since, run = max(0, step - undone), -1, Arrivals()
            whole = [one for versions in arrivals._log.values() for one in versions.values()]
            arrivals = Arrivals(arrivals.reached, whole)


# -- the coordinator


def names(arrivals: tuple[Arrival, ...]) -> list[tuple[str, int, int | None]]:
    return [(one.shard.task, one.step, one.left) for one in arrivals]


def leave(
    scene: Scene, run_id: str, first: int, last: int, since: int, progress: Progress | None = None
) -> tuple[Arrival, ...]:
    asked = Lease(run_id=run_id, first=first, last=last, since=since, progress=progress)
    return scene.coordinator.lease(asked).arrivals


def test_a_lease_tells_what_is_new_since_the_last_and_keeps_how_far_the_run_is(
    scene: Scene,
) -> None:
    scene.submit("digits")
    lease = partial(leave, scene, scene.process("train").work.run_id)
    assert names(lease(0, 4, -1)) == [(GENERIC, 0, None)]
    scene.submit("shapes")
    assert names(lease(0, 4, -1)) == [(GENERIC, 0, None)]  # its answer was lost
    assert names(lease(5, 7, 4, Progress(step=5, steps=9, loss=1.0))) == [("shapes", 5, None)]
    assert lease(8, 8, 7) == ()
    assert scene.task("digits").step == 5
    assert scene.coordinator.figures().steps == 9
    scene.restart()
    scene.coordinator.remove(asks("remove"), "shapes", False)
    everything = [(GENERIC, 0, None), ("shapes", 5, 9)]
    assert names(lease(3, 9, -1)) == everything  # joined at 5, left at 9
    scene.restart()  # the new process is told of a task that is gone
    assert names(lease(3, 3, -1)) == everything


def test_the_more_trainings_run_the_longer_is_a_lease(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "SHARE", leases.COST / 4)

    def seconds(step: int) -> float:
        run_id = scene.process("train", "digits").work.run_id
        return scene.coordinator.lease(Lease(run_id=run_id, first=step, last=step)).seconds

    scene.submit("digits")
    assert seconds(0) == 4.0
    scene.submit("shapes")
    assert seconds(1) == 8.0
    scene.restart()
    assert seconds(2) == 8.0
    scene.finish("train", "shapes")
    assert seconds(3) == 4.0


def test_what_left_while_nobody_was_there_is_left_from_the_next_lease_on(scene: Scene) -> None:
    scene.submit("digits")
    scene.submit("shapes")
    scene.coordinator.cancel(asks("cancel"), "shapes", keep=True)
    lease = partial(leave, scene, scene.process("train").work.run_id)
    lease(0, 2, -1)
    scene.coordinator.remove(asks("remove"), "shapes", False)
    scene.restart()
    told = lease(1, 6, -1)
    assert names(told) == [(GENERIC, 0, None), ("shapes", 0, 3)]


def test_a_task_left_though_its_name_came_again_for_nobody_else(scene: Scene) -> None:
    """Also where another process hears of it."""
    scene.submit("digits", owner="bob")
    scene.submit("ann.x", owner="ann")
    lease = partial(leave, scene, scene.process("train", "digits").work.run_id)
    assert names(lease(0, 2, -1)) == [("ann.x", 0, None), (GENERIC, 0, None)]
    scene.coordinator.cancel(asks("cancel"), "ann.x", keep=False)
    scene.submit("ann.x", owner="ann", private=True, request_id="another")
    scene.restart()
    assert names(lease(3, 4, 2)) == [("ann.x", 0, 3)]


def begun(scene: Scene, others: int) -> Callable[..., tuple[Arrival, ...]]:
    """Leases of the training of a task that so many others arrived after."""
    scene.submit("digits")
    for number in range(others):
        scene.submit(f"other{number}")
    return partial(leave, scene, scene.process("train", "digits").work.run_id)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tasks whose samples leases looked at."""
    tasks: list[str] = []

    def looking(shard: Shard, *others) -> bool:
        tasks.append(shard.task)
        return is_met(shard, *others)

    monkeypatch.setattr(runs, "is_met", looking)
    return tasks


def test_a_lease_looks_only_at_what_changed(scene: Scene, looked_at: list[str]) -> None:
    def looked() -> int:
        count = len(looked_at)
        looked_at.clear()
        return count

    lease = begun(scene, others=9)
    lease(0, 0, -1)
    assert looked() == 11 + 10  # all, its own too, then what joins
    lease(1, 1, 0)
    assert looked() == 0
    scene.coordinator.add_samples(asks("grow"), "other3", shard_blob(scene.home, "more"))
    assert names(lease(2, 2, 1)) == [("other3", 2, None)]
    assert looked() == 1
    lease(2, 2, -1)  # told before
    assert looked() == 0


def test_a_first_lease_looks_at_no_more_tasks_than_it_tells_of(
    scene: Scene, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (runs, arrivals_module):
        monkeypatch.setattr(module, "PAGE", 3)
    lease = begun(scene, others=30)
    for step in range(3):
        looked_at.clear()
        assert len(lease(step, step, step - 1)) == 3
        assert len(set(looked_at)) <= 3 + 1  # and its own


def test_of_very_many_tasks_some_join_at_each_lease(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generic samples first; what changes meanwhile is told as it is then."""
    for module in (runs, arrivals_module):
        monkeypatch.setattr(module, "PAGE", 3)
    lease = begun(scene, others=6)
    assert names(lease(0, 0, -1)) == [(GENERIC, 0, None), ("other0", 0, None), ("other1", 0, None)]
    assert lease(0, 0, 0) == ()  # the rest of that page
    scene.coordinator.add_samples(asks("grow"), "other4", shard_blob(scene.home, "more"))
    scene.coordinator.cancel(asks("cancel"), "other3", keep=False)
    scene.restart()
    assert names(lease(1, 1, 0)) == [(n, 1, None) for n in ("other2", "other4", "other5")]
    (grown,) = (one for one in lease(1, 1, 0) if one.shard.task == "other4")
    assert grown.shard.version == 2
    scene.coordinator.add_samples(asks("again"), "other0", shard_blob(scene.home, "more yet"))
    assert names(lease(2, 9, 1)) == [("other0", 2, None)]
    # A run that begins anew is told page by page, each from the last step of the one before.
    assert [len(lease(3, 3, since)) for since in (-1, 0, 1, 2)] == [3, 3, 1, 0]
    assert scene.coordinator.figures().steps == 9  # 1 to 9, each once
