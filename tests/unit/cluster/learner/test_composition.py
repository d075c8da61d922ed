"""What a learner makes of vectors, and that a predictor answers with just that."""

from __future__ import annotations

import weakref
from typing import NoReturn

import pytest
import torch
from torch import Tensor

from cluster.api.service import Question
from cluster.domain.base import BlobRef
from cluster.domain.compositions import (
    Adapt,
    Composition,
    CompositionMethod,
    Fit,
    Method,
    RecipeTerm,
)
from cluster.domain.methods import TARGET, model_of
from cluster.domain.tasks import Submission, VectorRef
from cluster.domain.work import Composed, ComposeWork, EvaluateWork, TaskData, TaskRows, Trained
from cluster.learner.artifacts import Materials
from cluster.learner.composition import heads as composition_heads
from cluster.learner.composition.assess import measured_again
from cluster.learner.composition.inputs import Ingredients
from cluster.learner.composition.run import compose
from cluster.learner.evaluation import evaluate
from cluster.learner.heads import HeadRows
from cluster.learner.learner import Learner
from cluster.serving.predictor import Predictor
from cluster.storage import samples
from cluster.storage.home import Home
from tacl.compose import learning
from tacl.compose.merges import iso_c, ties, tsv_m
from tacl.evaluation.metrics import accuracy
from tacl.evaluation.tangents import cached_tangents
from tacl.vectors import Params, TaskVector
from tests.support import tiny

pytestmark = pytest.mark.train

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
        learner = Learner(str(home.path), tiny.LeaseClient(tiny.generic(home)))
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
        making=CompositionMethod(method=method, **making),  # type: ignore[arg-type]
        tasks=tuple(
            TaskRows(name=task.name, head_blob=ref.head_blob, validation=task.validation)
            for task, ref in zip(tasks, refs, strict=True)
        ),
        probes=tuple(tiny.shard_of(task, n) for n, task in enumerate(tasks, 1)),
        attempt=1,
    )


def untold(step: int, steps: int, loss: float | None) -> bool:
    return False


def made(trees: Trees, *arguments: object, **making: object) -> tuple[Composed, Composition]:
    """Whoever learns tells of every step; unlearning may end before the last one."""
    work, told = work_of(trees, *arguments, **making), []  # type: ignore[arg-type]

    def tell(step: int, steps: int, loss: float | None) -> bool:
        told.append((step, steps))
        return False

    found = compose(work, trees[0], tell)
    count = int(found.report.figures.get("steps", 0))
    assert [step for step, _ in told] == [*range(1, count + 1)]
    assert all(steps >= count for _, steps in told)
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
        found = predictor.answer([*beside, Question(model, inputs, [task])])[-1]
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
    assert found.report.accuracies["task1"].rows
    again, _ = made(trees, method, COEFFICIENTS)
    assert again.merged == found.merged
    other, _ = made(trees, method, (1.0, 1.0))  # signs and coefficients count
    assert other.merged != found.merged


