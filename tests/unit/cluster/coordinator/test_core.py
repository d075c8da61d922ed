"""The coordinator without Ray: what it accepts, starts, records, publishes and finds again."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cluster.coordinator.interference import REPORTED
from cluster.domain.base import BlobRef, RequestContext, identity
from cluster.domain.outcomes import Finished
from cluster.domain.receipts import GrownShard
from cluster.domain.status import WaitsFor
from cluster.domain.tasks import GENERIC, Options
from cluster.domain.work import Measured, MeasureWork, Progress, Refreshed, Trained, TrainWork
from cluster.scheduler.state import Needs, Node
from cluster.storage.samples import store_shard
from tacl.errors import (
    BadName,
    CorruptBlob,
    EmptySplit,
    ModalityMismatch,
    NameTaken,
    NotPlaceable,
    RunFailed,
    TaclError,
    TooFewClasses,
    UnknownTask,
)
from tests.support.fakes import (
    ADMIN,
    FakeLauncher,
    Scene,
    asks,
    calm,
    result_of,
    shard_blob,
    submission,
)

# -- submitting


def test_an_option_younger_than_a_run_does_not_change_its_identity() -> None:
    known = "02964fec0c1a1af76adfcdf310a478860c2ddc7ad6272b48cfc8885a9ea406eb"
    assert (
        identity(
            "options", Options(penalty="cyclical", precision="float32").model_dump(mode="json")
        )
        == known
    )
    grows = Options(penalty="cyclical", precision="float32", grow_strength=True)
    assert identity("options", grows.model_dump(mode="json")) != known
    assert Options.model_validate_json(grows.model_dump_json()) == grows


def test_a_task_is_trained_and_published(scene: Scene) -> None:
    accepted = scene.coordinator.submit(ADMIN, submission(scene.home, "digits"))
    assert scene.task("digits").state == "training"
    work = scene.process("train").work
    assert isinstance(work, TrainWork)
    assert (work.run_id, work.attempt) == (accepted.run_id, 1)
    assert scene.process("train").needs == Needs(1, 1, 0)
    checkpoint = scene.home.path / "checkpoints" / accepted.run_id / "3"
    checkpoint.mkdir(parents=True)
    scene.finish("train")
    status = scene.task("digits")
    assert (status.state, status.version) == ("ready", 1)
    assert (status.accuracy_before, status.accuracy_after) == (0.5, 0.9)
    assert not checkpoint.parent.exists()
    (vector,) = scene.coordinator.vectors(ADMIN, "digits")
    assert vector.champion
    assert vector.run_id == accepted.run_id
    assert [one.task for one in vector.arrivals] == [GENERIC]
    kinds = [event.kind for event in scene.coordinator.logs(ADMIN, "digits")]
    assert kinds == ["submitted", "queued", "started", "published"]


def test_a_request_is_answered_once(scene: Scene) -> None:
    first = scene.coordinator.submit(ADMIN, submission(scene.home, "digits"))
    assert scene.coordinator.submit(ADMIN, submission(scene.home, "digits")) == first
    scene.settle()
    scene.restart()
    assert scene.coordinator.submit(ADMIN, submission(scene.home, "digits")) == first
    assert not scene.running()
    with pytest.raises(NameTaken, match="ask something else"):
        scene.coordinator.submit(ADMIN, submission(scene.home, "other", request_id="submit digits"))
    with pytest.raises(NameTaken, match="there is a task digits"):
        scene.coordinator.submit(ADMIN, submission(scene.home, "digits", request_id="another"))


@pytest.mark.parametrize(
    ("name", "changes", "error"),
    [
        ("generic", {}, BadName),
        ("../digits", {}, BadName),
        ("taken", {"request_id": "another"}, NameTaken),
        ("digits", {"modality": "image"}, ModalityMismatch),
        ("digits", {"classes": ("only",)}, TooFewClasses),
        ("digits", {"test": BlobRef(digest="00", rows=0)}, EmptySplit),
        ("digits", {"train": BlobRef(digest="00", rows=2)}, CorruptBlob),
        ("digits", {"workers": 3}, NotPlaceable),
        ("digits", {"cpus_per_worker": 3}, NotPlaceable),
        ("digits", {"gpus_per_worker": 1}, NotPlaceable),
    ],
)
def test_what_is_refused_leaves_nothing(
    scene: Scene, name: str, changes: dict, error: type[TaclError]
) -> None:
    scene.submit("taken")
    before = scene.coordinator.status(ADMIN)
    with pytest.raises(error):
        scene.coordinator.submit(ADMIN, submission(scene.home, name, **changes))
    assert scene.coordinator.status(ADMIN) == before
    assert len(scene.running()) == 1
    scene.restart()
    assert [task.name for task in scene.coordinator.status(ADMIN).tasks] == ["taken"]


def test_what_cannot_be_placed_is_told_what_there_is(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(2), Node(4, 1))
    with pytest.raises(NotPlaceable, match="3 workers of 2 CPUs and 1 GPU.*4 CPUs and 1 GPU"):
        scene.submit("digits", workers=3, cpus_per_worker=2, gpus_per_worker=1)
    scene.submit("wide", workers=3, cpus_per_worker=2)
    assert scene.process("train").needs == Needs(3, 2, 0)


def test_tasks_share_the_cluster_and_say_why_they_wait(scene: Scene) -> None:
    for name in ("digits", "shapes", "signs"):
        scene.submit(name)
    assert [scene.task(name).state for name in ("digits", "shapes", "signs")] == [
        "training",
        "training",
        "queued",
    ]
    assert scene.task("signs").reason == (
        "needs 1 CPU, 0 of 2 CPUs free: training digits, training shapes"
    )
    assert scene.coordinator.cluster().free_cpus == 0
    scene.finish("train", "shapes")
    assert scene.task("signs").state == "training"
    scene.settle()
    assert all(scene.task(name).state == "ready" for name in ("digits", "shapes", "signs"))
    assert scene.coordinator.interference(ADMIN).missing == 0


# -- arrivals


def test_arrivals_join_at_the_next_step_and_are_replayed(scene: Scene) -> None:
    scene.submit("digits")
    run, known = scene.process("train").work.run_id, scene.known

    def names(step: int, attempt: int) -> list[str]:
        progress = Progress(step=step, steps=9, loss=1.0)
        return [shard.task for shard in known(run, step, progress, attempt)]

    assert names(0, 1) == [GENERIC]
    scene.submit("shapes")
    assert names(1, 1) == [GENERIC, "shapes"]
    assert names(2, 1) == [GENERIC, "shapes"]
    scene.coordinator.add_samples(asks("grow"), "shapes", shard_blob(scene.home, "more"))
    assert scene.task("digits").step == 2
    scene.die("train", "digits")
    scene.submit("signs")
    scene.restart()
    known = scene.known
    assert [names(step, 3) for step in (0, 1, 2)] == [
        [GENERIC],
        [GENERIC, "shapes"],
        [GENERIC, "shapes"],
    ]
    assert [shard.version for shard in known(run, 2)] == [1, 1]
    assert names(3, 3) == [GENERIC, "shapes", "signs"]
    assert [shard.version for shard in known(run, 3)] == [1, 2, 1]


def test_an_attempt_that_was_replaced_is_sent_away(scene: Scene) -> None:
    scene.submit("digits")
    run = scene.process("train").work.run_id
    scene.restart()
    with pytest.raises(RunFailed, match="attempt 1"):
        scene.known(run, 0, None, 1)
    assert scene.known(run, 0, None, 2)
    scene.finish("train")
    with pytest.raises(RunFailed):
        scene.known(run, 1, None, 2)


# -- failures


def test_a_lost_process_is_replaced_twice(scene: Scene) -> None:
    scene.submit("digits")
    scene.die("train", cause="the node went away")
    status = scene.task("digits")
    assert (status.state, status.attempt) == ("training", 2)
    assert status.reason == "started again after: the node went away"
    scene.die("train")
    scene.die("train", cause="out of memory")
    status = scene.task("digits")
    assert status.state == "failed"
    assert "out of memory" in str(status.reason)
    assert not scene.running()
    scene.restart()
    assert not scene.running()
    assert scene.coordinator.retry(RequestContext(), "digits").retried == (status.run_id,)
    work = scene.process("train").work
    assert (work.run_id, work.attempt) == (status.run_id, 4)
    scene.die("train")
    assert scene.task("digits").state == "training"
    scene.finish("train")
    status = scene.task("digits")
    assert (status.version, status.reason) == (1, None)


def test_an_error_is_not_tried_again(scene: Scene) -> None:
    scene.submit("digits")
    scene.fail("train", cause="CorruptBlob: gone")
    status = scene.task("digits")
    assert (status.state, status.reason) == ("failed", "CorruptBlob: gone")
    assert not scene.running()
    with pytest.raises(RunFailed, match="training digits failed: CorruptBlob: gone"):
        scene.coordinator.evaluation(ADMIN, status.run_id)


def test_deaths_survive_a_restart(scene: Scene) -> None:
    scene.submit("digits")
    scene.die("train")
    scene.die("train")
    scene.restart()
    scene.die("train")
    assert scene.task("digits").state == "failed"


@pytest.mark.parametrize("kind", ["train", "measure", "refresh"])
def test_a_result_that_cannot_be_right_is_refused(tmp_path: Path, kind: str) -> None:
    scene = Scene(tmp_path)
    scene.submit("digits")
    blobs = scene.home.blobs()
    if kind != "train":
        scene.finish("train")
        scene.arrive("shapes")
    if kind == "refresh":
        scene.settle()
        scene.coordinator.refresh(asks("again"), "digits")
    process = scene.process(kind)
    good = result_of(process.work, blobs, calm)
    if isinstance(good, Trained):
        broken = blobs.put(b"a vector")
        Path(blobs.local_path(broken)).write_bytes(b"another")
        bad = good.model_copy(update={"vector_blob": broken})
    elif isinstance(good, Measured):
        bad = Measured(pairs=())
    else:
        assert isinstance(good, Refreshed)
        bad = good.model_copy(update={"vector_blob": None})
    scene.end(Finished(bad), kind)
    run = scene.coordinator.run(ADMIN, process.work.run_id)
    assert run.state == "failed"
    assert run.reason
    assert not [work for work in scene.running() if work.kind == kind]


def test_a_result_whose_file_went_is_worked_out_again(scene: Scene) -> None:
    """It was stored before, of somebody's model, and deleted with that meanwhile."""
    scene.submit("digits")
    process = scene.process("train")
    good = result_of(process.work, scene.home.blobs(), calm)
    assert isinstance(good, Trained)
    scene.end(Finished(good.model_copy(update={"vector_blob": "f" * 64})), "train")
    assert scene.process("train").work.attempt == 2
    scene.finish("train")
    assert scene.task("digits").state == "ready"


