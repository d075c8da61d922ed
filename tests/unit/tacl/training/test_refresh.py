"""Label-free refresh against explicit least squares, and what is accepted of it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tacl.errors import EmptySplit
from tacl.models.linearized import LinearizedEncoder
from tacl.training.config import RefreshConfig
from tacl.training.loop import Store
from tacl.training.refresh import Change, Descent, Refresh, judge, refresh
from tacl.vectors.params import Params, digest
from tests.support import toy

CONFIG = RefreshConfig(seed=1)
ALL_ROWS = replace(CONFIG, steps=4, batch=1000, other_batch=1000)  # in every step
MANY = replace(ALL_ROWS, steps=150, learning_rate=0.5, most_change=math.inf)


def refreshed(
    base: toy.Backbone,
    tau: Params,
    own: Store,
    others: list[Store],
    config: RefreshConfig,
    trained: tuple[str, ...] | None = None,
    **k: Any,
) -> Refresh:
    module = LinearizedEncoder(base.encoder, trained or tuple(tau))
    return refresh(module, base, tau, own, others, config, **k)


# -- the mathematics

BIASES = ("encoder.0.bias", "encoder.3.bias")  # so few unknowns that all rows cannot be served


def repeated(base: toy.Backbone, seed: int) -> Store:
    """One input five times: the rows held out are those learnt from."""
    return toy.store(base, f"task{seed}", toy.inputs(1, seed) * 5)


def biases(base: toy.Backbone) -> Params:
    return {name: value for name, value in toy.random_tau(base.encoder).items() if name in BIASES}


def block_jacobian(base: toy.Backbone, stores: list[Store]) -> Tensor:
    """J of the biases on the one input of each store, [T, D, P]."""
    sizes = {name: value.numel() for name, value in base.encoder.named_parameters()}
    parts = toy.jacobian(base.encoder, [store.items[0] for store in stores]).split(
        list(sizes.values()), dim=2
    )
    return torch.cat([part for name, part in zip(sizes, parts, strict=True) if name in BIASES], 2)


def least_squares(own_DP: Tensor, others_TDP: Tensor, tau_P: Tensor, strength: float) -> Change:
    """Both terms at the optimum, by the normal equations."""
    others_QP, count = others_TDP.flatten(0, 1), len(others_TDP)
    normal = own_DP.T @ own_DP + strength / count * others_QP.T @ others_QP
    delta_P = -strength / count * torch.linalg.pinv(normal) @ others_QP.T @ others_QP @ tau_P
    size = (own_DP @ tau_P).square().sum()
    left = (others_TDP @ (tau_P + delta_P)).square().sum(-1).mean()
    return Change(float((own_DP @ delta_P).square().sum() / size), float(left / size))


@pytest.mark.parametrize("strength", [0.3, 1.0, 3.0])
def test_many_steps_reach_the_least_squares_solution(strength: float) -> None:
    base = toy.backbone()
    own, *others = (repeated(base, seed) for seed in range(13))
    tau = biases(base)
    own_TDP, others_TDP = block_jacobian(base, [own]), block_jacobian(base, others)
    best = least_squares(own_TDP[0], others_TDP, toy.flat(tau), strength)
    found = refreshed(base, tau, own, others, replace(MANY, strength=strength))
    optimum = best.own + strength * best.interference
    reached = found.after.own + strength * found.after.interference
    begin = strength * found.before.interference
    assert 0.05 * begin < optimum < 0.8 * begin  # not trivial: neither all nor nothing is possible
    assert optimum * (1 - 1e-5) <= reached < 1.02 * optimum
    assert found.after.own == pytest.approx(best.own, rel=0.1)


@pytest.mark.parametrize("has", [BIASES, BIASES[:1]])
def test_the_figures_are_those_of_the_vector(has: tuple[str, ...]) -> None:
    """Also of one that has some of the blocks only; those that it has not are refreshed too."""
    base = toy.backbone()
    own, *others = (repeated(base, seed) for seed in range(13))
    some = {name: value for name, value in biases(base).items() if name in has}
    found = refreshed(base, some, own, others, CONFIG, trained=BIASES)
    assert found.tau.keys() == set(BIASES)
    tau = {name: some.get(name, torch.zeros_like(block)) for name, block in found.tau.items()}
    own_TDP, others_TDP = block_jacobian(base, [own]), block_jacobian(base, others)
    size = (own_TDP[0] @ toy.flat(tau)).square().sum()
    delta = toy.flat(found.tau) - toy.flat(tau)
    lost = (own_TDP[0] @ delta).square().sum() / size
    assert found.before.own == 0
    for vector, change in ((tau, found.before), (found.tau, found.after)):
        left = (others_TDP @ toy.flat(vector)).square().sum(-1).mean() / size
        assert change.interference == pytest.approx(left.item(), rel=1e-4)
    assert found.after.own == pytest.approx(lost.item(), rel=1e-4)


@pytest.mark.parametrize("learning_rate", [0.01, 2.0])
def test_delta_is_as_long_as_is_best_for_the_rows_held_out(learning_rate: float) -> None:
    """After one step, whatever its size."""
    base = toy.backbone()
    own, *others = (repeated(base, seed) for seed in range(13))
    tau = biases(base)
    config = replace(ALL_ROWS, steps=1, strength=1.0, learning_rate=learning_rate)
    found = refreshed(base, tau, own, others, config)
    own_DP, others_TDP = block_jacobian(base, [own])[0], block_jacobian(base, others)
    size = (own_DP @ toy.flat(tau)).square().sum()
    delta = toy.flat(found.tau) - toy.flat(tau)

    def objective(length: float) -> float:
        left = (others_TDP @ (toy.flat(tau) + length * delta)).square().sum(-1).mean()
        return float(((own_DP @ (length * delta)).square().sum() + left) / size)

    best = objective(1.0)
    assert best == pytest.approx(found.after.own + found.after.interference, rel=1e-4)
    assert best < 0.99 * objective(0.0)
    assert all(best < objective(length) for length in (0.9, 0.99, 1.01, 1.1))


def test_where_it_begins_does_not_decide_where_it_ends() -> None:
    """Held to the vector as it was trained, a second refresh has the optimum of the first."""
    base = toy.backbone()
    own, *others = (repeated(base, seed) for seed in range(13))
    tau = biases(base)
    half = refreshed(base, tau, own, others[:6], replace(MANY, strength=0.3)).tau
    straight = refreshed(base, tau, own, others, MANY).after
    found = refreshed(base, half, own, others, MANY, first=tau)
    own_DP = block_jacobian(base, [own])[0]
    size = (own_DP @ toy.flat(tau)).square().sum()
    drift = (own_DP @ (toy.flat(half) - toy.flat(tau))).square().sum() / size
    assert found.before.own == pytest.approx(drift.item(), rel=1e-4)
    assert drift > 0.01
    assert found.after.own == pytest.approx(straight.own, rel=0.1)
    assert found.after.interference == pytest.approx(straight.interference, rel=0.05)


# -- what it is for


def learnt(scene: toy.Scene) -> tuple[Params, Store]:
    """A vector trained with no penalty, and its task's own store."""
    own = toy.store(scene.backbone, "own", scene.data.items)
    return scene.trained(penalty="none", steps=60), own


