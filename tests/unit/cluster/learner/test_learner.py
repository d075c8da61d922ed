"""Every kind of work, done by a learner without Ray, on a base of random weights."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from torch import Tensor

from cluster.domain.base import BlobRef
from cluster.domain.outcomes import GivesWay
from cluster.domain.tasks import GENERIC, Options, Shard
from cluster.domain.work import Measured, MeasureWork, Refreshed, RefreshWork
from cluster.learner import interference, refresh, training
from cluster.learner import progress as reports
from cluster.learner.artifacts import Materials
from cluster.learner.learner import Learner
from cluster.storage.checkpoints import checkpoints
from tacl.curvature import Statistics
from tacl.errors import BadConfig, BaseMismatch, RunFailed
from tacl.evaluation import nearness
from tacl.training.config import RefreshConfig
from tacl.vectors.params import norm
from tacl.vectors.vector import TaskVector
from tests.support import bases, tiny
from tests.support.learned import STEPS, Scene, new_task, train


@pytest.fixture
def step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked for, and is a checkpoint."""
    monkeypatch.setattr(tiny.LeaseClient, "seconds", -1.0)
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)


def test_training_gives_a_vector_that_helps(scene: Scene) -> None:
    for task, trained, ref in zip(scene.tasks, scene.trained, scene.refs, strict=True):
        metrics = trained.metrics
        assert metrics["validation_accuracy"] > metrics["validation_zero_shot"] + 0.05
        assert trained.norm > 0
        assert trained.config["steps"] == STEPS
        assert len(trained.curves["loss"]) == len(trained.curves["penalty"]) == STEPS
        assert scene.materials.vector(ref).task == task.name
        assert scene.materials.head(ref.head_blob).classes == task.classes


def test_texts_that_are_cut_are_counted(tmp_path: Path) -> None:
    """Those to train on, of which the base model reads the beginning alone."""
    home = tiny.home(tmp_path / "home", f"hf:{bases.bert(tmp_path)}?size=16")
    rows = ["the cat sat on the mat " * 9, *["a dog ran", "the cat sat"] * 16], [0, *[1, 0] * 16]
    parts = {"train": rows, "validation": rows, "test": rows}
    task = tiny.stored(home, "texts", ("cats", "dogs"), parts, steps=2, engine="plain")
    found = train(home, task.model_copy(update={"modality": "text"}), tiny.LeaseClient())
    assert found.metrics["rows_cut"] == 1


def test_a_run_measures_its_row_of_the_matrix(scene: Scene) -> None:
    assert [pair.on for pair in scene.trained[0].pairs] == ["generic", "task1"]
    assert [pair.on for pair in scene.trained[1].pairs] == ["generic", "task1", "task2"]
    assert all(pair.tau_jp > 0 and pair.rows == 16 for pair in scene.trained[1].pairs[1:])


def test_a_vector_is_measured_as_it_is_kept(scene: Scene) -> None:
    """Training does not change; the file does, and what is published is what lies in it."""
    blobs, whole, materials = scene.home.blobs(), scene.trained[0], scene.materials
    kept = {}
    for keep_as in ("bfloat16", "int8", "int4"):
        task = new_task(scene.home, 1, keep_as=keep_as)
        kept[keep_as] = found = train(scene.home, task, tiny.LeaseClient(tiny.generic(scene.home)))
        assert found.curves == whole.curves
        vector = materials.vector(tiny.published(task, found))
        assert vector.digest == found.vector_digest != whole.vector_digest
        assert found.norm == pytest.approx(norm(vector.to_params()), rel=1e-12)
        assert 0 < abs(found.norm / whole.norm - 1) < 0.05
    sizes = [len(blobs.read(one.vector_blob)) for one in (whole, *kept.values())]
    assert sizes == sorted(sizes, reverse=True)


def test_a_run_may_pass_in_half_precision(scene: Scene) -> None:
    task = new_task(scene.home, 1, precision="bfloat16")
    found = train(scene.home, task, tiny.LeaseClient(tiny.generic(scene.home)))
    assert found.curves["loss"] != scene.trained[0].curves["loss"]
    assert found.curves["loss"] == pytest.approx(scene.trained[0].curves["loss"], abs=0.1)
    assert found.config["precision"] == "bfloat16"


