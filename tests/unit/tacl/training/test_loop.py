"""The loop: its numbers against a loop written otherwise, its promises, and what the penalty does.

Equal means bit for bit where a promise says so, and to rounding in float64 elsewhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, jvp
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils import clip_grad_norm_

from tacl.backbone import Item
from tacl.curvature import measure, merged
from tacl.data.splits import batch_rows
from tacl.errors import BadConfig, EmptySplit
from tacl.models.linearized import LinearizedEncoder
from tacl.training.config import TrainConfig
from tacl.training.loop import MergedStatistics, PlainEngine, StepRecord, Store, losses
from tacl.training.penalties import other_tasks
from tacl.vectors.params import Params, digest
from tests.support import toy

CONFIG = toy.CONFIG


def close(left: Params, right: Params) -> None:
    """To what lambda and feature norms, kept in float32, leave of float64."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], rtol=1e-4, atol=1e-7)


# -- the numbers


def reference(scene: toy.Scene, config: TrainConfig) -> Params:
    """The cyclical loop by torch.func.jvp, with nothing of the loop that is tested."""
    encoder = scene.backbone.encoder
    theta0 = {name: value.detach() for name, value in encoder.named_parameters()}
    tau = {name: torch.zeros_like(value, requires_grad=True) for name, value in theta0.items()}
    optimizer = torch.optim.AdamW(tau.values(), weight_decay=config.weight_decay)

    def linearized(items: list[Item]) -> tuple[Tensor, Tensor]:
        batch = torch.stack(items)
        found = jvp(lambda theta: functional_call(encoder, theta, (batch,)), (theta0,), (tau,))
        return found[0], found[1]

    warm = math.ceil(0.1 * config.steps)
    for step in range(config.steps):
        rows = batch_rows(len(scene.data), config.batch, config.seed, step)
        features, tangent = linearized([scene.data.items[row] for row in rows])
        cosine = normalize(features + tangent) @ scene.head.weight_CD.T
        loss = cross_entropy(scene.head.scale * cosine, scene.data.labels[rows])
        store = scene.stores[step % len(scene.stores)]
        rows = batch_rows(len(store.items), config.penalty_batch, config.seed, step)
        _, other = linearized([store.items[row] for row in rows])
        loss = loss + config.strength * (other.norm(dim=-1) / store.feature_norm).square().mean()
        loss.backward()
        clip_grad_norm_(tau.values(), config.clip)
        turn = math.pi * (step - warm) / (config.steps - warm)
        rise = (step + 1) / warm if step < warm else 0.5 + 0.5 * math.cos(turn)
        optimizer.param_groups[0]["lr"] = config.learning_rate * rise
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.detach() for name, value in tau.items()}


def test_training_is_the_published_loop() -> None:
    scene = toy.scene()
    config = replace(CONFIG, steps=12, clip=0.05)
    engine = scene.engine(config)
    records = scene.run(engine, config)
    assert min(record.gradient_norm for record in records) > config.clip  # so clipping is compared
    close(engine.module.tau_dict(), reference(scene, config))


def test_records_say_what_happened() -> None:
    scene = toy.scene()
    records = scene.run(scene.engine(CONFIG), CONFIG)
    assert [record.step for record in records] == list(range(CONFIG.steps))
    peak = CONFIG.learning_rate
    expected = [peak * 0.5 * (1 + math.cos(math.pi * (step - 1) / 7)) for step in range(1, 8)]
    assert [r.learning_rate for r in records] == pytest.approx([peak, *expected])
    assert records[0].penalty == 0  # tau is zero
    assert all(record.penalty for record in records[1:])
    features = scene.backbone.encoder(torch.stack(scene.data.items))
    rows = batch_rows(len(scene.data), CONFIG.batch, CONFIG.seed, 0)
    at_theta0 = cross_entropy(scene.head.logits(features)[rows], scene.data.labels[rows])
    assert records[0].loss == pytest.approx(at_theta0.item())


@pytest.mark.parametrize("penalty", ["none", "cyclical"])
def test_no_penalty_is_recorded_where_there_is_none(penalty: str) -> None:
    scene = toy.scene(others=0 if penalty == "cyclical" else 2)
    config = replace(CONFIG, penalty=penalty)
    assert {record.penalty for record in scene.run(scene.engine(config), config)} == {None}


