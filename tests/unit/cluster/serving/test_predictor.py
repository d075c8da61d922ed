"""Answers of a predictor: those of the dual forward of the user's composition."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cluster.api.service import Answered, Question
from cluster.domain.base import Message
from cluster.domain.compositions import Composition, Fitted
from cluster.domain.operations import best
from cluster.domain.tasks import VectorRef
from cluster.domain.work import Evaluated, EvaluateWork, FitTask, FitWork, TaskData, Trained
from cluster.learner.artifacts import Materials
from cluster.learner.learner import Learner
from cluster.serving import cache
from cluster.serving.predictor import FOR_COMPOSED, Predictor
from cluster.storage.home import Home
from cluster.storage.listed import store_tasks
from cluster.storage.samples import labelled_rows
from tacl.compose.arithmetic import composed
from tacl.errors import BadRecipe, BadSample, ClusterNotRunning, ModalityMismatch, UnknownTask
from tests.support import tiny


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, list[VectorRef], Predictor]:
    home = tiny.home(tmp_path_factory.mktemp("home"))
    refs = []
    for number in (1, 2):
        task = tiny.submission(home, number, steps=5, learning_rate=1e-3, engine="plain")
        learner = Learner(str(home.path), tiny.LeaseClient(tiny.generic(home)))
        trained = learner.work(tiny.train_work(home, task))
        assert isinstance(trained, Trained)
        refs.append(tiny.published(task, trained))
    return home, refs, Predictor(str(home.path))


def test_answers_are_those_of_the_composed_vector(scene) -> None:
    home, (one, two), predictor = scene
    inputs, _ = tiny.pictures(3, task=1)
    model = tiny.composition((1.0, one), (-0.5, two))
    answers = predictor.ask(Question(model, inputs, ["task1", "task2"])).answers
    materials = Materials(home, home.settings().base)
    module = materials.linearized()
    module.load_tau(composed([materials.vector(one), materials.vector(two)], [1.0, -0.5]))
    with torch.no_grad():
        items = [materials.backbone.prepare(raw) for raw in inputs]
        features_ND = module.linearized(materials.backbone.collate(items))
    for ref in (one, two):
        head = materials.head(ref.head_blob)
        expected_NC = head.logits(features_ND).softmax(-1)
        for row, answer in enumerate(answers):
            ranked = answer[ref.task]
            assert [share for _, share in ranked] == sorted(
                (share for _, share in ranked), reverse=True
            )
            for name, share in ranked:
                expected = expected_NC[row, head.classes.index(name)].item()
                assert share == pytest.approx(expected, abs=1e-5)


def test_features_are_those_of_the_composed_vector(scene) -> None:
    """Also of a model that adds no task, and beside a question that wants classes."""
    home, (one, two), predictor = scene
    inputs, _ = tiny.pictures(3, task=1)
    models = [tiny.composition((1.0, one), (0.5, two)), tiny.composition((-1.0, one))]
    wanted = [Question(model, inputs, features=True) for model in models]
    *found, beside = predictor.answer([*wanted, Question(models[0], inputs)])
    materials = Materials(home, home.settings().base)
    vectors, module = [materials.vector(one), materials.vector(two)], materials.linearized()
    batch = materials.backbone.collate([materials.backbone.prepare(raw) for raw in inputs])
    for answered, coefficients in zip(found, ([1.0, 0.5], [-1.0, 0.0]), strict=True):
        module.load_tau(composed(vectors, coefficients))
        with torch.no_grad():
            expected_ND = module.linearized(batch)
        assert isinstance(answered, Answered)
        torch.testing.assert_close(torch.tensor(answered.features), expected_ND)
    assert isinstance(beside, Answered)
    assert (len(beside.answers), beside.features) == (3, None)


def test_users_of_one_predictor_have_their_own_models(scene) -> None:
    _, (one, two), predictor = scene
    inputs, _ = tiny.pictures(2, task=1)
    models = [tiny.composition((1.0, one)), tiny.composition((1.0, one), (1.0, two))]
    first, second = (predictor.ask(Question(model, inputs)).answers for model in models)
    assert first[0].keys() == {"task1"}
    assert second[0].keys() == {"task1", "task2"}
    assert first[0]["task1"] != second[0]["task1"]
    assert (
        predictor.ask(Question(models[0], inputs)).answers == first
    )  # after another model was asked


def test_questions_of_many_users_are_answered_together(scene) -> None:
    """Also beside one that is wrong, models that are asked often, and the plain base."""
    _, (one, two), predictor = scene
    inputs, _ = tiny.pictures(3, task=1)
    models = [
        tiny.composition((1.0, one)),
        tiny.composition((1.0, one), (c := -0.5, two)),
        tiny.composition((0.3, two)),
        tiny.composition((1.0, one)),
    ]
    questions = [Question(model, inputs[: 1 + n % 3]) for n, model in enumerate(models)]
    questions.insert(2, Question(models[0], [b"no picture"]))
    questions.append(Question(models[1], inputs, ["task2"]))
    questions.append(Question(tiny.composition((c, one)), inputs, ["task1"], beside_base=True))
    alone = [found for q in questions for found in Predictor.answer(predictor, [q])]
    for _ in range(2):
        together = predictor.answer(questions)
        assert isinstance(together[2], BadSample)
        for mine, own in zip(together, alone, strict=True):
            if isinstance(mine, Answered):
                assert isinstance(own, Answered)
                _require_close(mine.answers, own.answers)
                _require_close(mine.base or [], own.base or [])
    last = together[-1]
    assert isinstance(last, Answered)
    assert last.base is not None
    assert last.base != last.answers


def test_a_model_that_is_asked_often_answers_the_same(scene) -> None:
    home, (one, two), patient = scene
    size = sum(v.numel() * 4 for v in patient._materials.vector(one).to_params().values())
    predictor = Predictor(home.where, most=FOR_COMPOSED * size)  # room for one
    inputs, _ = tiny.pictures(1, task=1)
    first, second = tiny.composition((1.0, one)), tiny.composition((0.5, one), (0.5, two))
    expected = {m.digest: patient.ask(Question(m, inputs)).answers for m in (first, second)}
    batches = [[first] * cache.OFTEN, [second] * (2 * cache.OFTEN + 2), [first, second], [second]]
    for batch in batches:
        for model, found in zip(
            batch, predictor.answer([Question(m, inputs) for m in batch]), strict=True
        ):
            assert isinstance(found, Answered)
            _require_close(found.answers, expected[model.digest])
        assert len(predictor._composed.kept) == 1


def test_answers_are_the_same_whatever_was_forgotten(scene) -> None:
    """With room for nothing, for one vector, and for all: also in a batch that needs more."""
    home, (one, two), patient = scene
    inputs, _ = tiny.pictures(2, task=1)
    models = [
        tiny.composition((1.0, one)),
        tiny.composition((-0.5, two), (1.0, one)),
        tiny.composition((1.0, two)),
    ]
    batches = [[models[0]], [models[2]], models, [models[1]], [models[0]], [models[0]]]
    expected = {
        model.digest: patient.ask(Question(model, inputs, ["task1"])).answers
        for model in models[:2]
    }
    expected[models[2].digest] = patient.ask(Question(models[2], inputs, ["task2"])).answers
    size = sum(v.numel() * 4 for v in patient._materials.vector(one).to_params().values())
    misses = []
    for most in (0, 2 * size, 4 * size):
        predictor = Predictor(home.where, most=most)
        for batch in batches:
            named = [["task2"] if model is models[2] else ["task1"] for model in batch]
            asked = [Question(m, inputs, task) for m, task in zip(batch, named, strict=True)]
            for model, found in zip(batch, predictor.answer(asked), strict=True):
                assert isinstance(found, Answered)
                _require_close(found.answers, expected[model.digest])
            assert not predictor._taus  # of the batch alone
            assert predictor.kept().bytes <= most
        misses.append(predictor.kept().misses)
    kept = predictor.kept()
    assert kept.vectors == 2
    assert kept.bytes > 2 * size  # heads too
    assert misses[0] > misses[1] > misses[2] == 4  # each vector and each head once
    assert misses[2] + kept.hits == misses[0]


def _require_close(found: list, expected: list) -> None:
    for one, other in zip(found, expected, strict=True):
        for task in other:
            shares = dict(other[task])
            assert {name: pytest.approx(p, abs=1e-5) for name, p in one[task]} == shares


def test_the_base_beside_is_the_base(scene) -> None:
    home, (one, _), predictor = scene
    inputs, _ = tiny.pictures(2, task=1)
    (found,) = predictor.answer([Question(tiny.composition((1.0, one)), inputs, beside_base=True)])
    materials = Materials(home, home.settings().base)
    features_ND = materials.features([materials.backbone.prepare(raw) for raw in inputs])
    head = materials.head(one.head_blob)
    expected_NC = head.logits(features_ND).softmax(-1)
    for row, ranked in enumerate(found.base):
        for name, share in ranked["task1"]:
            where = head.classes.index(name)
            assert share == pytest.approx(expected_NC[row, where].item(), abs=1e-5)


def test_without_a_task_the_classes_of_all_compete(scene) -> None:
    """In a pass with questions that name one, and with the base alone beside."""
    _, (one, two), predictor = scene
    inputs, _ = tiny.pictures(3, task=1)
    model = tiny.composition((1.0, one), (1.0, two))
    unnamed = Question(model, inputs, beside_base=True)
    named = [Question(model, inputs, [task], beside_base=True) for task in ("task1", "task2")]
    joint, *within = predictor.answer([unnamed, *named])
    for part in ("answers", "base"):
        rows = zip(getattr(joint, part), *(getattr(one, part) for one in within), strict=True)
        for everywhere, *alone in rows:
            weights = {task: sum(share for _, share in everywhere[task]) for task in everywhere}
            assert sum(weights.values()) == pytest.approx(1)
            for task, ranked in (alone[0] | alone[1]).items():
                expected = {name: pytest.approx(weights[task] * p, rel=1e-3) for name, p in ranked}
                assert dict(everywhere[task]) == expected


def test_answers_without_a_task_are_right_as_often_as_evaluation_says(scene) -> None:
    home, (one, two), predictor = scene
    model = tiny.composition((1.0, one), (0.5, two))
    tasks = [tiny.submission(home, number) for number in (1, 2)]
    data = tuple(
        TaskData(individual=ref, head_blob=ref.head_blob, **_fields(task, "name classes test"))
        for task, ref in zip(tasks, (one, two), strict=True)
    )
    base = tiny.train_work(home, tasks[0]).base
    work = EvaluateWork(run_id="evaluate", base=base, composition=model, tasks=data, attempt=1)
    shares = []
    for task in tasks:
        inputs, labels = labelled_rows(home.blobs(), task.test)
        found = [
            (first.task, first.label)
            for first in best(predictor.ask(Question(model, inputs)).answers, None)
        ]
        expected = [(task.name, task.classes[label]) for label in labels]
        shares.append(sum(map(operator.eq, found, expected)) / len(labels))
    measured = Learner(str(home.path), tiny.LeaseClient()).work(work)
    assert isinstance(measured, Evaluated)
    assert measured.class_incremental == pytest.approx(sum(shares) / 2)


def test_fitted_heads_see_rows_before_and_after_the_vectors(scene) -> None:
    home, refs, predictor = scene
    tasks = [tiny.submission(home, number) for number in (1, 2)]
    base = tiny.train_work(home, tasks[0]).base
    asked = tuple(
        FitTask(vector=ref, train=task.train, validation=task.validation)
        for task, ref in zip(tasks, refs, strict=True)
    )
    learner, listed = Learner(str(home.path), tiny.LeaseClient()), store_tasks(home.blobs(), asked)
    fitted = learner.work(FitWork(run_id="f", base=base, owner="", listed=listed, attempt=1))
    assert isinstance(fitted, Fitted)
    named = [
        ref.model_copy(update={"head_blob": one.head})
        for ref, one in zip(refs, fitted.heads, strict=True)
    ]
    model = tiny.composition((1.0, named[0]), (1.0, named[1]))
    model = model.model_copy(update={"novelty": fitted.novelty})
    data = tuple(
        TaskData(
            individual=ref,
            head_blob=ref.head_blob,
            fitted_head=one.head,
            **_fields(task, "name classes test"),
        )
        for task, ref, one in zip(tasks, refs, fitted.heads, strict=True)
    )
    work = {"run_id": "e", "base": base, "composition": model, "tasks": data, "attempt": 1}
    measured = learner.work(EvaluateWork(materialized=True, **work))
    assert isinstance(measured, Evaluated)
    unknown, known, moved = [], {}, {}
    for task in tasks:
        inputs, labels = labelled_rows(home.blobs(), task.test)
        expected = [task.classes[label] for label in labels]

        def right(found: Sequence[object], expected=expected, task=task) -> float:
            pairs = [(task.name, name) for name in expected]
            return sum(map(operator.eq, found, pairs)) / len(pairs)

        def named_best(ranked, task=task):
            return [(task.name, one[task.name][0][0]) for one in ranked]

        joint = [
            (one.task, one.label)
            for one in best(predictor.ask(Question(model, inputs)).answers, None)
        ]
        unknown.append(right(joint))
        known[task.name] = right(
            named_best(predictor.ask(Question(model, inputs, [task.name])).answers)
        )
        question = Question(model, inputs, [task.name], way="materialized")
        (one_encoder,) = predictor.answer([question])
        assert isinstance(one_encoder, Answered)
        moved[task.name] = right(named_best(one_encoder.answers))
    assert measured.task_unknown == pytest.approx(sum(unknown) / 2)
    for name, row in measured.per_task.items():
        assert row.composed == pytest.approx(known[name])
        assert row.materialized == pytest.approx(moved[name])
    told_apart(home, predictor, model, tasks)


def told_apart(home: Home, predictor: Predictor, model: Composition, tasks) -> None:
    """Inputs of none of the model's tasks are said to be that, most of its own are not."""
    own = [raw for task in tasks for raw in labelled_rows(home.blobs(), task.test)[0]]
    one = model.model_copy(update={"terms": model.terms[:1]})
    others, _ = labelled_rows(home.blobs(), tasks[1].test)
    mine, _ = labelled_rows(home.blobs(), tasks[0].test)

    def share_of_none(asked: Composition, inputs: Sequence[bytes | str]) -> float:
        found = predictor.ask(Question(asked, inputs)).belonging
        assert len(found) == len(inputs)
        return sum(belonging.none for belonging in found) / len(found)

    assert share_of_none(model, own) < 0.25
    assert share_of_none(one, others) > share_of_none(one, mine) + 0.2
    assert predictor.ask(Question(model, own[:2], [tasks[0].name])).belonging == []
    before = model.model_copy(update={"novelty": None})
    assert predictor.ask(Question(before, own[:2])).belonging == []