@pytest.mark.train
def test_a_task_is_seen_by_its_statistics_and_not_one_sample(scene: Scene) -> None:
    sharing, teller = new_task(scene.home, 4, share="statistics"), tiny.LeaseClient()
    train(scene.home, sharing, teller)
    (statistics,) = teller.statistics
    lost = BlobRef(digest="0" * 64, rows=40)  # whoever reads a sample fails
    shard = tiny.shard_of(sharing).model_copy(update={"blob": lost, "statistics": statistics})
    alone = train(scene.home, new_task(scene.home, 5), tiny.LeaseClient())
    beside = train(scene.home, new_task(scene.home, 5), tiny.LeaseClient(shard))
    assert alone.curves["penalty"] == [0.0] * STEPS
    assert beside.curves["penalty"][0] == 0  # tau is
    assert all(value > 0 for value in beside.curves["penalty"][1:])
    assert [pair.on for pair in beside.pairs] == ["task5"]
    with pytest.raises(BaseMismatch, match="statistics of task4"):
        _foreign(scene, statistics)


def _foreign(scene: Scene, statistics: str) -> None:
    found = Statistics.load(scene.home.blobs().local_path(statistics))
    other = scene.materials.put(replace(found, base="f" * 64).save)
    scene.materials.statistics_store("task4", other)


def test_the_same_inputs_give_the_same_vector(scene: Scene) -> None:
    again = train(scene.home, scene.tasks[0], tiny.LeaseClient(tiny.generic(scene.home)))
    assert again.vector_digest == scene.trained[0].vector_digest
    assert again.vector_blob == scene.trained[0].vector_blob


def test_another_seed_gives_another_vector(scene: Scene) -> None:
    other = train(
        scene.home, new_task(scene.home, 1, seed=1), tiny.LeaseClient(tiny.generic(scene.home))
    )
    assert other.vector_digest != scene.trained[0].vector_digest


