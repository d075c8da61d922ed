"""A user over HTTP has so many runs queued and so many bytes stored; nobody else is limited."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.domain.base import RequestContext
from cluster.domain.compositions import CompositionMethod
from cluster.domain.users import Usage
from cluster.reading import shares
from cluster.reading.shares import QUEUED, RAN, STORED, minutes, require_share, wait
from cluster.scheduler.state import Node
from tacl.errors import TooMany
from tests.support.fakes import ADMIN, Scene, asks, submission


def over(user: str | None, limited: bool = True) -> RequestContext:
    return RequestContext(user=user, limited=limited)


@pytest.mark.parametrize(
    ("queued", "ran", "stored", "seconds"),
    [
        (QUEUED, RAN - 1, STORED, None),
        (QUEUED + 1, 0, 0, 60),
        (QUEUED + 9, 0, 0, 60),  # a task is retried with all that is about it
        (0, RAN, 0, 99),
        (0, 0, STORED + 1, 3600),
    ],
)
def test_what_is_a_share(queued: int, ran: int, stored: int, seconds: int | None) -> None:
    has = {"queued": queued, "ran": ran, "stored": stored}
    usage = Usage(user="ann", **has, queued_most=1, ran_most=1, stored_most=1)
    if seconds is None:
        return require_share(usage)
    with pytest.raises(TooMany) as refused:
        require_share(usage, wait=99)
    assert refused.value.seconds == seconds
    assert queued <= QUEUED or f"would have {queued} runs" in str(refused.value)


def test_minutes_come_back_a_day_after_they_were_taken() -> None:
    now = 1000.0 * 3600
    assert minutes({990: 90.0, 991: 45.0}) == 2
    assert wait({990: 60.0 * RAN}, now) == (990 + 24 - 1000) * 3600
    assert wait({980: 60.0 * RAN, 990: 60.0}, now) == (980 + 24 - 1000) * 3600
    assert wait({980: 60.0, 990: 60.0 * RAN}, now) == (990 + 24 - 1000) * 3600
    assert wait({}, now) == 1


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, Node(1))


def used(scene: Scene, user: str) -> Usage:
    return next(one for one in scene.coordinator.usage() if one.user == user)


def test_runs_are_counted_by_who_asked(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "QUEUED", 2)
    call, home = scene.coordinator, scene.home
    for name in ("one", "two"):
        call.submit(over("ann"), submission(home, name, owner="ann", request_id=name))
    for refused in (
        lambda: call.submit(over("ann"), submission(home, "three", owner="ann")),
        lambda: call.admit(over("ann"), "three"),
    ):
        with pytest.raises(TooMany, match="ann would have 3 runs queued, and may have 2"):
            refused()
    call.admit(over("ann").model_copy(update={"request_id": "one"}), "one")  # as it was answered
    for request_id, name in (("new", None), ("one", "other"), ("one", None)):
        with pytest.raises(TooMany):
            call.admit(over("ann").model_copy(update={"request_id": request_id}), name)
    again = call.submit(over("ann"), submission(home, "one", owner="ann", request_id="one"))
    assert again.task == "one"  # what was accepted is answered the same
    call.submit(over("bob"), submission(home, "his", owner="bob"))
    call.submit(over("ann", limited=False), submission(home, "local", owner="ann"))
    assert used(scene, "ann").queued == 3
    scene.settle()
    assert used(scene, "ann").queued == 0
    call.admit(over("ann"), "three")


def test_runs_of_models_are_counted_and_those_that_are_there_are_answered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "QUEUED", 1)
    for name in ("one", "two"):
        scene.submit(name, refresh="never")
    scene.settle()
    call, how = scene.coordinator, CompositionMethod(method="ties")
    call.compose(asks("c"), "ann", ["one"])
    first = call.evaluate(over("ann"), "ann")
    assert call.evaluate(over("ann"), "ann") == first
    with pytest.raises(TooMany):
        call.start_composition(over("ann"), "ann", ["one", "two"], how)
    scene.settle()
    made = call.start_composition(over("ann"), "ann", ["one", "two"], how)
    assert call.evaluate(over("ann"), "ann") == first  # is done, and needs no room
    assert call.start_composition(over("ann"), "ann", ["one", "two"], how).run_id == made.run_id


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets hours pass."""
    now = [time.time()]
    monkeypatch.setattr(time, "time", lambda: now[0])

    def pass_(hours: float) -> None:
        now[0] += 3600 * hours

    return pass_