def mean_square(scene: toy.Scene, tau: Params, items: list[Tensor]) -> float:
    tangent_ND = toy.jacobian(scene.backbone.encoder, items) @ toy.flat(tau)
    return tangent_ND.square().sum(-1).mean().item()


def test_interference_falls_on_fresh_rows_and_the_own_function_stays() -> None:
    scene = toy.scene(others=2)
    tau, own = learnt(scene)
    found = refreshed(scene.backbone, tau, own, scene.stores, replace(CONFIG, steps=60))
    assert found.accepted
    assert found.after.interference < 0.5 * found.before.interference
    for t in (1, 2):
        fresh = toy.inputs(60, t)[30:]
        assert mean_square(scene, found.tau, fresh) < 0.6 * mean_square(scene, tau, fresh)
    delta = {name: found.tau[name] - value for name, value in tau.items()}
    fresh = toy.inputs(80, 0)[40:]
    assert mean_square(scene, delta, fresh) < 0.2 * mean_square(scene, tau, fresh)


def test_the_same_inputs_give_the_same_vector() -> None:
    scene = toy.scene()
    tau, own = learnt(scene)
    first, again = (refreshed(scene.backbone, tau, own, scene.stores, CONFIG) for _ in range(2))
    assert digest(first.tau) == digest(again.tau) != digest(tau)
    other_seed = refreshed(scene.backbone, tau, own, scene.stores, replace(CONFIG, seed=2))
    assert digest(other_seed.tau) != digest(first.tau)