def test_a_task_that_arrives_during_training_joins_the_cycle(scene: Scene) -> None:
    generic, newcomer = tiny.generic(scene.home), tiny.shard_of(scene.tasks[1], ordinal=2)
    teller = tiny.LeaseClient(generic, newcomer=newcomer, joining=STEPS // 2)
    joined = train(scene.home, scene.tasks[0], teller)
    alone = scene.trained[0]
    before, after = slice(0, STEPS // 2), slice(STEPS // 2 + 2, None)
    assert joined.curves["penalty"][before] == alone.curves["penalty"][before]
    assert joined.curves["penalty"][after] != alone.curves["penalty"][after]
    assert [pair.on for pair in joined.pairs] == ["generic", "task2", "task1"]


@pytest.mark.usefixtures("step_by_step")
def test_a_run_that_died_goes_on_with_the_same_numbers(scene: Scene) -> None:
    task = new_task(scene.home, 2)
    others = tiny.generic(scene.home), tiny.shard_of(scene.tasks[0])
    run_id = tiny.train_work(scene.home, task).run_id
    checkpoints(scene.home, run_id).clear()
    with pytest.raises(ConnectionError):
        train(scene.home, task, tiny.LeaseClient(*others, dies_at=12))
    folder = scene.home.path / "checkpoints" / run_id
    assert sorted(path.name for path in folder.iterdir()) == ["10", "11"]
    second = tiny.LeaseClient(*others)
    resumed = train(scene.home, task, second, attempt=2)
    assert second.asked[0][0] == 11
    assert resumed.vector_digest == scene.trained[1].vector_digest
    assert resumed.curves == scene.trained[1].curves


@pytest.mark.usefixtures("step_by_step")
def test_a_run_of_mixed_rows_that_died_goes_on_with_the_same_numbers(scene: Scene) -> None:
    task = new_task(scene.home, 3, penalty="mixed", steps=6)
    others = tiny.generic(scene.home), *(tiny.shard_of(one) for one in scene.tasks)
    whole = train(scene.home, task, tiny.LeaseClient(*others))
    assert whole.config["penalty"] == "mixed"
    checkpoints(scene.home, tiny.train_work(scene.home, task).run_id).clear()
    with pytest.raises(ConnectionError):
        train(scene.home, task, tiny.LeaseClient(*others, dies_at=4))
    resumed = train(scene.home, task, tiny.LeaseClient(*others), attempt=2)
    assert resumed.vector_digest == whole.vector_digest
    assert resumed.curves == whole.curves


def test_a_strength_may_grow_with_the_other_tasks(scene: Scene) -> None:
    """With two others, a quarter of what is given for eight."""
    others = tiny.generic(scene.home), tiny.shard_of(scene.tasks[0])
    grown = train(
        scene.home,
        new_task(scene.home, 2, strength=0.4, grow_strength=True),
        tiny.LeaseClient(*others),
    )
    assert grown.vector_digest == scene.trained[1].vector_digest  # trained with 0.1
    assert (grown.config["strength"], grown.config["grow_strength"]) == (0.4, True)


def test_the_same_kind_of_data_under_another_name_is_not_held_against_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step_by_step: None
) -> None:
    """Neither by the penalty nor by measuring; and a run that died goes on with the same."""
    monkeypatch.setattr(nearness, "LEAST", 8)
    task, generic = scene.tasks[1], tiny.generic(scene.home)
    again = tiny.shard_of(task).model_copy(update={"task": "again", "ordinal": 5})
    kept = checkpoints(scene.home, f"run-{task.name}")
    kept.clear()
    found = train(scene.home, task, tiny.LeaseClient(generic, again))
    assert found.near == ("again",)
    assert {pair.on for pair in found.pairs} == {GENERIC, task.name}
    kept.clear()
    alone = train(scene.home, task, tiny.LeaseClient(generic))
    assert (alone.near, alone.vector_digest) == ((), found.vector_digest)
    kept.clear()
    with pytest.raises(ConnectionError):
        train(scene.home, task, tiny.LeaseClient(generic, again, dies_at=STEPS // 2))
    monkeypatch.setattr(nearness, "NEAR", -1e9)  # what was decided is not decided again
    resumed = train(scene.home, task, tiny.LeaseClient(generic, again))
    assert (resumed.near, resumed.vector_digest) == (("again",), found.vector_digest)


def test_a_vector_that_moves_features_by_far_more_than_they_are_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum that holds it would answer nothing, nor would a head that is fitted under it."""
    saved: list[Path] = []
    monkeypatch.setattr(TaskVector, "save", lambda vector, path: saved.append(path))
    wild = tiny.submission(scene.home, 7, steps=1, learning_rate=1e6, engine="plain")
    with pytest.raises(RunFailed, match="no sum with it would be of use"):
        train(scene.home, wild, tiny.LeaseClient(tiny.generic(scene.home)))
    assert saved == []


def test_several_workers_need_deepspeed(scene: Scene) -> None:
    options = scene.tasks[0].options
    config = training.configuration(options, 96, scene.materials.backbone)
    with pytest.raises(BadConfig, match="use deepspeed"):
        training.build_engine(scene.materials.linearized(), config, options, ranks=2)


def test_another_base_than_the_homes_is_refused(scene: Scene) -> None:
    work = tiny.train_work(scene.home, scene.tasks[0])
    changed = work.model_copy(update={"base": work.base.model_copy(update={"digest": "0" * 64})})
    with pytest.raises(BaseMismatch, match="weights or the preprocessing have changed"):
        Learner(str(scene.home.path), tiny.LeaseClient()).work(changed)


def test_measuring_gives_what_training_measured(scene: Scene) -> None:
    generic, first = tiny.generic(scene.home), tiny.shard_of(scene.tasks[0])
    one, two = scene.refs
    work = MeasureWork(
        run_id="measure",
        base=tiny.train_work(scene.home, scene.tasks[0]).base,
        pairs=((two, first), (one, generic), (two, generic)),
        attempt=1,
    )
    measured = Learner(str(scene.home.path), tiny.LeaseClient()).work(work)
    assert isinstance(measured, Measured)
    wanted = [scene.trained[1].pairs[1], scene.trained[0].pairs[0], scene.trained[1].pairs[0]]
    assert [pair.on for pair in measured.pairs] == ["task1", "generic", "generic"]
    for pair, expected in zip(measured.pairs, wanted, strict=True):
        assert pair.version == 1
        assert pair.vector_digest == expected.vector_digest
        assert pair.tau_jp == pytest.approx(expected.tau_jp, rel=1e-5)


def test_a_measure_has_one_dense_vector_at_a_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Blocks(dict[str, Tensor]):
        """What a weak reference can be to."""

        __hash__ = object.__hash__  # type: ignore[assignment]

    dense: weakref.WeakSet[Blocks] = weakref.WeakSet()
    to_params, most = TaskVector.to_params, list[int]()

    def counted(vector: TaskVector) -> Blocks:
        found = Blocks(to_params(vector))
        dense.add(found)
        most.append(len(dense))
        return found

    monkeypatch.setattr(TaskVector, "to_params", counted)
    pairs = tuple((ref, tiny.generic(scene.home)) for ref in scene.refs)
    base = tiny.train_work(scene.home, scene.tasks[0]).base
    work = MeasureWork(run_id="measure", base=base, pairs=pairs, attempt=1)
    Learner(str(scene.home.path), tiny.LeaseClient()).work(work)
    assert most == [1, 1]


def test_behind_a_head_the_change_of_the_logits_is_measured(scene: Scene) -> None:
    """Against the linearized model row by row."""
    one, two = scene.refs
    probed = tiny.shard_of(scene.tasks[0]).model_copy(update={"head": one.head_blob})
    base = tiny.train_work(scene.home, scene.tasks[0]).base
    work = MeasureWork(run_id="measure", base=base, pairs=((two, probed), (one, probed)), attempt=1)
    measured = Learner(str(scene.home.path), tiny.LeaseClient()).work(work)
    assert isinstance(measured, Measured)
    materials, module = scene.materials, scene.materials.linearized()
    head = materials.head(one.head_blob)
    for pair, ref in zip(measured.pairs, (two, one), strict=True):
        module.load_tau(materials.vector(ref).to_params())
        sizes = []
        for item in materials.probe_items(probed.blob):
            f_1D, x_1D = module(materials.backbone.collate([item]))
            (moved,), (before,) = (head.logits(f).tolist() for f in (f_1D + x_1D, f_1D))
            change = [a - b for a, b in zip(moved, before, strict=True)]
            mean = sum(change) / len(change)
            sizes.append(sum((c - mean) ** 2 for c in change) ** 0.5)
        assert pair.head == one.head_blob
        assert pair.logits == pytest.approx(sum(sizes) / len(sizes), rel=1e-4)
        assert pair.logits_error is not None
        assert pair.logits_error > 0
    assert scene.trained[0].pairs[1].logits == pytest.approx(measured.pairs[1].logits, rel=1e-4)


def refresh_work(scene: Scene, *others: Shard) -> RefreshWork:
    """Of the first task's vector, which was never penalised on the second."""
    return RefreshWork(
        run_id="refresh",
        base=tiny.train_work(scene.home, scene.tasks[0]).base,
        vector=scene.refs[0],
        own=tiny.shard_of(scene.tasks[0]),
        others=others,
        options=Options(),
        attempt=1,
    )


def test_a_refresh_takes_a_vector_out_of_the_way(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "RefreshConfig", partial(RefreshConfig, samples=60))
    monkeypatch.setattr(reports, "SECONDS", 0.0)
    second, teller = tiny.shard_of(scene.tasks[1], ordinal=2), tiny.LeaseClient()
    found = Learner(str(scene.home.path), teller).work(refresh_work(scene, second))
    assert isinstance(found, Refreshed)
    assert found.accepted, found.reason
    assert [told.step for told in teller.told] == [*range(1, (teller.told[0].steps or 0) + 1)]
    assert [told.loss for told in teller.told] == found.curves["loss"]
    assert found.metrics["interference_after"] < 0.8 * found.metrics["interference_before"]
    assert found.metrics["own_change"] < RefreshConfig(seed=0).most_change * (1 + 1e-5)
    assert [pair.on for pair in found.pairs] == ["task2", "task1"]
    assert found.vector_digest not in (None, scene.refs[0].digest)
    assert found.vector_blob is not None
    vector = TaskVector.load(scene.home.blobs().local_path(found.vector_blob))
    assert (vector.task, vector.digest) == ("task1", found.vector_digest)

    # Refreshed again, by nothing: what was lost is told against the vector as it was trained.
    still = partial(RefreshConfig, samples=60, steps=1, learning_rate=0.0, closed_form=False)
    monkeypatch.setattr(refresh, "RefreshConfig", still)
    at = {"digest": found.vector_digest, "blob": found.vector_blob, "version": 2, "parent": 1}
    changed = {"vector": scene.refs[0].model_copy(update=at), "first": scene.refs[0]}
    work = refresh_work(scene, second).model_copy(update=changed)
    again = Learner(str(scene.home.path), tiny.LeaseClient()).work(work)
    assert isinstance(again, Refreshed)
    assert again.metrics["own_change"] == pytest.approx(found.metrics["own_change"], rel=1e-3)


def test_a_refresh_gives_way_and_goes_on_with_the_same_numbers(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "RefreshConfig", partial(RefreshConfig, steps=6, samples=60))
    monkeypatch.setattr(reports, "SECONDS", 0.0)
    work = refresh_work(scene, tiny.shard_of(scene.tasks[1], ordinal=2))
    work = work.model_copy(update={"run_id": "gives way"})
    teller = tiny.LeaseClient(gives_way_at=[2, 4])
    for _ in range(2):
        with pytest.raises(GivesWay):
            Learner(str(scene.home.path), teller).work(work)
    found = Learner(str(scene.home.path), teller).work(work)
    assert isinstance(found, Refreshed)
    assert [told.step for told in teller.told] == [1, 2, 3, 4, 5, 6]
    checkpoints(scene.home, work.run_id).clear()
    whole = Learner(str(scene.home.path), tiny.LeaseClient()).work(work)
    assert isinstance(whole, Refreshed)
    assert found.vector_digest == whole.vector_digest
    assert found.curves == whole.curves


def test_a_measure_gives_way_and_measures_what_is_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "SECONDS", 0.0)
    (one, two), base = scene.refs, tiny.train_work(scene.home, scene.tasks[0]).base
    first, second = map(tiny.shard_of, scene.tasks)
    pairs = ((two, first), (one, second), (one, first))
    work = MeasureWork(run_id="measure and wait", base=base, pairs=pairs, attempt=1)
    teller = tiny.LeaseClient(gives_way_at=[1])
    with pytest.raises(GivesWay):
        Learner(str(scene.home.path), teller).work(work)
    probes: list[str] = []
    real = interference.measured_pairs

    def measured(materials: Materials, named: object, shard: Shard) -> object:
        probes.append(shard.task)
        return real(materials, named, shard)  # type: ignore[arg-type]

    monkeypatch.setattr(interference, "measured_pairs", measured)
    found = Learner(str(scene.home.path), teller).work(work)
    assert probes == ["task2"]
    assert [(told.step, told.steps) for told in teller.told] == [(2, 3), (3, 3)]
    checkpoints(scene.home, work.run_id).clear()
    assert found == Learner(str(scene.home.path), tiny.LeaseClient()).work(work)


def test_a_refresh_that_gains_too_little_keeps_the_old_vector(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = partial(RefreshConfig, steps=8, samples=60, most_change=0.0)
    monkeypatch.setattr(refresh, "RefreshConfig", strict)
    second = tiny.shard_of(scene.tasks[1], ordinal=2)
    found = Learner(str(scene.home.path), tiny.LeaseClient()).work(refresh_work(scene, second))
    assert isinstance(found, Refreshed)
    assert not found.accepted
    assert "less than 5% would be gained" in found.reason
    assert found.vector_digest is found.vector_blob is None
    assert found.pairs == ()


def test_a_grown_shard_takes_the_place_of_the_earlier_one(scene: Scene) -> None:
    other = tiny.submission(scene.home, 7, rows=48)
    grown = Shard(task="task1", ordinal=1, blob=other.shard, version=2)
    task = new_task(scene.home, 4, steps=4)
    before = train(scene.home, task, tiny.LeaseClient(tiny.shard_of(scene.tasks[0])))
    after = train(scene.home, task, tiny.LeaseClient(grown))
    assert before.curves["penalty"] != after.curves["penalty"]
    assert after.pairs[0].shard_digest == other.shard.digest