@pytest.mark.parametrize("mixed", [True, False])
def test_an_explanation_adds_up_to_the_answer(scene, mixed: bool) -> None:
    """Beside questions of others, also where rows of several vectors cannot share a pass; what is
    answered without a vector is what the model composed without it answers."""
    home, (one, two), _ = scene
    predictor = Predictor(str(home.path))
    if not mixed:
        predictor._module = predictor._materials.linearized()
    inputs, _ = tiny.pictures(3, task=1)
    model, rest = tiny.composition((1.0, one), (0.5, two)), tiny.composition((0.5, two))
    questions = [Question(rest, inputs), Question(model, inputs, explain=True)]
    other, found = predictor.answer(questions)
    assert isinstance(found, Answered)
    assert isinstance(other, Answered)
    assert len(found.explanations) == 3
    expected = predictor.ask(Question(model, inputs)).answers
    alone = predictor.ask(Question(rest, inputs, ["task2"])).answers
    within = predictor.ask(Question(model, inputs, ["task2"], explain=True)).explanations
    for row, explained in enumerate(found.explanations):
        assert [part.part for part in explained.parts] == [
            *("base model", "+task1@v1", "+0.5*task2@v1")
        ]
        (likeliest,) = best([expected[row]], None)
        assert explained.best == likeliest.model_copy(
            update={"probability": pytest.approx(likeliest.probability, abs=1e-5)}
        )
        assert sum(part.share for part in explained.parts) == pytest.approx(1, abs=1e-5)
        for task, logits in explained.logits.items():
            for name, logit in logits.items():
                adds = sum(part.logits[task][name] for part in explained.parts)
                assert adds == pytest.approx(logit, abs=1e-4)
        without = within[row].parts[1].without
        assert without is not None
        name, share = alone[row]["task2"][0]
        assert (without.label, without.probability) == (name, pytest.approx(share, abs=1e-5))
    assert found.explanations == predictor.ask(Question(model, inputs, explain=True)).explanations


