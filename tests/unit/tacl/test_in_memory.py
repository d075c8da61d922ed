"""Training and evaluating tensors in memory: the cluster's loop, and explicit Jacobians."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import tacl
from cluster.domain.tasks import Options
from cluster.learner.training import configuration
from tacl.errors import (
    BadBase,
    BadColumns,
    BadSample,
    BaseMismatch,
    EmptySplit,
    LabelOutOfRange,
    MixedRegimes,
    RunFailed,
)
from tacl.training.config import TrainConfig, default_config
from tests.support import toy

SCENE = toy.scene()
ROWS: dict[str, Any] = {"inputs": SCENE.data.items, "labels": SCENE.data.labels}
AGAINST = [store.items for store in SCENE.stores]
LABELS = SCENE.data.labels
GAP = [*ROWS["inputs"][:3], torch.full((6,), torch.nan), *ROWS["inputs"][4:]]
CHOSEN: dict[str, Any] = {"steps": 6, "learning_rate": 1e-2, "batch": 8, "seed": 3}


def config(**given: Any) -> TrainConfig:
    rows, seed = len(SCENE.data), CHOSEN["seed"]
    chosen = {name: value for name, value in CHOSEN.items() if name != "seed"}
    return default_config(rows, seed, ("*",), **chosen, **given)


def trained(**given: Any) -> tacl.TaskVector:
    options: dict[str, Any] = {"against": AGAINST} | CHOSEN | given
    return tacl.train(SCENE.backbone, ROWS, SCENE.head, **options)


@pytest.mark.parametrize("penalty", ["cyclical", "mixed", "strict"])
def test_a_vector_is_that_of_the_loop(penalty: Any) -> None:
    expected = SCENE.trained(config(penalty=penalty, strength=0.5))
    found = trained(penalty=penalty, penalty_weight=0.5, task="mine")
    assert (found.task, found.base, found.regime) == ("mine", SCENE.backbone.digest, "linearized")
    assert found.blocks.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found.to_params()[name], value.float(), rtol=1e-5, atol=1e-8)


def test_a_pair_is_the_same_as_a_dict() -> None:
    pair = torch.stack(SCENE.data.items), SCENE.data.labels
    assert (
        trained().digest
        == tacl.train(SCENE.backbone, pair, SCENE.head, against=AGAINST, **CHOSEN).digest
    )


def test_lambda_is_the_clusters() -> None:
    for tower in (None, lambda texts: torch.zeros(len(texts), 3)):
        base = replace(SCENE.backbone, text_tower=tower)
        strength = configuration(Options(), len(SCENE.data), base).strength
        found, expected = (
            tacl.train(base, ROWS, SCENE.head, against=AGAINST, penalty_weight=weight, **CHOSEN)
            for weight in (None, strength)
        )
        assert found.digest == expected.digest
    assert strength == 3.0


def test_without_other_tasks_there_is_no_penalty() -> None:
    seen: list[float | None] = []
    trained(against=(), on_step=lambda record: seen.append(record.penalty) or None)
    assert seen == [None] * 6
    assert trained(against=()).digest != trained().digest


def test_nothing_is_changed_by_training() -> None:
    before = {name: value.clone() for name, value in SCENE.backbone.encoder.state_dict().items()}
    trained()
    after = SCENE.backbone.encoder.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_vector_that_is_no_number_is_not_given() -> None:
    with pytest.raises(RunFailed, match="smaller learning_rate"):
        trained(learning_rate=1e30, steps=20)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_are_taken_of_the_vector_alone(off: type[torch.no_grad]) -> None:
    """Also where a program has switched them off; its rows have none."""
    mine = torch.stack(SCENE.data.items).requires_grad_()
    with off():
        found = tacl.train(SCENE.backbone, (mine, LABELS), SCENE.head, against=AGAINST, **CHOSEN)
    assert mine.grad is None
    assert found.digest == trained().digest


class Centred(nn.Linear):
    """It subtracts the mean of the batch."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input - input.mean(0))


def test_features_that_depend_on_other_rows_are_refused() -> None:
    base = tacl.wrap(Centred(6, 5))
    head = replace(SCENE.head, weight_CD=SCENE.head.weight_CD.float())
    for use in (tacl.train, lambda *given: tacl.evaluate(*given, vectors={})):
        with pytest.raises(BadBase, match="module:Centred.*other rows of its batch"):
            use(base, ROWS, head)
    tacl.train(tacl.wrap(nn.Linear(6, 5)), ROWS, head, steps=1)


def test_a_head_of_other_features_is_refused() -> None:
    wide = replace(SCENE.head, weight_CD=torch.zeros(2, 9))
    with pytest.raises(BaseMismatch, match="reads 9 features, and base timm:numbers gives 5"):
        tacl.train(SCENE.backbone, ROWS, wide, **CHOSEN)


recipes = st.dictionaries(st.sampled_from(["a", "b"]), st.floats(-2, 2))


@given(recipes, st.integers(0, 5))
def test_any_recipe_is_an_addition_of_explicit_jacobians(
    recipe: dict[str, float], seed: int
) -> None:
    base, rows = SCENE.backbone, SCENE.data.items[:7]
    taus = {n: toy.random_tau(base.encoder, seed=seed + i) for i, n in enumerate("ab")}
    vectors = {
        n: tacl.TaskVector.of_params(n, base.digest, "linearized", t) for n, t in taus.items()
    }
    found = tacl.evaluate(base, (rows, SCENE.data.labels[:7]), SCENE.head, vectors)
    jacobian_NDP = toy.jacobian(base.encoder, rows)
    with torch.no_grad():
        expected_ND = base.encoder(torch.stack(rows))
    for name, coefficient in recipe.items():
        expected_ND = expected_ND + coefficient * jacobian_NDP @ toy.flat(taus[name])
    torch.testing.assert_close(
        found.cached.linearized(recipe), expected_ND.float(), rtol=1e-4, atol=1e-5
    )
    right_N = SCENE.head.logits(expected_ND.double()).argmax(-1) == SCENE.data.labels[:7]
    assert found.accuracy(recipe) == pytest.approx(right_N.double().mean().item())
    lengths_N = (jacobian_NDP @ toy.flat(taus["a"])).norm(dim=-1)
    assert found.tau_jp("a") == pytest.approx(lengths_N.mean().item(), rel=1e-4)


