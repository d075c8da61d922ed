"""Heads fitted by a learner, on a base of random weights."""

from __future__ import annotations

import json
import shutil
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cluster.domain.base import BlobRef
from cluster.domain.compositions import Fitted
from cluster.domain.outcomes import GivesWay
from cluster.domain.work import Evaluated, EvaluateWork, FitTask, FitWork, TaskData
from cluster.learner import heads as learner_heads
from cluster.learner import progress as reports
from cluster.learner.artifacts import Materials
from cluster.learner.feature_cache import CachedRow, Writer, due, read, write, written_by
from cluster.learner.heads import AtTheta0, RowsUnderSums, again_of, rows_of_each
from cluster.learner.learner import Learner
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home
from cluster.storage.listed import listed_tasks, store_tasks
from cluster.storage.samples import Raw, store_shard
from tacl.backbone import Item
from tacl.data.nonsense import JUDGED, LEARNED, with_nonsense
from tacl.evaluation.tangents import Moved
from tacl.heads import probe
from tacl.heads.head import Head, union
from tacl.models.sums import Sums
from tests.support import bases, tiny


class Scene:
    """A home with two trained tasks and their fitted heads."""

    def __init__(self, path: Path) -> None:
        self.home = tiny.home(path)
        options = {"steps": 30, "learning_rate": 1e-3, "strength": 0.1, "engine": "plain"}
        self.tasks = [tiny.submission(self.home, n, noise=90, **options) for n in (1, 2)]
        self.learner = Learner(str(self.home.path), tiny.LeaseClient(tiny.generic(self.home)))
        works = [tiny.train_work(self.home, task) for task in self.tasks]
        trained = [self.learner.work(work) for work in works]
        pairs = zip(self.tasks, trained, strict=True)
        self.refs = [tiny.published(task, one) for task, one in pairs]  # type: ignore[arg-type]
        self.base = works[0].base

    def work(self) -> FitWork:
        tasks = tuple(
            FitTask(vector=ref, train=task.train, validation=task.validation)
            for ref, task in zip(self.refs, self.tasks, strict=True)
        )
        listed = store_tasks(self.home.blobs(), tasks)
        return FitWork(run_id="fit", base=self.base, owner="", listed=listed, attempt=1)

    def fit(self, run_id: str = "fit") -> Fitted:
        found = self.learner.work(self.work().model_copy(update={"run_id": run_id}))
        assert isinstance(found, Fitted)
        return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def fitted(scene: Scene) -> Fitted:
    return scene.fit()


def heads(home: Home, fitted: Fitted, which: str) -> list:
    settings = home.settings()
    assert settings is not None
    materials = Materials(home, settings.base)
    return [materials.head(getattr(one, which)) for one in fitted.heads]


def test_every_task_gets_heads_that_answer_together(scene: Scene, fitted: Fitted) -> None:
    assert [(one.task, one.vector) for one in fitted.heads] == [
        (ref.task, ref.digest) for ref in scene.refs
    ]
    for which in ("head", "frozen"):
        found = heads(scene.home, fitted, which)
        assert [head.classes for head in found] == [task.classes for task in scene.tasks]
        assert len({head.scale for head in found}) == 1
        assert len(union(found).classes) == sum(len(task.classes) for task in scene.tasks)
    chance = 1 / sum(len(task.classes) for task in scene.tasks)
    assert fitted.metrics["unknown"] > 1.5 * chance
    assert fitted.metrics["known"] >= fitted.metrics["unknown"]
    assert fitted.metrics["rows"] == sum(task.train.rows for task in scene.tasks)


def test_the_same_work_gives_the_same_heads(scene: Scene, fitted: Fitted) -> None:
    """Rows that are measured again are measured under the same sums only where all are."""
    shutil.rmtree(scene.home.path / "cache" / "heads")
    assert scene.fit().heads == fitted.heads