def _fields(message: Message, names: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names.split()}


def test_what_is_subtracted_is_no_answer_unless_it_is_named(scene) -> None:
    _, (one, two), predictor = scene
    inputs, _ = tiny.pictures(2, task=1)
    model = tiny.composition((1.0, one), (-0.5, two))
    assert (
        predictor.ask(Question(model, inputs)).answers
        == predictor.ask(Question(model, inputs, ["task1"])).answers
    )
    assert predictor.ask(Question(model, inputs, ["task2"])).answers[0].keys() == {"task2"}
    with pytest.raises(BadRecipe, match="adds no task.*ask for one by its name: task1, task2"):
        predictor.ask(Question(tiny.composition((-1.0, one), (-0.5, two)), inputs))


def test_materialized_is_the_plain_forward_of_the_sum(scene) -> None:
    home, (one, _), predictor = scene
    inputs, _ = tiny.pictures(2, task=1)
    (found,) = predictor.answer(
        [Question(tiny.composition((2.0, one)), inputs, way="materialized")]
    )
    materials = Materials(home, home.settings().base)
    encoder, tau = materials.backbone.encoder, materials.vector(one).to_params()
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            value.add_(tau.get(name, torch.zeros(())), alpha=2.0)
    items = [materials.backbone.prepare(raw) for raw in inputs]
    head = materials.head(one.head_blob)
    expected_NC = head.logits(materials.features(items)).softmax(-1)
    for row, answer in enumerate(found.answers):
        for name, share in answer["task1"]:
            where = head.classes.index(name)
            assert share == pytest.approx(expected_NC[row, where].item(), abs=1e-5)


