"""The coordinator's process dies at every step between two I/O operations of every call.

The places are not listed here: an undisturbed story tells which steps there are
(`cluster.failpoints`), and the process is killed at each of them. Then another one is made of what
is on the disk, the clients repeat their calls under the same ids, and all must be as if nothing had
happened.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cluster import failpoints
from cluster.coordinator.recovery import restored
from cluster.domain.compositions import CompositionMethod
from cluster.domain.tasks import ANY, CHAMPION
from cluster.scheduler.plan import validate
from tacl.errors import UnknownTask
from tests.support.budget import budget
from tests.support.fakes import ADMIN, Scene, asks, loud, shard_blob, submission

pytestmark = pytest.mark.usefixtures("without_waiting_for_the_disk")

EACH = budget(1, nightly=1000)  # times at every step


TIES, ISO = CompositionMethod(method="ties"), CompositionMethod(method="iso")


class Killed(BaseException):
    """The process is gone: nothing in it runs on."""


def story(scene: Scene) -> None:
    """Every call that writes, each by its id."""
    call = scene.coordinator
    call.submit(ADMIN, submission(scene.home, "digits", refresh="on_arrival"))
    if scene.running() and scene.running()[0].kind == "train":
        scene.die("train")
    scene.settle()
    call.submit(ADMIN, submission(scene.home, "signs", refresh="never"))
    scene.settle()
    call.add_samples(asks("grow"), "signs", shard_blob(scene.home, "more"))
    scene.settle()
    call.refresh(asks("refresh"), "signs")
    scene.settle()
    call.move_alias(asks("back"), "digits", CHAMPION, 1, ANY)
    scene.settle()
    call.compose(asks("compose"), "alice", ["+digits", "-signs"])
    call.submit(ADMIN, submission(scene.home, "faces", refresh="never"))
    call.cancel(asks("cancel"), "faces", keep=True)
    call.retry(asks("retry"), "faces")
    scene.settle()
    call.compose(asks("bob"), "bob", ["+faces"])
    with suppress(UnknownTask):  # what was made of a task that is gone is asked for no more
        call.start_composition(asks("merge"), "bob", ["+faces", "-digits"], TIES)
        scene.settle()
    call.remove(asks("remove"), "faces", True)
    scene.settle()
    call.move_alias(asks("forth"), "digits", CHAMPION, 2, ANY)
    scene.settle()
    call.update_composition(asks("update"), "alice")
    call.evaluate(ADMIN, "alice")
    call.start_composition(asks("iso"), "dave", ["+digits@v1"], ISO)
    call.cancel_compositions(asks("stop"), "dave")
    call.start_composition(asks("iso again"), "dave", ["+digits@v1"], ISO)
    call.start_composition(asks("make"), "carol", ["+digits@v1", "-signs@v1"], TIES)
    scene.settle()
    call.tick()


def outcome(scene: Scene) -> dict[str, Any]:
    """What people see in the end."""
    call = scene.coordinator
    names, status = ("digits", "signs"), call.status(ADMIN)
    return {
        "tasks": [(t.name, t.state, t.version) for t in status.tasks],
        "work": status.work,
        "trouble": status.trouble,
        "vectors": [(v.task, v.version, v.parent, v.digest) for v in call.vectors(ADMIN)],
        "champions": {name: call.aliases(ADMIN, name).aliases for name in names},
        "moves": {name: len(call.aliases(ADMIN, name).history) for name in names},
        "missing": call.interference(ADMIN).missing,
        "shards": [len(call.task(ADMIN, name).shards) for name in names],
        "model": [t.vector.version for t in call.composition(ADMIN, "alice").terms],
        "made": call.compositions(["carol", "dave"]),
        "result": call.evaluation(ADMIN, call.evaluate(ADMIN, "alice").run_id) is not None,
        "checkpoints": sorted(folder.name for folder in checkpoint_folders(scene)),
        "erased": len(call._registry.erasures()),
    }


def checkpoint_folders(scene: Scene) -> Iterator[Path]:
    folder = scene.home.path / "checkpoints"
    return folder.iterdir() if folder.is_dir() else iter(())


def require_sound(scene: Scene) -> None:
    """Accepted once, published once, nothing points to what is missing, memory and disk agree."""
    registry, blobs = scene.coordinator._registry, scene.home.blobs()
    tasks = registry.tasks(with_removed=True)
    assert [task.ordinal for task in tasks] == list(range(1, len(tasks) + 1))
    for task in tasks:
        versions = [entry.reference.version for entry in registry.vectors(task.name)]
        assert versions == list(range(1, len(versions) + 1))
        assert set(registry.aliases(task.name).values()) <= set(versions)
        assert (registry.run(task.run_id).state == "done") == bool(versions)
    made = [entry.reference.run_id for entry in registry.vectors()]
    assert len(made) == len(set(made))
    for digest in registry.referenced():
        blobs.verify(digest)
    live = scene.coordinator._state
    again = restored(registry, live.base)
    validate(live)
    for name in ("tasks", "owners", "champions", "rows", "balance"):
        assert getattr(again, name) == getattr(live, name), name
    assert again.runs.keys() == live.runs.keys()
    working = [process.work.run_id for process in scene.launcher.running()]
    assert len(working) == len(set(working))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[str]]:
    """What people see when nobody dies, and the steps on the way."""
    reached: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        scene = Scene(tmp_path_factory.mktemp("undisturbed"), tau=loud)
        patch.setattr(failpoints, "watch", reached.append)
        story(scene)
        require_sound(scene)
    return outcome(scene), reached


def test_the_story_goes_through_every_door(undisturbed: tuple[dict[str, Any], list[str]]) -> None:
    expected, reached = undisturbed
    assert expected["tasks"] == [("digits", "ready", 2), ("signs", "ready", 2)]
    assert (expected["missing"], expected["work"], expected["erased"]) == (0, (), 0)
    writes = ("accept", "grow", "add_run", "start", "requeue", "retry", "cancel", "finish")
    writes = (*writes, "publish", "grant_lease", "compose", "move_alias", "remove")
    writes = (*writes, "forget_due", "make", "composed")
    assert {f"registry {name} committed" for name in writes} <= set(reached)
    assert {"blob stored", "work started", "work stopped", "checkpoints cleared"} <= set(reached)
    assert "blob removed" in reached


def moments(reached: list[str], each: int) -> list[int]:
    """Of every step the first `each` times that it was reached."""
    times: Counter[str] = Counter()
    found = []
    for number, step in enumerate(reached):
        times[step] += 1
        if times[step] <= each:
            found.append(number)
    return found


def die_at(
    scene: Scene, moment: int, patch: pytest.MonkeyPatch, live: Callable[[Scene], object] = story
) -> bool:
    """Live the story up to one moment; False when it ended before."""
    left = moment

    def count(step: str) -> None:
        nonlocal left
        if left == 0:
            raise Killed(step)
        left -= 1

    patch.setattr(failpoints, "watch", count)
    try:
        live(scene)
    except Killed:
        return True
    finally:
        patch.setattr(failpoints, "watch", None)
    return False


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_death_at_any_step_loses_and_doubles_nothing(
    undisturbed: tuple[dict[str, Any], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    turn: int,
) -> None:
    """Learners outlive the coordinator at every second step; by the other turn, at the others."""
    expected, reached = undisturbed
    for number, moment in enumerate(moments(reached, EACH)):
        scene = Scene(tmp_path / f"{moment}", tau=loud)
        assert die_at(scene, moment, monkeypatch), f"moment {moment} never came"
        scene.restart(outlived=(number + turn) % 2 == 0)
        require_sound(scene)
        scene.coordinator.tick()  # it hears what learners have found meanwhile
        story(scene)  # the clients repeat their calls
        assert outcome(scene) == expected, f"killed at moment {moment}: {reached[moment]}"


def compose_again(scene: Scene) -> str:
    terms = ["+digits", "+signs"]
    return scene.coordinator.start_composition(asks("again"), "alice", terms, TIES).run_id


def refresh_again(scene: Scene) -> str:
    return scene.coordinator.refresh(asks("again"), "digits").run_id


@pytest.mark.parametrize("cancelled", [True, False])
@pytest.mark.parametrize("again", [compose_again, refresh_again])
def test_what_was_stopped_and_is_asked_for_again_is_done_whenever_the_process_dies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: Callable[[Scene], str],
    cancelled: bool,
) -> None:
    for moment in itertools.count():
        scene = Scene(tmp_path / f"{moment}").trained("digits", "signs")
        call = scene.coordinator
        call.start_composition(asks("make"), "alice", ["+digits", "+signs"], TIES)
        call.refresh(asks("refresh"), "digits")
        if cancelled:
            call.cancel_compositions(asks("stop"), "alice")
            call.cancel(asks("stop digits"), "digits")
        else:
            scene.fail("compose")
            scene.fail("refresh")
        died = die_at(scene, moment, monkeypatch, again)
        scene.restart(outlived=bool(moment % 2))
        run_id = again(scene)
        scene.settle()
        assert scene.coordinator.run(ADMIN, run_id).state == "done", f"killed at moment {moment}"
        if not died:
            break
    assert moment > 3