def test_every_step_is_told() -> None:
    scene = toy.scene()
    tau, own = learnt(scene)
    told: list[list[float]] = []

    def tell(descent: Descent) -> None:
        told.append([*descent.curve])

    found = refreshed(scene.backbone, tau, own, scene.stores, CONFIG, on_step=tell)
    assert told == [found.curve[: step + 1] for step in range(CONFIG.steps)]


def test_what_was_saved_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    scene = toy.scene()
    tau, own = learnt(scene)
    whole = refreshed(scene.backbone, tau, own, scene.stores, CONFIG)
    file = tmp_path / "descent.safetensors"

    def save(descent: Descent) -> None:
        if len(descent.curve) == 5:
            descent.save(file)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        refreshed(scene.backbone, tau, own, scene.stores, CONFIG, on_step=save)
    steps: list[int] = []

    def count(descent: Descent) -> None:
        steps.append(len(descent.curve))

    again = refreshed(scene.backbone, tau, own, scene.stores, CONFIG, on_step=count, saved=file)
    assert steps == [*range(6, CONFIG.steps + 1)]
    assert digest(again.tau) == digest(whole.tau)
    assert again.curve == whole.curve


def test_held_out_rows_are_not_learnt_from_and_are_of_all_kinds() -> None:
    """Also where a store lies in the order of its classes."""
    scene = toy.scene(others=0)
    tau, own = learnt(scene)
    kinds = [toy.inputs(20, kind) for kind in range(1, 6)]
    store = toy.store(scene.backbone, "sorted", [item for kind in kinds for item in kind])
    assert isinstance(scene.backbone.inputs, toy.Numbers)
    scene.backbone.inputs.learnt.clear()
    refreshed(scene.backbone, tau, own, [store], ALL_ROWS)
    learnt_ids = {id(item) for item in scene.backbone.inputs.learnt}
    assert sum(id(item) in learnt_ids for item in store.items) == 80
    assert sum(id(item) in learnt_ids for item in own.items) == 32
    for kind in kinds:
        assert 8 <= sum(id(item) in learnt_ids for item in kind) < 20


def test_few_rows_of_each_of_many_tasks() -> None:
    scene = toy.scene(others=4)
    tau, own = learnt(scene)
    assert isinstance(scene.backbone.inputs, toy.Numbers)
    scene.backbone.inputs.learnt.clear()
    refreshed(scene.backbone, tau, own, scene.stores, replace(ALL_ROWS, samples=40))
    learnt_ids = {id(item) for item in scene.backbone.inputs.learnt}
    for store in scene.stores:
        assert sum(id(item) in learnt_ids for item in store.items) == 8


# -- what is refused


@pytest.mark.parametrize("most", [0.2, 0.05])
def test_the_own_function_never_changes_by_more_than_is_allowed(most: float) -> None:
    """The other task looks at the same inputs: all that helps it hurts the own, as much."""
    scene = toy.scene()
    tau, own = learnt(scene)
    config = replace(CONFIG, most_change=most, steps=60)
    found = refreshed(scene.backbone, tau, own, [replace(own, name="same")], config)
    assert found.after.own == pytest.approx(most)
    delta = {name: found.tau[name] - value for name, value in tau.items()}
    fresh = toy.inputs(80, 0)[40:]
    of_own = mean_square(scene, delta, fresh) / mean_square(scene, tau, fresh)
    assert 0.5 * most < of_own < 1.5 * most