def test_one_task_of_the_composition_can_be_asked(scene) -> None:
    _, (one, two), predictor = scene
    inputs, _ = tiny.pictures(1, task=1)
    model = tiny.composition((1.0, one), (1.0, two))
    assert predictor.ask(Question(model, inputs, ["task2"])).answers[0].keys() == {"task2"}
    with pytest.raises(UnknownTask, match="no task of alice's model is named task9 .*task1, task2"):
        predictor.ask(Question(model, inputs, ["task9"]))


def test_bad_inputs_are_refused(scene) -> None:
    _, (one, _), predictor = scene
    model = tiny.composition((1.0, one))
    with pytest.raises(BadSample):
        predictor.ask(Question(model, [b"no picture"]))
    with pytest.raises(ModalityMismatch):
        predictor.ask(Question(model, ["a text"]))
    assert predictor.ask(Question(model, [])).answers == []


def test_a_folder_that_is_no_home_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotRunning, match="tacl up"):
        Predictor(str(tmp_path))


def test_a_predictor_with_a_gpu_keeps_its_vectors_there(
    scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, (one, two), _ = scene
    monkeypatch.setattr("cluster.serving.predictor.mixes", lambda backbone: True)
    predictor = Predictor(str(home.path), device="meta")
    model = tiny.composition((1.0, one), (-0.5, two))
    question = Question(model, tiny.pictures(3, task=1)[0], ["task1"])
    opened: Any = predictor._opened(question, predictor.decode(question))
    taus = predictor._taus.values()
    assert {value.device.type for tau in taus for value in tau.values()} == {"meta"}
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        batch: Any = predictor._backbone.collate(opened.items)
        assert batch.device.type == "meta"
        plain, moved = predictor._parts(batch, [(opened, item) for item in opened.items])
        (materialized, *_) = predictor._materialized(opened)
    assert {x.device.type for x in (plain, moved, materialized)} == {"cpu"}
    assert plain.dtype == moved.dtype == torch.float32