@pytest.mark.parametrize("size", [math.nan, math.inf])
def test_a_training_that_diverged_is_refused(tmp_path: Path, size: float) -> None:
    scene = Scene(tmp_path, tau=lambda vector, on: size)
    scene.submit("digits")
    scene.finish("train")
    status = scene.task("digits")
    assert (status.state, status.version) == ("failed", None)
    assert "diverged" in (status.reason or "")


# -- measuring


def test_the_loudest_pairs_are_the_same_after_a_restart(tmp_path: Path) -> None:
    def tau(vector: str, on: str) -> float:
        return 1.0 if vector == on else 0.5 if vector == "t6" else 0.01

    scene = Scene(tmp_path, tau=tau).trained(*(f"t{number}" for number in range(7)))
    before = scene.coordinator.interference(ADMIN).loudest
    assert {one.vector for one in before[:6]} == {"t6"}
    assert len(before) == REPORTED < 7 * 6
    scene.restart()
    assert scene.coordinator.interference(ADMIN).loudest == before


def test_new_samples_are_measured_for_every_champion(scene: Scene) -> None:
    scene.trained("digits", "shapes")
    scene.arrive("signs")
    work = scene.process("measure").work
    assert isinstance(work, MeasureWork)
    assert [(vector.task, shard.task) for vector, shard in work.pairs] == [
        ("digits", "signs"),
        ("shapes", "signs"),
    ]
    scene.settle()
    matrix = scene.coordinator.interference(ADMIN)
    assert matrix.on == (GENERIC, "digits", "shapes", "signs")
    assert matrix.raw == tuple(
        (0.01, *(1.0 if s == t else 0.01 for t in range(3))) for s in range(3)
    )
    assert matrix.relative[0][2] == 0.01
    assert matrix.logits == matrix.relative  # as the fake learner has it
    assert len(matrix.loudest) == 6
    assert {(one.logits, one.relative, one.raw) for one in matrix.loudest} == {(0.01, 0.01, 0.01)}
    found = scene.coordinator.interference_of(ADMIN, "shapes")
    assert [(one.vector, one.on) for one in found.does] == [
        ("shapes", "digits"),
        ("shapes", "signs"),
        ("shapes", GENERIC),
    ]
    assert [(one.vector, one.version) for one in found.bears] == [("digits", 1), ("signs", 1)]
    assert found.measured == (3, 2)
    answer = scene.coordinator.add_samples(
        asks("grow"), "shapes", shard_blob(scene.home, "more", 6)
    )
    assert answer == GrownShard(task="shapes", version=2, rows=10, added=6)
    assert (
        scene.coordinator.add_samples(asks("grow"), "shapes", shard_blob(scene.home, "more", 6))
        == answer
    )
    assert scene.task("shapes").samples == 10
    assert scene.coordinator.interference(ADMIN).missing == 3
    scene.settle()
    assert scene.coordinator.interference(ADMIN).missing == 0