def test_of_many_tasks_the_heads_that_are_near_nothing_new_stay(
    scene: Scene, fitted: Fitted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And nothing of theirs is fitted; what tells inputs of no task is of all. Of a task with more
    rows than are passed at theta0 no more take part."""
    for name, rows in (("MOST_ROWS", 20), ("LEAST_ROWS", 10), ("FROZEN_ROWS", 40)):
        monkeypatch.setattr(learner_heads, name, rows)
    monkeypatch.setattr(learner_heads, "rows_beside", lambda stay, new: dict.fromkeys(stay, 60))
    file = AtTheta0.file
    monkeypatch.setattr(AtTheta0, "file", lambda self, *of: tmp_path / file(self, *of).name)
    monkeypatch.setattr(learner_heads, "WHOLE", 1)
    monkeypatch.setattr(learner_heads, "near_count", lambda new: 0)
    stays, was = fitted.heads
    first, second = listed_tasks(scene.home.blobs(), scene.work().listed)
    tasks = (first.model_copy(update={"fitted": stays}), second)
    work = scene.work().model_copy(update={"listed": store_tasks(scene.home.blobs(), tasks)})
    found = scene.learner.work(work)
    assert isinstance(found, Fitted)
    stayed, new = found.heads
    assert stayed == stays
    assert (new.task, new.vector) == (was.task, was.vector)
    assert new.head != was.head
    for which in ("known", "unknown", "frozen_known", "frozen_unknown"):
        assert found.metrics[which] > fitted.metrics[which] - 0.2
    settings = scene.home.settings()
    assert settings is not None
    assert found.novelty
    novelty = Materials(scene.home, settings.base).novelty(found.novelty)
    assert novelty.sizes.keys() == {"", *(one.task for one in fitted.heads)}


def test_what_was_measured_is_measured_again_a_few_rows_at_a_time(
    scene: Scene, fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    turns: list[int] = []

    class Counted(Sums):
        def rows(self, task: str, items: Sequence[Item], first: int = 0) -> Moved:
            passed.append(len(items))
            turns.append(first)
            return super().rows(task, items, first)

    decoded: list[int] = []
    real = Materials.prepared

    def prepared(materials: Materials, raws: Sequence[bytes | str]) -> list[Item]:
        decoded.append(len(raws))
        return real(materials, raws)

    reads: list[BlobRef] = []
    rows_of = learner_heads.labelled_rows

    def read(blobs: Blobs, part: BlobRef) -> tuple[list[Raw], list[int]]:
        reads.append(part)
        return rows_of(blobs, part)

    monkeypatch.setattr(learner_heads, "labelled_rows", read)
    monkeypatch.setattr(Materials, "prepared", prepared)
    monkeypatch.setattr(learner_heads, "Sums", Counted)
    monkeypatch.setattr(learner_heads, "AGAIN", 6)
    again = scene.fit("later")
    assert len(set(turns)) == 1
    assert turns[0] > 0, "rows meet other sums than the rows of the turn before"
    assert passed == decoded == [3, 3, 3, 3]  # training and validation rows of two tasks
    assert reads == [part for task in scene.tasks for part in (task.train, task.validation)]
    assert again.metrics["unknown"] == pytest.approx(fitted.metrics["unknown"], abs=0.1)


def test_a_dual_pass_also_gives_rows_at_theta0(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So of the labelled rows only those under no sum have a pass at theta0."""
    shutil.rmtree(scene.home.path / "cache" / "heads", ignore_errors=True)
    monkeypatch.setattr(learner_heads, "rows_of_each", lambda tasks: 20)
    plain, real = list[int](), AtTheta0._plain

    def counted(at_theta0: AtTheta0, raws: Sequence[Raw]) -> Tensor:
        plain.append(len(raws))
        return real(at_theta0, raws)

    monkeypatch.setattr(AtTheta0, "_plain", counted)
    scene.fit("with few rows")
    parts = [part for task in scene.tasks for part in (task.train, task.validation)]
    assert plain[2:] == [part.rows - 20 for part in parts if part.rows > 20]


def test_rows_pass_in_the_precision_of_trainings(scene: Scene, tmp_path: Path) -> None:
    """On a GPU that is float32, whatever the home's. Rows at theta0 that no dual pass measures are
    float32, as those of questions are."""
    seen, plain = list[Tensor](), list[Tensor]()
    for precision, gpus in (("float32", 0), ("bfloat16", 0), ("bfloat16", 1)):
        home = Home(Path(shutil.copytree(scene.home.path, tmp_path / f"{precision} {gpus}")))
        shutil.rmtree(home.path / "cache" / "heads", ignore_errors=True)
        founded = scene.home.founded().model_dump(mode="json")
        home.settings_file.write_text(json.dumps({**founded, "precision": precision}))
        work = scene.work().model_copy(update={"gpus": gpus})
        learner_heads.fit(work, home, lambda *told: False)
        materials = Materials(home, scene.base)
        at_theta0 = AtTheta0(materials, home, "")
        file = at_theta0.file("moved", scene.tasks[0].name, scene.tasks[0].train)
        seen.append(torch.stack([row.moved_D for _, row in sorted(read(file).items())]))
        shard = home.founded().generic
        plain.append(at_theta0.generic(shard)[0])
    assert seen[1].dtype == torch.float32
    assert 1e-4 < (seen[0] - seen[1]).norm() / seen[0].norm() < 0.05
    assert torch.equal(seen[0], seen[2])
    assert all(torch.equal(plain[0], other) for other in plain[1:])


def test_rows_are_all_measured_again_once_a_task_has_left(
    scene: Scene, fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its vector did to them is of no model any more."""
    monkeypatch.setattr(learner_heads, "AGAIN", 0)
    shutil.rmtree(scene.home.path / "cache" / "heads")
    whole, passed, real = scene.work(), list[int](), Sums.rows
    left = listed_tasks(scene.home.blobs(), whole.listed)[:1]
    alone = whole.model_copy(update={"listed": store_tasks(scene.home.blobs(), left)})

    def rows_of(sums: Sums, task: str, items: Sequence[Item], *rest: int) -> Moved:
        passed.append(len(items))
        return real(sums, task, items, *rest)

    monkeypatch.setattr(Sums, "rows", rows_of)
    rows = [part.rows for task in scene.tasks for part in (task.train, task.validation)]
    for work, expected in ((whole, rows), (whole, []), (alone, rows[:2]), (alone, [])):
        passed.clear()
        scene.learner.work(work.model_copy(update={"run_id": f"fit {expected}"}))
        assert passed == expected


def test_when_heads_are_learned_no_originals_are_held(
    scene: Scene, fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers, real = weakref.WeakSet[AtTheta0](), learner_heads.AtTheta0
    held: list[int] = []

    def reader(*places: Any) -> AtTheta0:
        readers.add(found := real(*places))
        return found

    def learned(*_: object) -> Fitted:
        held.append(len(readers))
        return fitted

    monkeypatch.setattr(learner_heads, "AtTheta0", reader)
    monkeypatch.setattr(learner_heads, "learned", learned)
    scene.fit("later still")
    assert held == [0]


def test_a_fit_gives_way_between_two_tasks_and_passes_no_row_twice(
    scene: Scene, fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "SECONDS", 0.0)
    shutil.rmtree(scene.home.path / "cache" / "heads")
    passed: list[str] = []
    real = Sums.rows

    def rows_of(sums: Sums, task: str, *rest: object) -> Moved:
        passed.append(task)
        return real(sums, task, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Sums, "rows", rows_of)
    learner = Learner(str(scene.home.path), tiny.LeaseClient(gives_way_at=[1]))
    with pytest.raises(GivesWay):
        learner.work(scene.work())
    assert passed == ["task1", "task1"]
    found = learner.work(scene.work())
    assert passed == ["task1", "task1", "task2", "task2"]
    assert isinstance(found, Fitted)
    assert found.heads == fitted.heads  # nothing is measured again by a fit that goes on


def test_a_fit_gives_way_between_two_regressions(
    scene: Scene, fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows lie in the cache; what was learned of them is learned again."""
    monkeypatch.setattr(reports, "SECONDS", 0.0)
    weights = list[float]()
    real = probe.probe_head

    def counted(*given: Any, **named: Any) -> Head:
        weights.append(given[3])
        return real(*given, **named)

    monkeypatch.setattr(probe, "probe_head", counted)
    learner = Learner(str(scene.home.path), tiny.LeaseClient(gives_way_at=[5]))
    with pytest.raises(GivesWay):
        learner.work(scene.work())
    assert weights == [*probe.WEIGHT_DECAYS[:2]]
    assert scene.fit().heads == fitted.heads


def test_of_more_tasks_than_rows_some_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_heads, "AGAIN", 100)
    names = [f"task{number}" for number in range(400)]
    of_runs = [[again_of(name, 400, run) for name in names] for run in ("one", "other")]
    for drawn in of_runs:
        assert set(drawn) == {0, 1}
        assert 50 < sum(drawn) < 150
    assert of_runs[0] != of_runs[1]
    assert {again_of(name, 30, "one") for name in names[:30]} == {3, 4}


def test_rows_are_due_when_new_and_then_in_turn() -> None:
    nothing = torch.zeros(1)
    seen = {row: CachedRow(turn, nothing) for row, turn in ((1, 3), (2, 1), (3, 2), (9, 0))}
    assert due(seen, [0, 1, 2, 3], 2) == [0, 2, 3]
    assert due({}, [5, 6], 0) == [5, 6]
    assert due(seen, [1, 2], 0) == []


def test_what_cannot_be_kept_is_used_all_the_same(tmp_path: Path) -> None:
    """As on a full disk; or the folder is deleted for a purge meanwhile."""
    (tmp_path / "file").touch()
    write(tmp_path / "file" / "rows", {4: CachedRow(1, torch.zeros(3))}, Writer("run"))
    assert read(tmp_path / "file" / "rows") == {}
    assert written_by(tmp_path / "file" / "rows") == Writer()


def test_a_file_that_is_not_whole_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "rows"
    kept = {4: CachedRow(1, torch.zeros(3)), 2: CachedRow(7, torch.ones(3))}
    write(file, kept, Writer("run", frozenset({"news", "trec"})))
    found = read(file)
    assert written_by(file) == Writer("run", frozenset({"news", "trec"}))
    assert list(found) == [4, 2]
    assert torch.equal(found[2].moved_D, torch.ones(3))
    file.write_bytes(file.read_bytes()[:-5])
    assert read(file) == read(tmp_path / "none") == {}


def test_ordinary_vectors_have_no_heads_to_fit(scene: Scene) -> None:
    listed = store_tasks(scene.home.blobs(), ())
    found = scene.learner.work(scene.work().model_copy(update={"listed": listed}))
    assert found == Fitted(heads=(), metrics={})


def test_an_evaluation_judges_the_heads_that_answer_and_the_base_beside_them(
    scene: Scene, fitted: Fitted
) -> None:
    def evaluate(with_heads: bool) -> Evaluated:
        tasks = tuple(
            TaskData(
                name=task.name,
                classes=task.classes,
                head_blob=ref.head_blob,
                fitted_head=one.head if with_heads else None,
                frozen_head=one.frozen if with_heads else None,
                test=task.validation,  # as the fit judged them
                individual=ref,
            )
            for ref, task, one in zip(scene.refs, scene.tasks, fitted.heads, strict=True)
        )
        model = tiny.composition(*((1.0, ref) for ref in scene.refs))
        model = model.model_copy(update={"novelty": fitted.novelty if with_heads else None})
        given = {"run_id": "e", "base": scene.base, "composition": model, "attempt": 1}
        found = scene.learner.work(EvaluateWork(tasks=tasks, **given))
        assert isinstance(found, Evaluated)
        return found

    before, after = evaluate(False), evaluate(True)
    assert before.task_unknown == before.class_incremental == after.class_incremental
    assert before.frozen_known is before.frozen_unknown is before.none_auroc is None
    assert (after.none_auroc or 0) > 0.6  # generic samples
    assert after.frozen_known == pytest.approx(fitted.metrics["frozen_known"])
    assert after.frozen_unknown == pytest.approx(fitted.metrics["frozen_unknown"])
    assert after.task_unknown != before.task_unknown
    assert 0 <= (after.calibration_error or 0) < 0.5
    for name, row in after.per_task.items():
        assert row.zero_shot == before.per_task[name].zero_shot


def test_however_many_tasks_there_are_the_rows_of_all_are_bounded() -> None:
    assert [rows_of_each(tasks) for tasks in (1, 21, 32, 64, 1000)] == [3000, 3000, 2000, 1000, 64]
    assert all(tasks * rows_of_each(tasks) <= 64_000 for tasks in range(1, 1001))


def test_fewer_rows_at_theta0_are_some_of_those_that_are_kept(scene: Scene) -> None:
    settings, train = scene.home.settings(), scene.tasks[0].train
    assert settings is not None
    at_theta0 = AtTheta0(Materials(scene.home, settings.base), scene.home, owner="")
    whole, some = (at_theta0.rows(scene.tasks[0].name, train, most) for most in (4000, 7))
    assert (len(whole.labels_N), len(some.labels_N)) == (train.rows, 7)
    places = [
        next(place for place, row_D in enumerate(whole.features_ND) if torch.equal(row_D, some_D))
        for some_D in some.features_ND
    ]
    assert places == sorted(places)
    assert torch.equal(whole.labels_N[places], some.labels_N)


def test_few_rows_have_one_of_each_class(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing says how inputs of a class are told: no answer would ever be that class."""
    settings, work = scene.home.settings(), scene.work()
    assert settings is not None
    monkeypatch.setattr(learner_heads, "rows_of_each", lambda tasks: 4)
    materials = Materials(scene.home, settings.base)
    at_theta0 = AtTheta0(materials, scene.home, owner="somebody")
    tasks = listed_tasks(scene.home.blobs(), work.listed)
    names = [task.vector.task for task in tasks]
    seeing = RowsUnderSums(materials, materials.module, tasks, at_theta0, "few", names)
    for task in tasks:
        for rows in seeing.rows(task, task.train, seeing.most):
            assert sorted(rows.labels_N.tolist()) == [0, 1, 2, 3]


def test_of_a_home_of_texts_nonsense_is_of_no_task(tmp_path: Path) -> None:
    home = tiny.home(tmp_path / "home", f"hf:{bases.bert(tmp_path)}?size=32")
    settings, generic = home.settings(), ["some text", "other words", "a third"]
    assert settings is not None
    shard = store_shard(home.blobs(), generic, [False, False, True])
    materials = Materials(home, settings.base)
    learned_NE, judged_NE = AtTheta0(materials, home, owner="").generic(shard)
    assert (len(learned_NE), len(judged_NE)) == (2 + LEARNED, 1 + JUDGED)
    expected_NE = materials.plain(materials.prepared(with_nonsense(generic[:2], LEARNED)))
    assert torch.allclose(learned_NE, expected_NE)