def test_a_head_of_another_precision_is_taken_as_well() -> None:
    """Features come in float32; the module and its vectors here are float64."""
    features_ND = tacl.features(SCENE.backbone, SCENE.data.items)
    head = tacl.prototype_head(features_ND, LABELS, ("under", "over"))
    longer: dict[str, Any] = CHOSEN | {"steps": 60}
    vector = tacl.train(SCENE.backbone, ROWS, head, **longer)
    found = tacl.evaluate(SCENE.backbone, ROWS, head, {"mine": vector})
    assert found.accuracy({"mine": 1.0}) > found.accuracy({})


def test_features_are_those_of_theta0() -> None:
    with torch.no_grad():
        expected_ND = SCENE.backbone.encoder(torch.stack(SCENE.data.items)).float()
    torch.testing.assert_close(tacl.features(SCENE.backbone, SCENE.data.items), expected_ND)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"x": ROWS["inputs"], "labels": LABELS}, BadColumns, "labels.*x"),
        ((ROWS["inputs"],), BadColumns, "1 parts"),
        ((ROWS["inputs"], LABELS + 1), LabelOutOfRange, "1..2 for 2 classes"),
        ((ROWS["inputs"], LABELS - 1), LabelOutOfRange, "-1..0 for 2 classes"),
        ((ROWS["inputs"], LABELS[1:]), LabelOutOfRange, "40 items with 39 labels"),
        ((ROWS["inputs"], LABELS.view(-1, 1)), LabelOutOfRange, "40 items with 40 x 1 labels"),
        ((ROWS["inputs"], LABELS[0]), LabelOutOfRange, "40 items with a single number as labels"),
        (([], LABELS[:0]), EmptySplit, "no rows"),
        (None, BadColumns, "NoneType; give the pair"),
        ((ROWS["inputs"], LABELS + 0.5), LabelOutOfRange, "float32.*labels.long"),
        ((ROWS["inputs"], ["a"] * 40), LabelOutOfRange, "no tensor"),
        ((torch.tensor(1.0), LABELS), BadColumns, "a single number was given"),
        (("a text", LABELS), BadColumns, "str was given"),
        ((["a text"] * 40, LABELS), BadColumns, "row 0 is str.*base.prepare"),
        (([*ROWS["inputs"][:39], torch.zeros(5)], LABELS), BadColumns, r"row 39 is \[5\].*\[6\]"),
        (([torch.zeros(0)] * 40, LABELS), BadColumns, "row 0 is empty"),
        ((GAP, LABELS), BadSample, "row 3 holds NaN.* 0 others of 40"),
    ],
)
def test_rows_that_are_none(data: Any, error: type[Exception], message: str) -> None:
    vectors = {"mine": trained()}
    for use in (
        lambda: tacl.train(SCENE.backbone, data, SCENE.head, **CHOSEN),
        lambda: tacl.evaluate(SCENE.backbone, data, SCENE.head, vectors),
    ):
        with pytest.raises(error, match=message):
            use()


def test_other_tasks_have_rows_of_the_same_kind() -> None:
    for other, error, message in (
        ([], EmptySplit, "no rows"),
        (GAP, BadSample, "row 3"),
        (torch.zeros(9, 5), BadColumns, r"other task 1 is \[5\], and one of the task \[6\]"),
    ):
        with pytest.raises(error, match=message):
            trained(against=[AGAINST[0], other])


def test_features_and_prototypes_refuse_what_is_none() -> None:
    features_ND = tacl.features(SCENE.backbone, ROWS["inputs"])
    with pytest.raises(BadSample, match="row 3"):
        tacl.features(SCENE.backbone, GAP)
    for of, labels, error, message in (
        (features_ND, LABELS.float(), LabelOutOfRange, "float32"),
        (features_ND, LABELS[1:], LabelOutOfRange, "40 items with 39 labels"),
        (features_ND, LABELS[:, None], LabelOutOfRange, "40 x 1 labels"),
        (features_ND, LABELS + 1, LabelOutOfRange, "1..2 for 2 classes"),
        (features_ND[0], LABELS, BadColumns, r"features are \[5\]"),
        (features_ND / 0, LABELS, BadSample, "NaN"),
    ):
        with pytest.raises(error, match=message):
            tacl.prototype_head(of, labels, ("under", "over"))


def test_features_in_another_precision_are_refused() -> None:
    with torch.autocast("cpu"), pytest.raises(ValueError, match="autocast is on for cpu"):
        tacl.features(SCENE.backbone, ROWS["inputs"])


def test_rows_of_one_other_task_are_no_list_of_tasks() -> None:
    with pytest.raises(BadColumns, match="list with the inputs of each other task"):
        trained(against=torch.stack(list(map(torch.as_tensor, AGAINST[0]))))


def test_vectors_of_another_base_or_model_are_refused() -> None:
    vector = trained()
    for foreign, error in (
        (replace(vector, base="0" * 64), BaseMismatch),
        (replace(vector, regime="ordinary"), MixedRegimes),
    ):
        with pytest.raises(error, match="mine"):
            tacl.evaluate(SCENE.backbone, ROWS, SCENE.head, {"mine": foreign})
