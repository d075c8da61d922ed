"""What a learner makes of vectors, and that a predictor answers with just that."""

from __future__ import annotations

import pytest
import torch

from cluster.api.service import Question
from cluster.composing import compose
from cluster.home import Home
from cluster.learner import Learner
from cluster.materials import Materials
from cluster.messages import (
    Composed,
    ComposeWork,
    Composition,
    Making,
    Method,
    RecipeTerm,
    Submission,
    TaskRows,
    Trained,
    VectorRef,
)
from cluster.methods import model_of
from cluster.serving import Predictor
from tacl.compose.elementwise import ties
from tacl.compose.spectral import iso_c, tsv_m
from tests import tiny

Trees = tuple[Home, list[Submission], list[VectorRef]]
COEFFICIENTS = (1.0, -0.5)
CLASSES = ("elm", "fir", "gum", "hop")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """Two tasks with vectors of a few steps."""
    home = tiny.home(tmp_path_factory.mktemp("home"))
    tasks = [
        tiny.submission(home, number, steps=20, learning_rate=1e-3, engine="plain")
        for number in (1, 2)
    ]
    refs = []
    for task in tasks:
        learner = Learner(str(home.path), tiny.Teller(tiny.generic(home)))
        trained = learner.work(tiny.train_work(home, task))
        assert isinstance(trained, Trained)
        refs.append(tiny.published(task, trained))
    return home, tasks, refs


def work_of(
    trees: Trees, method: Method, coefficients: tuple[float, ...] = (1.0, 1.0), **making: object
) -> ComposeWork:
    home, tasks, refs = trees
    settings = home.settings()
    assert settings is not None
    return ComposeWork(
        run_id=method,
        base=settings.base,
        user="alice",
        terms=tuple(
            RecipeTerm(coefficient=c, vector=ref) for c, ref in zip(coefficients, refs, strict=True)
        ),
        making=Making(method=method, **making),  # type: ignore[arg-type]
        tasks=tuple(
            TaskRows(name=task.name, head_blob=ref.head_blob, validation=task.validation)
            for task, ref in zip(tasks, refs, strict=True)
        ),
        probes=tuple(tiny.shard_of(task, n) for n, task in enumerate(tasks, 1)),
        attempt=1,
    )


def made(trees: Trees, *arguments: object, **making: object) -> tuple[Composed, Composition]:
    work = work_of(trees, *arguments, **making)  # type: ignore[arg-type]
    found = compose(work, trees[0])
    return found, model_of(work, found)


def answers_are_those_of(trees: Trees, model: Composition, tau: dict, task: str) -> None:
    """The predictor's, and those of tau in the tangent."""
    home, _, refs = trees
    inputs, _ = tiny.pictures(3, task=1)
    materials = Materials(home, home.settings().base)  # type: ignore[union-attr]
    module = materials.linearized()
    module.load_tau(tau)
    blobs = {ref.task: ref.head_blob for ref in refs}
    head = materials.head(model.target.head_blob if model.target else blobs[task])
    with torch.no_grad():
        items = [materials.backbone.prepare(raw) for raw in inputs]
        expected_NC = head.logits(module.linearized(materials.backbone.collate(items))).softmax(-1)
    predictor = Predictor(str(home.path))
    plain = tiny.composition((1.0, refs[0]))
    for beside in ([], [Question(plain, inputs)]):
        found = predictor.answer([*beside, Question(model, inputs)])[-1]
        for row, answer in enumerate(found.answers):  # type: ignore[union-attr]
            for name, share in answer[task]:
                expected = expected_NC[row, head.classes.index(name)].item()
                assert share == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("method", "merge"), [("ties", ties), ("tsv", tsv_m), ("iso", iso_c)])
def test_a_merge_is_one_tau_which_is_asked(trees: Trees, method: Method, merge) -> None:
    home, _, refs = trees
    found, model = made(trees, method, COEFFICIENTS)
    assert found.merged is not None
    materials = Materials(home, home.settings().base)  # type: ignore[union-attr]
    expected = merge([materials.vector(ref) for ref in refs], COEFFICIENTS)
    tau = materials.tau(model)
    assert tau.keys() == expected.keys()
    assert all(torch.equal(tau[name], expected[name]) for name in tau)
    answers_are_those_of(trees, model, expected, "task1")
    assert [term.coefficient for term in model.terms] == list(COEFFICIENTS)
    report = found.report.accuracies["task1"]
    assert report.keys() == {"zero_shot", "before", "after", "rows"}
    again, _ = made(trees, method, COEFFICIENTS)
    assert again.merged == found.merged
    other, _ = made(trees, method, (1.0, 1.0))  # signs and coefficients count
    assert other.merged != found.merged