def test_two_tasks_may_have_the_same_data(scene: Scene) -> None:
    scene.trained("digits")
    same = submission(scene.home, "digits").model_dump(include={"train", "shard", "test"})
    parts = {name: BlobRef(**blob) for name, blob in same.items()}
    for name in ("again", "and again"):
        scene.submit(name.replace(" ", "-"), **parts)
    scene.settle()
    matrix = scene.coordinator.interference(ADMIN)
    assert matrix.on == (GENERIC, "digits", "again", "and-again")
    assert matrix.missing == 0
    scene.restart()
    assert not scene.running()


def test_samples_that_are_there_already_change_nothing(scene: Scene) -> None:
    scene.trained("digits")
    answer = scene.coordinator.add_samples(asks("grow"), "digits", shard_blob(scene.home, "digits"))
    assert answer == GrownShard(task="digits", version=1, rows=4, added=0)
    assert not scene.running()
    with pytest.raises(UnknownTask, match="digits"):
        scene.coordinator.add_samples(asks("grow nobody"), "nobody", shard_blob(scene.home, "x"))


def test_a_measure_that_fails_is_not_repeated_until_it_is_asked_for(scene: Scene) -> None:
    scene.trained("digits")
    scene.arrive("shapes")
    scene.fail("measure")
    assert not scene.running()
    (left,) = scene.coordinator.status(ADMIN).work
    assert left.state == "failed"
    scene.restart()
    assert not scene.running()
    assert scene.coordinator.retry(RequestContext(), "shapes").retried == (left.run_id,)
    scene.settle()
    assert scene.coordinator.interference(ADMIN).missing == 0


