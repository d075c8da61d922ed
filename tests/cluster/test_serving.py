"""Answers of a predictor: those of the dual forward of the user's composition."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cluster.home import Home
from cluster.learner import Learner
from cluster.materials import Materials
from cluster.messages import Trained, VectorRef
from cluster.serving import COMPOSED_KEPT, Predictor
from tacl.compose.arithmetic import composed
from tacl.errors import BadSample, ClusterNotRunning, ModalityMismatch, UnknownTask
from tests import tiny


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, list[VectorRef], Predictor]:
    home = tiny.home(tmp_path_factory.mktemp("home"))
    refs = []
    for number in (1, 2):
        task = tiny.submission(home, number, steps=5, learning_rate=1e-3, engine="plain")
        learner = Learner(str(home.path), tiny.Teller(tiny.generic(home)))
        trained = learner.work(tiny.train_work(home, task))
        assert isinstance(trained, Trained)
        refs.append(tiny.published(task, trained))
    return home, refs, Predictor(str(home.path))


def test_answers_are_those_of_the_composed_vector(scene) -> None:
    home, (one, two), predictor = scene
    inputs, _ = tiny.pictures(3, task=1)
    answers = predictor.predict(tiny.composition((1.0, one), (-0.5, two)), inputs)
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


def test_users_of_one_predictor_have_their_own_models(scene) -> None:
    _, (one, two), predictor = scene
    inputs, _ = tiny.pictures(2, task=1)
    models = [tiny.composition((1.0, one)), tiny.composition((1.0, one), (1.0, two))]
    first, second = (predictor.predict(model, inputs) for model in models)
    assert first[0].keys() == {"task1"}
    assert second[0].keys() == {"task1", "task2"}
    assert first[0]["task1"] != second[0]["task1"]
    assert predictor.predict(models[0], inputs) == first  # after another model was asked


def test_many_models_do_not_pile_up(scene) -> None:
    _, (one, two), predictor = scene
    inputs, _ = tiny.pictures(1, task=1)
    for coefficient in range(2 * COMPOSED_KEPT):
        predictor.predict(tiny.composition((1.0, one), (coefficient / 10 + 0.1, two)), inputs)
    assert len(predictor._composed) == COMPOSED_KEPT


def test_one_task_of_the_composition_can_be_asked(scene) -> None:
    _, (one, two), predictor = scene
    inputs, _ = tiny.pictures(1, task=1)
    model = tiny.composition((1.0, one), (1.0, two))
    assert predictor.predict(model, inputs, ["task2"])[0].keys() == {"task2"}
    with pytest.raises(UnknownTask, match="task9 was asked for; alice's model has task1, task2"):
        predictor.predict(model, inputs, ["task9"])


def test_bad_inputs_are_refused(scene) -> None:
    _, (one, _), predictor = scene
    model = tiny.composition((1.0, one))
    with pytest.raises(BadSample):
        predictor.predict(model, [b"no picture"])
    with pytest.raises(ModalityMismatch):
        predictor.predict(model, ["a text"])
    assert predictor.predict(model, []) == []


def test_a_folder_that_is_no_home_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotRunning, match="tacl up"):
        Predictor(str(tmp_path))
