"""tauJp: which task penalises a step, and the penalty against explicit Jacobians."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, jvp

from tacl.backbone import Item
from tacl.data.splits import batch_rows
from tacl.models.linearized import linearize
from tacl.training.loop import losses, other_rows
from tacl.training.penalties import Norm, other_tasks, penalty, relative_tau_jp
from tacl.vectors.params import Params
from tests.support import toy

NORMS: tuple[Norm, ...] = ("l2", "l2_squared")
tasks = st.lists(st.text(max_size=3), min_size=1, max_size=9, unique=True)


@given(tasks, st.integers(0, 10**6))
def test_cyclical_visits_every_task_once_in_a_cycle(known: list[str], start: int) -> None:
    cycle = [other_tasks("cyclical", start + step, known) for step in range(len(known))]
    assert sorted(task for (task,) in cycle) == sorted(known)
    assert other_tasks("cyclical", start + len(known), known) == cycle[0]


@given(tasks)
def test_cyclical_starts_with_the_first_and_keeps_the_order(known: list[str]) -> None:
    assert [other_tasks("cyclical", step, known)[0] for step in range(len(known))] == known


@given(tasks, st.text(min_size=4), st.integers(0, 1000))
def test_a_newcomer_is_met_within_one_cycle(known: list[str], new: str, joined: int) -> None:
    grown = [*known, new]
    seen = {other_tasks("cyclical", joined + step, grown)[0] for step in range(len(grown))}
    assert new in seen


def mixed(step: int, known: list[str], rows: int) -> list[str]:
    return list(other_tasks("mixed", step, known, rows))


@given(tasks, st.integers(1, 12), st.integers(0, 10**6))
def test_mixed_deals_every_task_the_same_number_of_rows(
    known: list[str], rows: int, start: int
) -> None:
    """Over as many steps as there are tasks, from any step on; and within a step but for one."""
    steps = [mixed(start + step, known, rows) for step in range(len(known))]
    assert all(len(step) == rows for step in steps)
    dealt = [task for step in steps for task in step]
    assert all(dealt.count(task) == rows for task in known)
    for step in steps:
        counts = [step.count(task) for task in known]
        assert max(counts) - min(counts) <= 1
    assert mixed(start, known, rows) == steps[0]  # whatever was asked between


@given(tasks, st.integers(0, 1000))
def test_one_mixed_row_is_the_cycle(known: list[str], step: int) -> None:
    assert mixed(step, known, 1) == list(other_tasks("cyclical", step, known))


@given(tasks, st.integers(0, 1000))
def test_strict_takes_all_and_none_takes_nothing(known: list[str], step: int) -> None:
    assert list(other_tasks("strict", step, known)) == known
    assert list(other_tasks("none", step, known)) == []


@pytest.mark.parametrize("penalty", ["cyclical", "mixed", "strict", "none"])
def test_an_empty_store_penalises_nothing(penalty: str) -> None:
    assert list(other_tasks(penalty, 5, [])) == []


def step_losses(scene: toy.Scene, tau: Params, **changed: object) -> tuple[Tensor, Tensor, Params]:
    """(task loss, penalty, gradient of the penalty) of step 3 at `tau`."""
    config = replace(toy.CONFIG, **changed)
    engine = scene.engine(config)
    engine.module.load_tau(tau)
    stores = other_tasks(config.penalty, 3, scene.stores, config.penalty_batch)
    places = (scene.backbone, scene.head, scene.data, stores, config, 3, slice(0, None, 1))
    task, penalty = losses(engine, *places)
    penalty.backward()
    parameters = {name: engine.module.tau[name.replace(".", "/")] for name in tau}
    gradient = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters.items()}
    return task.detach(), penalty.detach(), gradient


def explicit(scene: toy.Scene, tau: Params, norm: Norm, names: list[str]) -> float:
    """Mean over tasks of the mean over their rows of |J tau| (squared), by loops over Jacobians."""
    means = []
    for store in scene.stores:
        if store.name not in names:
            continue
        sizes = []
        for row in batch_rows(len(store.items), toy.CONFIG.penalty_batch, toy.CONFIG.seed, 3):
            jacobian_DP = toy.jacobian(scene.backbone.encoder, [store.items[row]])[0]
            size = float((jacobian_DP @ toy.flat(tau)).norm()) / store.feature_norm
            sizes.append(size if norm == "l2" else size**2)
        means.append(sum(sizes) / len(sizes))
    return sum(means) / len(means)


@pytest.mark.parametrize("norm", NORMS)
def test_strict_is_the_mean_over_tasks_by_explicit_jacobians(norm: Norm) -> None:
    scene = toy.scene(others=3)
    tau = toy.random_tau(scene.backbone.encoder)
    _, penalty, _ = step_losses(scene, tau, penalty="strict", norm=norm)
    expected = explicit(scene, tau, norm, [store.name for store in scene.stores])
    assert float(penalty) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_cyclical_is_one_of_the_means(norm: Norm) -> None:
    scene = toy.scene(others=2)
    tau = toy.random_tau(scene.backbone.encoder)
    _, penalty, _ = step_losses(scene, tau, penalty="cyclical", norm=norm)
    expected = explicit(scene, tau, norm, [scene.stores[3 % 2].name])
    assert float(penalty) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("others", [1, 3, 6])
def test_mixed_is_the_mean_over_its_rows(others: int, norm: Norm) -> None:
    """Of step 3, of 4 rows: the places 12 to 15 of the round of tasks, each with its row."""
    scene = toy.scene(others=others)
    tau = toy.random_tau(scene.backbone.encoder)
    _, penalty, _ = step_losses(scene, tau, penalty="mixed", norm=norm)
    sizes = []
    for place in (12, 13, 14, 15):
        store = scene.stores[place % others]
        (row,) = batch_rows(len(store.items), 1, toy.CONFIG.seed, place)
        jacobian_DP = toy.jacobian(scene.backbone.encoder, [store.items[row]])[0]
        sizes.append(float((jacobian_DP @ toy.flat(tau)).norm()) / store.feature_norm)
    expected = sum(size if norm == "l2" else size**2 for size in sizes) / 4
    assert float(penalty) == pytest.approx(expected, rel=1e-6)


def test_mixed_rows_of_a_task_are_new_until_the_store_is_through() -> None:
    store, config = toy.scene(others=1).stores[0], replace(toy.CONFIG, penalty="mixed")
    steps = [other_rows([store] * 4, config, step) for step in range(7)]  # 28 of 30 rows
    assert all(len(step) == 4 for step in steps)
    assert len({row for step in steps for _, row, _ in step}) == 28


def test_strict_counts_a_small_store_as_much_as_a_big_one() -> None:
    scene = toy.scene(others=2)
    small = scene.stores[0]
    scene.stores[0] = replace(small, items=small.items[:1])
    tau = toy.random_tau(scene.backbone.encoder)
    _, penalty, _ = step_losses(scene, tau, penalty="strict")
    expected = explicit(scene, tau, "l2_squared", ["other1", "other2"])
    assert float(penalty) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_at_zero_the_penalty_and_its_gradient_are_zero(norm: Norm) -> None:
    scene = toy.scene()
    zero = {name: torch.zeros_like(p) for name, p in scene.backbone.encoder.named_parameters()}
    task, penalty, gradient = step_losses(scene, zero, norm=norm)
    assert float(penalty) == 0
    assert float(toy.flat(gradient).abs().sum()) == 0
    assert torch.isfinite(task)


def oracle(
    encoder: nn.Module, tau: Params, items: list[Item], feature_norm: float, norm: Norm
) -> Tensor:
    theta0 = {name: value.detach() for name, value in encoder.named_parameters()}
    batch = torch.stack(items)
    found = jvp(lambda theta: functional_call(encoder, theta, (batch,)), (theta0,), (tau,))
    power = 1 if norm == "l2" else 2
    return ((found[1] ** 2).sum(-1).sqrt() / feature_norm).pow(power).mean()


@pytest.mark.parametrize("norm", NORMS)
def test_the_gradient_is_that_of_torch_func(norm: Norm) -> None:
    scene = toy.scene(others=1)
    tau = toy.random_tau(scene.backbone.encoder)
    _, penalty, gradient = step_losses(scene, tau, norm=norm)
    store = scene.stores[0]
    rows = batch_rows(len(store.items), toy.CONFIG.penalty_batch, toy.CONFIG.seed, 3)
    leaves = {name: value.requires_grad_() for name, value in tau.items()}
    items = [store.items[row] for row in rows]
    expected = oracle(scene.backbone.encoder, leaves, items, store.feature_norm, norm)
    expected.backward()
    assert float(penalty) == pytest.approx(expected.item(), rel=1e-6)
    for name, leaf in leaves.items():
        torch.testing.assert_close(gradient[name], leaf.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_a_bigger_encoder_has_the_same_penalty(norm: Norm) -> None:
    tau = toy.random_tau(toy.backbone().encoder)
    small, big = (step_losses(toy.scene(factor=f), tau, norm=norm)[1] for f in (1.0, 10.0))
    assert float(small) > 1e-4
    assert float(big) == pytest.approx(float(small), rel=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_lambda_means_the_same_for_a_bigger_encoder(norm: Norm) -> None:
    """The whole training is the same when all features are ten times as large."""
    small, big = (toy.flat(toy.scene(factor=f).trained(norm=norm)) for f in (1.0, 10.0))
    torch.testing.assert_close(small, big, rtol=1e-4, atol=1e-7)


@given(st.integers(1, 5), st.sampled_from(NORMS), st.floats(0.1, 100))
def test_each_row_is_relative_to_its_own_task(rows: int, norm: Norm, length: float) -> None:
    tangent_BD = torch.eye(rows, 7, dtype=torch.float64) * length
    norm_B = torch.arange(1, rows + 1, dtype=torch.float64)
    expected = length / norm_B if norm == "l2" else (length / norm_B) ** 2
    torch.testing.assert_close(relative_tau_jp(tangent_BD, norm, norm_B), expected)


@given(st.integers(1, 8), st.integers(0, 50), st.floats(0.1, 10), st.sampled_from(NORMS))
def test_in_a_loop_of_ones_own_it_is_the_mean_by_explicit_jacobians(
    rows: int, seed: int, feature_norm: float, norm: Norm
) -> None:
    base = toy.backbone()
    items, tau = toy.inputs(rows, seed), toy.random_tau(base.encoder, seed=seed)
    model = linearize(base)
    model.load_tau(tau)
    found = penalty(model(torch.stack(items))[1], feature_norm, norm)
    lengths_N = (toy.jacobian(base.encoder, items) @ toy.flat(tau)).norm(dim=-1) / feature_norm
    expected = lengths_N.mean() if norm == "l2" else lengths_N.square().mean()
    torch.testing.assert_close(found.detach(), expected, rtol=1e-6, atol=1e-12)
    found.backward()
    assert all(value.grad is not None for value in model.parameters())


def test_in_a_loop_of_ones_own_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="no rows"):
        penalty(torch.zeros(0, 5), 1.0)