# -- the same again


def test_the_same_seed_gives_the_same_vector() -> None:
    assert digest(toy.scene().trained()) == digest(toy.scene().trained())
    assert digest(toy.scene().trained(seed=4)) != digest(toy.scene().trained())


def checkpointed(
    scene: toy.Scene, folder: Path, config: TrainConfig
) -> tuple[list[StepRecord], str]:
    """An undisturbed run that writes a checkpoint before every step, as the cluster does."""
    engine = scene.engine(config)

    def known(step: int) -> list[Store]:
        engine.save(folder / str(step))
        return scene.stores

    records = scene.run(engine, config, known=known)
    return records, digest(engine.module.tau_dict())


@pytest.mark.parametrize("penalty", ["cyclical", "mixed"])
def test_resumed_at_any_step_is_the_undisturbed_run(penalty: str, tmp_path: Path) -> None:
    scene, config = toy.scene(torch.float32, others=3), replace(CONFIG, penalty=penalty)
    records, vector = checkpointed(scene, tmp_path, config)
    for step in range(config.steps):
        engine = scene.engine(config)
        engine.load(tmp_path / str(step))
        assert scene.run(engine, config, start_step=step) == records[step:]
        assert digest(engine.module.tau_dict()) == vector


def test_a_checkpoint_holds_tau_and_moments_and_no_theta0(tmp_path: Path) -> None:
    scene = toy.scene(torch.float32)
    engine = scene.engine(CONFIG)
    scene.run(engine, CONFIG)
    engine.save(tmp_path)
    size = (tmp_path / "plain.safetensors").stat().st_size
    parameters = sum(p.numel() for p in scene.backbone.encoder.parameters())
    assert 3 * 4 * parameters <= size < 3.5 * 4 * parameters + 4000  # and the names


def test_a_store_that_arrives_changes_nothing_before() -> None:
    scene, joins = toy.scene(), 4
    early, late = scene.stores

    def known(step: int) -> Sequence[Store]:
        return (early, late) if step >= joins else (early,)

    alone = scene.run(scene.engine(CONFIG), CONFIG, known=lambda step: (early,))
    joined = scene.run(scene.engine(CONFIG), CONFIG, known=known)
    assert joined[:joins] == alone[:joins]
    assert joined[joins + 1] != alone[joins + 1]  # step 5 of the cycle is the newcomer's


def test_a_strength_that_grows_does_so_when_a_task_arrives(tmp_path: Path) -> None:
    """Two others, and three from step 4 on: as trained with 2/8, then with 3/8 of the strength."""
    scene, joins = toy.scene(torch.float32, others=3), 4

    def known(step: int) -> Sequence[Store]:
        return scene.stores if step >= joins else scene.stores[:2]

    def few(step: int) -> Sequence[Store]:
        if step == joins:
            before.save(tmp_path)
        return scene.stores[:2]

    before = scene.engine(CONFIG)
    scene.run(before, replace(CONFIG, strength=1.0), known=few)
    after = scene.engine(CONFIG)
    after.load(tmp_path)
    scene.run(after, replace(CONFIG, strength=1.5), start_step=joins)
    grown = scene.engine(CONFIG)
    scene.run(grown, replace(CONFIG, strength=4.0, grow_strength=True), known=known)
    assert digest(grown.module.tau_dict()) == digest(after.module.tau_dict())


def test_statistics_of_more_samples_count_from_their_step_on() -> None:
    """As where a training that died goes on from that step."""
    scene, merging = toy.scene(), MergedStatistics(torch.device("cpu"))
    store = scene.stores[0]
    few, many = (
        replace(store, items=[], statistics=measure(scene.backbone, store.items[:rows]))
        for rows in (2, 8)
    )
    tau = toy.random_tau(scene.backbone.encoder)
    found = [merging([one]) for one in (few, few, many)]
    expected = [merged([one.statistics]) for one in (few, few, many) if one.statistics]
    assert found[0] is found[1]
    assert [one and one.penalty(tau) for one in found] == [one.penalty(tau) for one in expected]


