"""Heads fitted by a learner, on a base of random weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.domain.work import Evaluated, EvaluateWork, FitTask, Fitted, FitWork, TaskData
from cluster.learner.learner import Learner
from cluster.storage.home import Home
from tacl.heads.head import union
from tests.support import tiny


class Scene:
    """A home with two trained tasks and their fitted heads."""

    def __init__(self, path: Path) -> None:
        self.home = tiny.home(path)
        options = {"steps": 30, "learning_rate": 1e-3, "strength": 0.1, "engine": "plain"}
        self.tasks = [tiny.submission(self.home, n, noise=90, **options) for n in (1, 2)]
        self.learner = Learner(str(self.home.path), tiny.Teller(tiny.generic(self.home)))
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
        return FitWork(run_id="fit", base=self.base, tasks=tasks, attempt=1)

    def fit(self) -> Fitted:
        found = self.learner.work(self.work())
        assert isinstance(found, Fitted)
        return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def fitted(scene: Scene) -> Fitted:
    return scene.fit()


def heads(home: Home, fitted: Fitted, which: str) -> list:
    from cluster.learner.artifacts import Materials

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
    assert scene.fit().heads == fitted.heads


def test_ordinary_vectors_have_no_heads_to_fit(scene: Scene) -> None:
    found = scene.learner.work(scene.work().model_copy(update={"tasks": ()}))
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
        given = {"run_id": "e", "base": scene.base, "composition": model, "attempt": 1}
        found = scene.learner.work(EvaluateWork(tasks=tasks, **given))
        assert isinstance(found, Evaluated)
        return found

    before, after = evaluate(False), evaluate(True)
    assert before.task_unknown == before.class_incremental == after.class_incremental
    assert before.frozen_known is before.frozen_unknown is None
    assert after.frozen_known == pytest.approx(fitted.metrics["frozen_known"])
    assert after.frozen_unknown == pytest.approx(fitted.metrics["frozen_unknown"])
    assert after.task_unknown != before.task_unknown
    assert 0 <= (after.calibration_error or 0) < 0.5
    for name, row in after.per_task.items():
        assert row["zero_shot"] == before.per_task[name]["zero_shot"]
