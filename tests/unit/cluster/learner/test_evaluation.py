"""What a model is on test rows, by a learner without Ray, on a base of random weights."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from cluster.domain.base import BlobRef
from cluster.domain.compositions import Composition
from cluster.domain.tasks import VectorRef
from cluster.domain.work import Evaluated, EvaluateWork, TaskData
from cluster.learner import evaluation as learner_evaluation
from cluster.learner.artifacts import Materials
from cluster.learner.evaluation import evaluate as evaluate_here
from cluster.learner.learner import Learner
from cluster.storage.blobs import Blobs
from cluster.storage.samples import Raw
from tacl.backbone import Item
from tacl.compose.arithmetic import composed
from tacl.compose.materialized import materialized, materialized_features
from tacl.errors import MixedRegimes
from tacl.evaluation.metrics import accuracy
from tacl.heads.head import union
from tests.support import tiny
from tests.support.learned import Scene


def evaluation(scene: Scene, model: Composition) -> EvaluateWork:
    data = [
        TaskData(
            name=task.name,
            classes=task.classes,
            head_blob=ref.head_blob,
            test=task.test,
            individual=ref,
        )
        for task, ref in zip(scene.tasks, scene.refs, strict=True)
    ]
    base = tiny.train_work(scene.home, scene.tasks[0]).base
    return EvaluateWork(
        run_id="evaluate", base=base, composition=model, tasks=tuple(data), attempt=1
    )


def evaluate(scene: Scene, model: Composition) -> Evaluated:
    found = Learner(str(scene.home.path), tiny.LeaseClient()).work(evaluation(scene, model))
    assert isinstance(found, Evaluated)
    return found


def test_an_evaluation_tells_of_how_many_rows_it_has(scene: Scene) -> None:
    said: list[tuple[int, int, float | None]] = []
    work = evaluation(scene, tiny.composition((1.0, scene.refs[0])))

    def tell(done: int, rows: int, loss: float | None) -> bool:
        said.append((done, rows, loss))
        return True  # what a person waits for does not give way

    evaluate_here(work, scene.home, tell=tell)
    first, second = (task.test.rows for task in scene.tasks)
    assert said == [(0, first + second, None), (first, first + second, None)]


def direct(scene: Scene, terms: list[tuple[float, VectorRef]], test: BlobRef, head: str) -> float:
    """Accuracy by the dual forward of the sum."""
    materials = scene.materials
    module, data = materials.linearized(), materials.labelled(test)
    vectors = [materials.vector(ref) for _, ref in terms]
    module.load_tau(composed(vectors, [coefficient for coefficient, _ in terms]) if terms else {})
    with torch.no_grad():
        features_ND = module.linearized(materials.backbone.collate(data.items))
    return accuracy(materials.head(head).logits(features_ND), data.labels)


def test_evaluation_equals_the_dual_forward_of_the_sum(scene: Scene) -> None:
    one, two = scene.refs
    for terms in ([(1.0, one), (1.0, two)], [(1.0, two), (-0.5, one)]):
        found = evaluate(scene, tiny.composition(*terms))
        for task, ref in zip(scene.tasks, scene.refs, strict=True):
            row = found.per_task[task.name]
            assert row.zero_shot == direct(scene, [], task.test, ref.head_blob)
            assert row.individual == direct(scene, [(1.0, ref)], task.test, ref.head_blob)
            assert row.composed == direct(scene, terms, task.test, ref.head_blob)
            assert row.rows == 40
            report = found.by_class[task.name]
            assert sum(map(sum, report.confusion)) == 40
            right = sum(report.confusion[i][i] for i in range(len(report.classes)))
            assert right / 40 == pytest.approx(row.composed)
            assert report.classes == task.classes
        rows = [found.per_task[ref.task] for c, ref in terms if c > 0]
        added = [row.composed for row in rows]
        assert found.absolute == pytest.approx(sum(added) / len(added))
        ratios = [row.composed / (row.individual or 0) for row in rows]
        assert found.normalized == pytest.approx(sum(ratios) / len(ratios))
        assert found.class_incremental is not None
        assert 0 < found.class_incremental <= sum(added) / len(added)
        unknown = [row.unknown or 0 for row in rows]
        assert found.task_unknown == pytest.approx(sum(unknown) / len(unknown))
        assert all(0 < (row.unknown or 0) <= row.composed for row in rows)
        assert sum(row.unknown is not None for row in found.per_task.values()) == len(rows)
    assert evaluate(scene, tiny.composition((-1.0, one))).class_incremental is None


def test_of_many_classes_confusions_are_not_counted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for a moment: of 10,000 classes the numbers would take 800 MB."""
    monkeypatch.setattr(learner_evaluation, "CONFUSED", 1)
    monkeypatch.setattr(learner_evaluation, "confusion", lambda *_: pytest.fail("counted"))
    found = evaluate(scene, tiny.composition((1.0, scene.refs[0])))
    for report in found.by_class.values():
        assert report.confusion == ()
        assert len(report.accuracy) == len(report.f1) == len(report.classes)