def test_a_merge_that_is_lost_while_it_is_judged_leaves_no_vector(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> NoReturn:
        raise ConnectionError("the machine went away")

    before = {one.digest for one in trees[0].blobs().stored()}
    monkeypatch.setattr("cluster.learner.composition.run.accuracies", lost)
    with pytest.raises(ConnectionError):
        made(trees, "ties", (1.0, -0.25))
    assert {one.digest for one in trees[0].blobs().stored()} == before


def stored(home: Home, task: int, rows: int, seed: int):
    return samples.store_rows(home.blobs(), *tiny.pictures(rows, seed=seed, task=task))


def test_a_grid_scales_the_whole_recipe(trees: Trees) -> None:
    found, model = made(trees, "grid", COEFFICIENTS)
    factor = found.report.figures["factor"]
    assert 0 <= factor <= 1
    assert [term.coefficient for term in model.terms] == [factor * c for c in COEFFICIENTS]
    kept, gone = (found.report.accuracies[task] for task in ("task1", "task2"))
    assert factor > 0  # theta0 knows more of task2 than any other point
    assert gone.after < gone.zero_shot
    assert kept.after > kept.zero_shot
    added, _ = made(trees, "grid")
    rows = added.report.accuracies.values()
    assert sum(r.after for r in rows) >= sum(r.before for r in rows)


def test_what_was_learned_is_measured_with_one_dense_vector_at_a_time(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    made_dense, real = weakref.WeakSet[Tensor](), TaskVector.to_params

    def to_params(vector: TaskVector) -> Params:
        found = {name: block.clone() for name, block in real(vector).items()}
        made_dense.add(next(iter(found.values())))
        held.append(len(made_dense))
        return found

    found = Ingredients(work_of(trees, "grid", COEFFICIENTS), trees[0])
    monkeypatch.setattr(TaskVector, "to_params", to_params)
    measured = measured_again(found, found.work.terms)
    assert held == [1] * len(found.work.terms)
    assert len(measured) == len(found.work.terms) ** 2


@pytest.fixture
def fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty instead of a hundred, to learn from few rows."""
    monkeypatch.setattr(learning, "LEAST_BATCHES", 4)


@pytest.mark.usefixtures("fewer_steps")
def test_atlas_learns_coefficients_of_blocks_from_few_rows(trees: Trees) -> None:
    """Of task 1 by another name and another head; the rest of its rows judges."""
    home, _, refs = trees
    fit = Fit(
        classes=CLASSES, shots=stored(home, 1, 16, seed=5), held_out=stored(home, 1, 80, seed=6)
    )
    found, model = made(trees, "atlas", fit=fit)
    assert model.merged is None
    one, two = (term.by_block or {} for term in model.terms)
    assert len(set(one.values())) > 3  # one for each block, not one for all
    assert two.keys() <= set(Materials(home, home.settings().base).vector(refs[1]).blocks)  # type: ignore[union-attr]
    report = found.report
    assert report.judged_on == "rows held out"
    assert report.accuracies.keys() == {TARGET}
    judged = report.accuracies[TARGET]
    assert judged.rows == 80
    assert judged.after > judged.zero_shot
    assert {(again.vector, again.on) for again in report.tau_jp} == {
        (f"task{s}@v1", f"task{t}") for s in (1, 2) for t in (1, 2)
    }
    own = next(a for a in report.tau_jp if (a.vector, a.on) == ("task1@v1", "task1"))
    assert own.relative == own.logits == 1
    assert all(again.logits is not None and again.logits > 0 for again in report.tau_jp)
    expected = explicit(trees, model)
    answers_are_those_of(trees, model, expected, TARGET)
    again, _ = made(trees, "atlas", fit=fit)
    assert again.model_copy(update={"report": report}) == found
    assert model.target is not None
    assert model.target.held_out == fit.held_out
    new = task_data("fitted", model.target.head_blob, fit.held_out)
    told = evaluate(evaluation(home, model, new), home, untold)
    assert told.per_task[TARGET].zero_shot == judged.zero_shot
    assert told.per_task[TARGET].composed == told.absolute == judged.after
    assert (told.normalized, told.unjudged) == (None, ())
    one = task_data("task1", refs[0].head_blob, fit.held_out, refs[0])
    lost = evaluate(evaluation(home, model, one), home, untold)
    assert lost.unjudged == (TARGET,)
    assert lost.absolute == lost.per_task["task1"].composed
    assert lost.normalized is not None


def task_data(
    name: str, head: str, test: BlobRef | None, individual: VectorRef | None = None
) -> TaskData:
    assert test is not None
    return TaskData(name=name, classes=CLASSES, head_blob=head, test=test, individual=individual)


def evaluation(home: Home, model: Composition, *tasks: TaskData) -> EvaluateWork:
    base = home.settings().base  # type: ignore[union-attr]
    return EvaluateWork(run_id="e", base=base, composition=model, tasks=tasks, attempt=1)


def explicit(trees: Trees, model: Composition) -> dict:
    """sum over vectors and blocks of coefficient times block."""
    home, _, _ = trees
    materials = Materials(home, home.settings().base)  # type: ignore[union-attr]
    total: dict = {}
    for term in model.terms:
        for name, value in materials.vector(term.vector).to_params().items():
            c = (term.by_block or {}).get(name, 0.0)
            total[name] = total.get(name, 0.0) + c * value
    return total


@pytest.mark.usefixtures("fewer_steps")
def test_blocks_are_selected(trees: Trees) -> None:
    fit = Fit(classes=CLASSES, shots=stored(trees[0], 1, 16, seed=5))
    found, model = made(trees, "atlas", fit=fit, select="blockwise:1")
    one, two = (set(term.by_block or {}) for term in model.terms)
    assert one
    assert not one & two
    assert found.report.judged_on == "the shots themselves"


@pytest.fixture(scope="module")
def learned(trees: Trees) -> tuple[Composed, Composition]:
    return made(trees, "atlas")


def test_atlas_deviates_from_a_sum_that_works(learned: tuple[Composed, Composition]) -> None:
    found, model = learned
    values = [c for term in model.terms for c in (term.by_block or {}).values()]
    assert sum(values) / len(values) == pytest.approx(1, abs=0.5)
    assert len(set(values)) > 3
    rows = found.report.accuracies.values()
    assert found.report.judged_on == "the validation rows it learned from"
    assert sum(r.after for r in rows) >= sum(r.before for r in rows)  # the start may win


def test_atlas_unlearns_what_is_subtracted(
    trees: Trees, learned: tuple[Composed, Composition]
) -> None:
    found, model = made(trees, "atlas", (1.0, -1.0))
    kept, gone = (found.report.accuracies[task] for task in ("task1", "task2"))
    alone, _ = made(trees, "grid", (1.0, 0.0))  # what the kept task has by itself, before
    assert kept.after >= 0.95 * alone.report.accuracies["task1"].before
    assert gone.after < alone.report.accuracies["task2"].before
    assert any((term.by_block or {}) for term in model.terms if term.vector.task == "task2")
    assert gone.after < learned[0].report.accuracies["task2"].after
    answers_are_those_of(trees, model, explicit(trees, model), "task1")


@pytest.mark.parametrize("method", ["atlas", pytest.param("adamerging", marks=pytest.mark.nightly)])
def test_unlabelled_inputs_are_enough(trees: Trees, method: Method) -> None:
    """Of any task of the recipe; nobody says which."""
    home, _, _ = trees
    images, _ = tiny.pictures(32, seed=7, task=1)
    inputs = samples.store_shard(home.blobs(), images, [row < 8 for row in range(32)])
    found, model = made(trees, method, adapt=Adapt(inputs=inputs))
    assert model.target is None
    assert all(len(set((term.by_block or {}).values())) > 3 for term in model.terms)
    assert found.report.accuracies.keys() == {"task1", "task2"}
    answers_are_those_of(trees, model, explicit(trees, model), "task1")


@pytest.mark.parametrize("method", ["ties", "atlas"])
def test_heads_are_fitted_under_what_was_made(trees: Trees, method: Method) -> None:
    """Of what is added; on f + J tau of the model and no other, and they answer unnamed."""
    home, tasks, refs = trees
    work = work_of(trees, method)
    rows = zip(work.tasks, tasks, strict=True)
    taught = [one.model_copy(update={"train": task.train}) for one, task in rows]
    found = compose(work.model_copy(update={"tasks": tuple(taught)}), home, untold)
    assert found.fitted is not None
    assert [(one.task, one.vector) for one in found.fitted.heads] == [
        (ref.task, ref.digest) for ref in refs
    ]
    metrics = found.fitted.metrics
    assert metrics["rows"] == sum(task.train.rows for task in tasks)
    assert metrics["unknown"] > metrics["frozen_unknown"] - 0.1
    model = model_of(work, found)
    materials = Materials(home, work.base)
    head, task = materials.head(model.fitted[0].head), tasks[0]
    data, module = materials.labelled(task.validation), materials.linearized()
    moved = cached_tangents(
        module, materials.backbone, data.items, {"model": materials.tau(model)}, 8
    )
    plain_NE = materials.plain(data.items)
    views_ND = head.views(plain_NE, moved.linearized({"model": 1.0}))
    assert accuracy(head.logits(views_ND), data.labels) == model.fitted[0].accuracy
    assert model.digest != model_of(work, found.model_copy(update={"fitted": None})).digest


def test_few_of_the_rows_that_teach_heads_have_all_classes(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composition_heads, "MOST_ROWS", len(tiny.TREES))
    home, tasks, _ = trees
    work = work_of(trees, "ties")
    rows = zip(work.tasks, tasks, strict=True)
    taught = tuple(one.model_copy(update={"train": task.train}) for one, task in rows)
    found = Ingredients(work.model_copy(update={"tasks": taught}), home)
    seen: list[HeadRows] = []
    monkeypatch.setattr(composition_heads, "learned", lambda *given: seen.append(given[2]))
    composition_heads.fitted(found, found.tau(work.terms), home, untold)
    for plain, moved in seen[0].train.values():
        assert plain.labels_N.unique().tolist() == [0, 1, 2, 3]
        assert moved.labels_N.tolist() == plain.labels_N.tolist()


def test_an_evaluation_is_of_what_was_made(trees: Trees) -> None:
    """The same numbers as its own report, on the rows of that."""
    home, tasks, refs = trees
    found, model = made(trees, "ties", (1.0, 1.0))
    data = tuple(
        TaskData(
            name=task.name,
            classes=task.classes,
            head_blob=ref.head_blob,
            test=task.validation,
            individual=ref,
        )
        for task, ref in zip(tasks, refs, strict=True)
    )
    work = EvaluateWork(
        run_id="e",
        base=home.settings().base,  # type: ignore[union-attr]
        composition=model,
        tasks=data,
        materialized=True,
        attempt=1,
    )
    evaluated = evaluate(work, home, untold)
    for task, row in found.report.accuracies.items():
        assert evaluated.per_task[task].composed == row.after
    plain = evaluate(work.model_copy(update={"composition": plain_of(refs)}), home, untold)
    for task, row in found.report.accuracies.items():
        assert plain.per_task[task].composed == row.before


def plain_of(refs: list[VectorRef]) -> Composition:
    return tiny.composition(*((1.0, ref) for ref in refs))