def test_no_number_of_refreshes_changes_it_by_more() -> None:
    scene = toy.scene()
    tau, own = learnt(scene)
    same = [replace(own, name="same")]
    held = let_go = tau
    config = replace(CONFIG, steps=60)
    for _ in range(3):
        found = refreshed(scene.backbone, held, own, same, config, first=tau)
        assert found.after.own <= CONFIG.most_change * (1 + 1e-6)
        held = found.tau
        let_go = refreshed(scene.backbone, let_go, own, same, config).tau

    def change(now: Params) -> float:
        delta = {name: now[name] - value for name, value in tau.items()}
        fresh = toy.inputs(80, 0)[40:]
        return mean_square(scene, delta, fresh) / mean_square(scene, tau, fresh)

    assert change(held) < 1.5 * CONFIG.most_change
    assert change(let_go) > 2 * CONFIG.most_change


def test_nothing_to_gain_is_not_accepted() -> None:
    """Inputs on which the vector does nothing, exactly."""
    scene = toy.scene()
    first = "encoder.0.weight"
    tau = {first: toy.random_tau(scene.backbone.encoder)[first]}
    own = toy.store(scene.backbone, "own", scene.data.items)
    silent = toy.store(scene.backbone, "silent", [torch.zeros(toy.INPUTS).double()] * 10)
    found = refreshed(scene.backbone, tau, own, [silent], CONFIG)
    assert found.before.interference == 0
    assert not found.accepted
    assert "would be gained" in found.reason
    assert digest(found.tau) == digest(tau)


@pytest.mark.parametrize(
    ("left", "accepted", "why"),
    [
        (0.5, True, "interference 50% of before, own function changed by 4.0%$"),
        (0.95, True, ""),
        (0.97, False, "97% of before.*less than 5% would be gained"),
        (math.nan, False, "interference nan% of before"),
    ],
)
def test_the_judge(left: float, accepted: bool, why: str) -> None:
    verdict, reason = judge(Change(0, 2.0), Change(0.04, 2.0 * left), CONFIG)
    assert verdict is accepted
    assert re.search(why, reason)


def test_no_other_store_is_refused() -> None:
    scene = toy.scene()
    tau, own = learnt(scene)
    with pytest.raises(EmptySplit, match="at least one other task"):
        refreshed(scene.backbone, tau, own, [], CONFIG)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("whose", ["own", "other"])
def test_a_store_too_small_to_hold_rows_out_is_refused(rows: int, whose: str) -> None:
    base = toy.backbone()
    stores = {name: toy.store(base, name, toy.inputs(5, 1)) for name in ("own", "other")}
    stores[whose] = replace(stores[whose], items=stores[whose].items[:rows])
    with pytest.raises(EmptySplit, match=f"shard of {whose} has {rows} rows; 2 are the least"):
        refreshed(base, biases(base), stores["own"], [stores["other"]], CONFIG)


# -- where it starts


def layers_apart(closed_form: bool) -> Refresh:
    base = toy.backbone()
    own, *others = (toy.store(base, f"task{seed}", toy.inputs(60, seed)) for seed in range(4))
    config = replace(CONFIG, steps=2, closed_form=closed_form)
    return refreshed(base, toy.random_tau(base.encoder), own, others, config)


def test_from_the_closed_form_two_steps_go_further_than_from_the_vector() -> None:
    there, here = layers_apart(True), layers_apart(False)
    left, without = (
        one.after.own + CONFIG.strength * one.after.interference for one in (there, here)
    )
    assert left < 0.8 * without
    assert there.curve[0] < 0.8 * here.curve[0]