def test_the_store_is_asked_once_before_every_step() -> None:
    scene, asked = toy.scene(), []

    def known(step: int) -> Sequence[Store]:
        asked.append(step)
        return scene.stores

    config = replace(CONFIG, accumulation=4)
    scene.run(scene.engine(config), config, known=known)
    assert asked == list(range(CONFIG.steps))


# -- one step in parts


@pytest.mark.parametrize("penalty", ["cyclical", "mixed", "strict", "none"])
@pytest.mark.parametrize("parts", [2, 3, 8])
def test_shares_add_up_to_the_step(penalty: str, parts: int) -> None:
    """Three does not divide the batch, and of eight shares some have no penalty rows."""
    scene = toy.scene()
    config = replace(CONFIG, penalty=penalty)
    engine = scene.engine(config)
    engine.module.load_tau(toy.random_tau(scene.backbone.encoder))
    stores = other_tasks(penalty, 5, scene.stores, config.penalty_batch)

    def sums(parts: int) -> tuple[Tensor, Tensor, Tensor]:
        engine.optimizer.zero_grad()
        places = (engine, scene.backbone, scene.head, scene.data, stores, config, 5)
        pairs = [losses(*places, slice(part, None, parts)) for part in range(parts)]
        task, size = (torch.stack(values).sum() for values in zip(*pairs, strict=True))
        (task + size).backward()
        gradient = [p.grad.flatten() for p in engine.module.parameters() if p.grad is not None]
        return task.detach(), size.detach(), torch.cat(gradient)

    for one, many in zip(sums(1), sums(parts), strict=True):
        torch.testing.assert_close(many, one, rtol=1e-7, atol=1e-9)


def test_accumulation_gives_the_same_numbers() -> None:
    scene = toy.scene()
    whole = scene.run(scene.engine(CONFIG), CONFIG)
    config = replace(CONFIG, accumulation=4)
    engine = scene.engine(config)
    records = scene.run(engine, config)
    assert [r.loss for r in records] == pytest.approx([r.loss for r in whole], rel=1e-6)
    assert [r.penalty for r in records] == pytest.approx([r.penalty for r in whole], rel=1e-6)
    close(engine.module.tau_dict(), scene.trained())


class Group:
    """Ranks in threads of this process."""

    def __init__(self, size: int) -> None:
        self.size, self.engines = size, list[Together]()
        self.barrier = threading.Barrier(size, timeout=60)


class Together(PlainEngine):
    """One rank of a group, in which each has the mean of all gradients before a step."""

    def __init__(self, module: LinearizedEncoder, config: TrainConfig, group: Group) -> None:
        super().__init__(module, config)
        self.rank, self.world_size, self.group = len(group.engines), group.size, group
        group.engines.append(self)

    def gradients(self) -> list[Tensor]:
        return [p.grad for p in self.module.parameters() if p.grad is not None]

    def step(self, learning_rate: float) -> Tensor:
        self.group.barrier.wait()
        ranks = [engine.gradients() for engine in self.group.engines]
        means = [torch.stack(gradients).mean(0) for gradients in zip(*ranks, strict=True)]
        self.group.barrier.wait()
        for own, mean in zip(self.gradients(), means, strict=True):
            own.copy_(mean)
        return super().step(learning_rate)


@pytest.mark.parametrize(("ranks", "accumulation"), [(2, 1), (2, 2), (3, 2)])
def test_ranks_give_the_numbers_of_one(ranks: int, accumulation: int) -> None:
    config, group = replace(CONFIG, accumulation=accumulation), Group(ranks)
    scenes = [toy.scene() for _ in range(ranks)]  # a pass swaps weights in its encoder: one each
    for scene in scenes:
        Together(scene.module(), config, group)
    with ThreadPoolExecutor(ranks) as threads:
        jobs = [
            threads.submit(s.run, e, config) for s, e in zip(scenes, group.engines, strict=True)
        ]
    found = [job.result() for job in jobs]
    alone = toy.scene().engine(CONFIG)
    for step, record in enumerate(toy.scene().run(alone, CONFIG)):
        mean = sum(records[step].loss for records in found) / ranks
        assert mean == pytest.approx(record.loss, rel=1e-6)
    for engine in group.engines:
        close(engine.module.tau_dict(), alone.module.tau_dict())