def test_minutes_are_those_of_every_attempt_of_a_day(
    scene: Scene, clock: Callable[[float], None]
) -> None:
    """A run that is cancelled and tried again has run all the same."""
    call, home = scene.coordinator, scene.home
    run = call.submit(over("ann"), submission(home, "one", owner="ann", request_id="one")).run_id
    clock(10)  # it runs
    assert used(scene, "ann").ran == 600
    call.cancel(over("ann"), "one", True)
    clock(5)  # nothing does
    assert used(scene, "ann").ran == 600
    call.retry(over("ann"), "one")
    clock(14)
    assert used(scene, "ann").ran == 1440
    assert used(scene, "ann").ran_most == RAN
    with pytest.raises(TooMany, match="1440 minutes") as refused:
        call.admit(over("ann"), "two")
    assert 0 < refused.value.seconds <= 5 * 3600 + 1  # a day after the first attempt ended
    call.admit(over("bob"), "two")
    call.admit(over("ann", limited=False), "two")
    call.cancel(over("ann"), "one", True)
    with pytest.raises(TooMany):
        call.retry(over("ann"), "one")
    clock(refused.value.seconds / 3600)
    call.retry(over("ann"), "one")
    assert call.run(ADMIN, run).attempt == 3
    clock(60)
    scene.settle()
    assert used(scene, "ann").ran == 60 * 60
    clock(25)
    assert used(scene, "ann").ran == 0


@pytest.mark.parametrize(("hours", "ran"), [(9, 60), (60, 0)])
def test_nobody_took_the_time_in_which_the_cluster_was_down(
    hours: float, ran: int, scene: Scene, clock: Callable[[float], None]
) -> None:
    """What was taken before it was is of the hour in which that ended."""
    call, home = scene.coordinator, scene.home
    call.submit(over("ann"), submission(home, "one", owner="ann"))
    clock(1)
    call.submit(over("bob"), submission(home, "his", owner="bob"))  # the last that is heard of it
    clock(hours)
    scene.restart()
    assert used(scene, "ann").ran == ran
    scene.coordinator.tick()
    clock(2)
    assert used(scene, "ann").ran == ran + 120
    scene.restart(outlived=True)
    assert used(scene, "ann").ran == ran + 120


def test_what_is_made_again_is_counted_as_what_is_new(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose files were collected, though its run is done."""
    for name in ("one", "two"):
        scene.submit(name, refresh="never")
    scene.settle()
    call, how = scene.coordinator, CompositionMethod(method="ties")
    call.start_composition(over("ann"), "ann", ["one", "two"], how)
    scene.settle()
    made = call.composition(ADMIN, "ann").merged
    assert made is not None
    scene.home.blobs().remove(made.blob)
    monkeypatch.setattr(shares, "QUEUED", 0)
    with pytest.raises(TooMany):
        call.start_composition(over("ann"), "ann", ["one", "two"], how)


def test_what_is_tried_again_is_counted_as_what_is_new(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "QUEUED", 2)
    call, home = scene.coordinator, scene.home
    for name in ("one", "two", "three"):
        call.submit(over("ann"), submission(home, name, owner="ann", request_id=name))
        call.cancel(over("ann"), name, True)
    call.retry(over("ann"), "one")
    call.retry(over("ann"), "two")
    with pytest.raises(TooMany):
        call.retry(over("ann"), "three")


def test_bytes_are_counted_until_they_are_purged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, home = scene.coordinator, scene.home
    call.submit(over("ann"), submission(home, "one", owner="ann"))
    scene.settle()
    stored = used(scene, "ann").stored
    assert 0 < stored <= sum(blob.size for blob in home.blobs().stored())
    monkeypatch.setattr(shares, "STORED", stored)
    new = submission(home, "two", owner="ann")
    with pytest.raises(TooMany, match="may have"):
        call.submit(over("ann"), new)
    call.submit(over("bob"), submission(home, "his", owner="bob"))
    call.remove(asks("r"), "one", False)
    assert used(scene, "ann").stored == stored  # models may need them
    call.remove(asks("p"), "one", True)
    assert used(scene, "ann").stored == 0
    call.submit(over("ann"), new)
    assert call.status(ADMIN).tasks