# -- trouble


def test_a_full_disk_is_said_and_survived(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.submit("digits")
    with monkeypatch.context() as disk:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        disk.setattr(scene.coordinator._registry, "publish", full)
        scene.finish("train")
        assert "No space left" in str(scene.coordinator.status(ADMIN).trouble)
        assert scene.task("digits").state == "training"
    scene.coordinator.tick()
    assert scene.coordinator.status(ADMIN).trouble is None
    assert scene.task("digits").version == 1


def test_what_could_not_be_started_is_started_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise ConnectionError("no answer")

    with monkeypatch.context() as network:
        network.setattr(FakeLauncher, "start", unreachable)
        scene.submit("digits")  # accepted all the same
        assert "no answer" in str(scene.coordinator.status(ADMIN).trouble)
    scene.coordinator.tick()
    assert scene.coordinator.status(ADMIN).trouble is None
    scene.finish("train")
    assert scene.task("digits").version == 1


def test_what_serving_leaves_no_room_for_is_refused_at_submit_or_said(scene: Scene) -> None:
    scene.submit("running", cpus_per_worker=2)
    scene.submit("wide", workers=2)
    assert scene.task("wide").waits_for == WaitsFor.ROOM
    scene.launcher.room = (Node(2, held_cpus=1),)
    scene.coordinator.tick()
    assert scene.task("wide").waits_for == WaitsFor.NODES
    assert "of which serving holds 1 CPU" in str(scene.task("wide").reason)
    with pytest.raises(NotPlaceable, match="2 workers of 1 CPU; .* serving holds 1 CPU"):
        scene.submit("other", workers=2)
    assert scene.coordinator.cluster().cpus == 2


def test_a_lost_node_is_noticed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(2), Node(2))
    scene.submit("wide", workers=2, cpus_per_worker=2)
    scene.launcher.room = (Node(2),)
    scene.die("train", cause="node lost")
    assert scene.task("wide").state == "queued"
    assert "1 node" in str(scene.task("wide").reason)
    scene.submit("narrow")
    assert scene.process("train", "narrow")
    scene.launcher.room = (Node(2), Node(2))
    scene.settle()
    assert scene.task("wide").state == "ready"


def test_probe_rows_of_grown_samples_stay_probe_rows(scene: Scene) -> None:
    scene.trained("digits")
    new = store_shard(scene.home.blobs(), ["digits 1", "fresh"], [True, False])
    answer = scene.coordinator.add_samples(asks("grow"), "digits", new)
    assert answer.added == 1