@pytest.mark.parametrize(("batch", "rows"), [(8, 3), (3, 40)])
def test_a_batch_that_cannot_be_cut_is_refused(batch: int, rows: int) -> None:
    scene = toy.scene()
    scene.data = replace(scene.data, items=scene.data.items[:rows], labels=scene.data.labels[:rows])
    config = replace(CONFIG, batch=batch, accumulation=2)
    engine = Together(scene.module(), config, Group(2))
    with pytest.raises(BadConfig, match="a batch of 3 rows cannot be cut into 4 parts"):
        scene.run(engine, config)


def test_no_rows_are_refused() -> None:
    scene = toy.scene()
    scene.stores[0] = replace(scene.stores[0], items=[])
    with pytest.raises(EmptySplit):
        scene.run(scene.engine(CONFIG), CONFIG)


# -- what it is for


def interference(scene: toy.Scene, tau: Params, store: Store) -> float:
    """Mean relative |J tau| on fresh rows of the store's task."""
    jacobian_NDP = toy.jacobian(scene.backbone.encoder, store.items)
    return float((jacobian_NDP @ toy.flat(tau)).norm(dim=-1).mean()) / store.feature_norm


def task_loss(scene: toy.Scene, tau: Params) -> float:
    features_ND = scene.backbone.encoder(torch.stack(scene.data.items))
    tangent_ND = toy.jacobian(scene.backbone.encoder, scene.data.items) @ toy.flat(tau)
    return cross_entropy(scene.head.logits(features_ND + tangent_ND), scene.data.labels).item()


@pytest.mark.parametrize("penalty", ["cyclical", "mixed", "strict"])
@pytest.mark.parametrize(("norm", "strength"), [("l2", 0.3), ("l2_squared", 1.0)])
def test_the_penalty_keeps_out_of_the_way_and_the_task_is_learnt(
    penalty: str, norm: str, strength: float
) -> None:
    scene = toy.scene(others=2)
    free = scene.trained(penalty="none", steps=80)
    kept = scene.trained(penalty=penalty, steps=80, norm=norm, strength=strength)
    for t, store in enumerate(scene.stores, 1):
        fresh = replace(store, items=toy.inputs(60, t)[30:])
        assert interference(scene, kept, fresh) < 0.5 * interference(scene, free, fresh)
    zero = {name: torch.zeros_like(value) for name, value in free.items()}
    assert task_loss(scene, kept) < 0.65 * task_loss(scene, zero)


def test_a_task_that_arrives_half_way_is_left_alone_too() -> None:
    scene = toy.scene(others=2)
    config = replace(CONFIG, steps=80, strength=1.0)
    early, late = scene.stores

    def vector(known: Callable[[int], Sequence[Store]]) -> Params:
        engine = scene.engine(config)
        scene.run(engine, config, known=known)
        return engine.module.tau_dict()

    never = vector(lambda step: (early,))
    joined = vector(lambda step: (early, late) if step >= 30 else (early,))
    assert interference(scene, joined, late) < 0.6 * interference(scene, never, late)


def test_the_recorded_loss_falls() -> None:
    scene, config = toy.scene(), replace(CONFIG, steps=80, penalty="none")
    records = scene.run(scene.engine(config), config)
    first, last = (sum(r.loss for r in part) for part in (records[:10], records[-10:]))
    assert last < 0.6 * first


def test_bfloat16_is_close_to_float32() -> None:
    scene, low = toy.scene(torch.float32), replace(CONFIG, precision="bfloat16", steps=20)
    full = replace(low, precision="float32")
    engines = scene.engine(low), scene.engine(full)
    rough, exact = scene.run(engines[0], low), scene.run(engines[1], full)
    assert [r.loss for r in rough] == pytest.approx([r.loss for r in exact], rel=0.1, abs=0.02)
    assert [r.loss for r in rough] != pytest.approx([r.loss for r in exact], rel=1e-5)
    left, right = (toy.flat(engine.module.tau_dict()) for engine in engines)
    assert left.dtype == torch.float32  # tau itself never loses precision
    assert torch.cosine_similarity(left, right, dim=0) > 0.97