def test_as_one_ordinary_model_it_is_asked_without_a_task_too(scene: Scene) -> None:
    """Which is what is exported: by the logits of all columns on its features."""
    model = tiny.composition(*((1.0, ref) for ref in scene.refs))
    assert evaluate(scene, model).materialized_unknown is None
    work = evaluation(scene, model).model_copy(update={"materialized": True})
    found = evaluate_here(work, scene.home, tell=lambda *told: False)
    materials, shares = scene.materials, list[float]()
    theta = materialized(materials.backbone.encoder, materials.tau(model))
    heads = [materials.head(ref.head_blob) for ref in scene.refs]
    first = 0
    for task, head in zip(scene.tasks, heads, strict=True):
        test = materials.labelled(task.test)
        features_ND = materialized_features(materials.backbone, theta, test.items, 64)
        named = accuracy(head.logits(features_ND), test.labels)
        assert found.per_task[task.name].materialized == named
        shares.append(accuracy(union(heads).logits(features_ND), test.labels + first))
        first += len(head.classes)
    assert found.materialized_unknown == pytest.approx(sum(shares) / len(shares))


def test_a_model_of_vectors_seen_before_needs_no_encoder(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = scene.refs
    evaluate(scene, tiny.composition((1.0, one)))
    evaluate(scene, tiny.composition((1.0, two)))

    def never(self: Materials, *_: object) -> None:
        raise AssertionError("an encoder pass, or an input for one")

    monkeypatch.setattr(Materials, "module", property(never))
    for needed in ("features", "prepared"):
        monkeypatch.setattr(Materials, needed, never)
    found = evaluate(scene, tiny.composition((0.25, one), (-1.0, two)))
    monkeypatch.undo()
    terms = [(0.25, one), (-1.0, two)]
    for task, ref in zip(scene.tasks, scene.refs, strict=True):
        assert found.per_task[task.name].composed == direct(scene, terms, task.test, ref.head_blob)


def test_while_a_pass_is_made_no_originals_are_held(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(scene.home.path / "cache" / "tangents", ignore_errors=True)
    read: list[list[Raw]] = []
    held: list[int] = []
    rows_of, plain = learner_evaluation.labelled_rows, Materials.plain

    def rows(blobs: Blobs, part: BlobRef) -> tuple[list[Raw], list[int]]:
        read.append((found := rows_of(blobs, part))[0])
        return found

    def passed(materials: Materials, items: Sequence[Item]) -> Tensor:
        held.append(len(read[-1]))
        return plain(materials, items)

    monkeypatch.setattr(learner_evaluation, "labelled_rows", rows)
    monkeypatch.setattr(Materials, "plain", passed)
    evaluate(scene, tiny.composition((1.0, scene.refs[0])))
    assert held == [0, 0]


def test_what_was_not_kept_whole_is_computed_again(scene: Scene) -> None:
    model = tiny.composition(*((1.0, ref) for ref in scene.refs))
    before = evaluate(scene, model)
    kept = [path for path in (scene.home.path / "cache" / "tangents").rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(b"")
    assert evaluate(scene, model).per_task == before.per_task


def test_a_vector_left_out_is_the_model_composed_without_it(scene: Scene) -> None:
    """Also one whose coefficients are of blocks."""
    one, two = scene.refs
    blocks = list(scene.materials.vector(two).to_params())
    sums = tiny.composition((1.0, one), (0.5, two))
    learned = sums.terms[1].model_copy(update={"by_block": dict.fromkeys(blocks[::2], 0.7)})
    by_block = sums.model_copy(update={"digest": "learned", "terms": (sums.terms[0], learned)})
    for model in (sums, by_block):
        work = evaluation(scene, model).model_copy(update={"without": True})
        found = Learner(str(scene.home.path), tiny.LeaseClient()).work(work)
        assert isinstance(found, Evaluated)
        assert len(found.without) == 2
        for place, row in enumerate(found.without.values()):
            rest = model.terms[1 - place]
            left = model.model_copy(update={"digest": f"rest {place}", "terms": (rest,)})
            expected = evaluate(scene, left)
            assert row == {t: one.composed for t, one in expected.per_task.items()}
            assert expected.without == {}


def test_ordinary_vectors_are_not_evaluated_as_linearized_ones(scene: Scene) -> None:
    ordinary = scene.refs[0].model_copy(update={"regime": "ordinary"})
    with pytest.raises(MixedRegimes, match="task1@v1: ordinary vectors"):
        evaluate(scene, tiny.composition((1.0, ordinary)))
