"""The curvature penalty against explicit Jacobians, per layer, and training with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import unfold

from tacl.backbone import Backbone, BaseSpec
from tacl.curvature import Statistics, measure, merged
from tacl.curvature.calls import LayerRecorder
from tacl.curvature.statistics import KroneckerFactors
from tacl.data.splits import batch_rows
from tacl.errors import BadConfig, BaseMismatch, CorruptBlob, EmptySplit
from tacl.training.loop import Store, losses
from tacl.training.penalties import Norm, other_tasks
from tacl.vectors.params import Params
from tests.support import toy


def every_unit(row: int, size: int) -> Tensor:
    """All unit directions instead of a random one: no noise."""
    return torch.eye(size)


def split(jacobian_NDP: Tensor, base: Backbone) -> Params:
    """[N, D, ...] of every block."""
    parameters = dict(base.encoder.named_parameters())
    sizes = [value.numel() for value in parameters.values()]
    pieces = jacobian_NDP.split(sizes, dim=2)
    return dict(zip(parameters, pieces, strict=True))


def test_an_activation_in_the_place_of_its_input_changes_nothing() -> None:
    found = []
    for inplace in (False, True):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Conv2d(2, 3, 2), nn.ReLU(inplace), nn.Flatten(), nn.Linear(27, 4))
        theta = dict[str, Tensor](layers.named_parameters())
        with LayerRecorder(theta) as watched:
            value = layers(torch.randn(5, 2, 4, 4)).square().sum()
        found.append(torch.autograd.grad(value, [call.output for call in watched.calls]))
    for apart, in_place in zip(*found, strict=True):
        assert torch.equal(apart, in_place)


# -- one position: layers and norms by explicit Jacobians


def by_hand(base: Backbone, items: list[Tensor], tau: Params) -> float:
    """Block by block: tr(B dW A dW') with B from dJ/dbias, and the diagonal of J'J of the norm."""
    J = split(toy.jacobian(base.encoder, items), base)
    x = torch.stack(items)
    total = 0.0
    layers: Any = base.encoder.encoder
    inputs = {0: x, 3: layers[2](layers[1](layers[0](x)))}
    for index, a in inputs.items():
        name = f"encoder.{index}"
        g = J[f"{name}.bias"]  # [N, D, O], for y moves with the bias one to one
        B = torch.einsum("ndo,ndp->op", g, g) / len(items)
        a1 = torch.cat([a, torch.ones(len(a), 1, dtype=a.dtype)], 1)
        A = a1.T @ a1 / len(items)
        dW = torch.cat([tau[f"{name}.weight"], tau[f"{name}.bias"][:, None]], 1)
        total += torch.trace(B @ dW @ A @ dW.T).item()
    for name in ("encoder.2.weight", "encoder.2.bias"):
        squares = J[name].square().sum(1).mean(0)
        total += (squares * tau[name].square()).sum().item()
    return total


def test_penalty_by_explicit_jacobians() -> None:
    base = toy.backbone()
    items, tau = toy.inputs(9, 1), toy.random_tau(base.encoder)
    found = measure(base, items, directions=every_unit)
    features = base.encoder(torch.stack(items)).detach()
    assert found.feature_norm == pytest.approx(features.norm(dim=-1).mean().item())
    expected = found.coherence * by_hand(base, items, tau) / found.feature_norm**2
    assert found.penalty(tau).item() == pytest.approx(expected, rel=1e-6)
    assert found.rows == 9


def test_random_directions_come_to_the_same() -> None:
    base = toy.backbone()
    items, tau = toy.inputs(4, 1) * 100, toy.random_tau(base.encoder)
    exact = replace(measure(base, items[:4], directions=every_unit), coherence=1.0)
    found = replace(measure(base, items, rows=400), coherence=1.0)
    assert found.penalty(tau).item() == pytest.approx(exact.penalty(tau).item(), rel=0.15)


def test_of_one_layer_it_is_the_mean_square_of_the_tangent() -> None:
    """Nothing is left out there: E |J tau|^2 exactly."""
    base = toy.backbone()
    items = toy.inputs(7, 2)
    only = ("encoder.3.*",)
    tau = {n: v for n, v in toy.random_tau(base.encoder).items() if n.startswith("encoder.3")}
    found = measure(base, items, only, directions=every_unit)
    J = split(toy.jacobian(base.encoder, items), base)
    tangent = sum(J[name] @ value.flatten() for name, value in tau.items())
    assert isinstance(tangent, Tensor)
    expected = tangent.square().sum(-1).mean().item() / found.feature_norm**2
    assert found.penalty(tau).item() == pytest.approx(expected, rel=1e-6)
    assert found.coherence == pytest.approx(1)


class Side(nn.Module):
    """Layers side by side, of which each sends the same to the features."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 4) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([layer(x) for layer in self.layers]).sum(0)


@pytest.mark.parametrize("layers", [1, 3, 8])
def test_layers_that_pull_the_same_way_do_so_many_times_as_much(layers: int) -> None:
    """|n a|^2 = n (|a|^2 + ... + |a|^2)."""
    base = Backbone(
        BaseSpec("timm", "side"), Side(layers).double().eval(), toy.Numbers(), ("*",), 16.0
    )
    found = measure(base, list(torch.randn(5, 6, dtype=torch.float64)), directions=every_unit)
    assert found.coherence == pytest.approx(layers)


def test_its_gradient() -> None:
    base = toy.backbone()
    statistics = measure(base, toy.inputs(5, 1))
    tau = {n: v.requires_grad_() for n, v in toy.random_tau(base.encoder).items()}

    def plain() -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for layer in statistics.layers:
            dW = tau[layer.weight]
            if layer.bias is not None:
                dW = torch.cat([dW, tau[layer.bias][:, None]], 1)
            total = total + torch.trace(layer.b_OO @ dW @ layer.a_II @ dW.T)
        for name, value in statistics.diagonal.items():
            total = total + (value * tau[name].square()).sum()
        return statistics.coherence * total / statistics.feature_norm**2

    expected = torch.autograd.grad(plain(), list(tau.values()))
    found = torch.autograd.grad(statistics.penalty(tau), list(tau.values()))
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right)
    assert statistics.penalty(tau).item() == pytest.approx(plain().item())


# -- several positions: convolutions


class Same(nn.Conv2d):
    """Pads its input itself, one more behind than before where the number is odd."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(nn.functional.pad(input, (0, 1, 0, 1)))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = Same(2, 4, 3, stride=2, bias=False)
        self.deep = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.point = nn.Conv2d(4, 3, 3, padding=1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.point(self.deep(self.stem(x)).relu()).mean((2, 3))


@pytest.fixture
def pictures() -> tuple[Backbone, list[Tensor]]:
    torch.manual_seed(0)
    encoder = Convolutions().double().eval()
    base = Backbone(BaseSpec("timm", "convolutions"), encoder, toy.Numbers(), ("*",), 16.0)
    return base, list(torch.randn(3, 2, 8, 8, dtype=torch.float64))


def test_convolutions_have_factors_and_depthwise_ones_a_diagonal(
    pictures: tuple[Backbone, list[Tensor]],
) -> None:
    base, items = pictures
    found = measure(base, items, directions=every_unit)
    assert [(layer.weight, layer.bias) for layer in found.layers] == [
        ("stem.weight", None),
        ("point.weight", "point.bias"),
    ]
    assert set(found.diagonal) == {"deep.weight", "deep.bias"}
    J = split(toy.jacobian(base.encoder, items), base)
    for name, value in found.diagonal.items():
        expected = J[name].square().sum(1).mean(0).view_as(value)
        torch.testing.assert_close(value, expected)

    x = nn.functional.pad(torch.stack(items), (0, 1, 0, 1))
    stem = found.layers[0]
    patches = unfold(x, 3, stride=2).transpose(1, 2).flatten(0, 1)
    assert len(patches) == 3 * 16
    torch.testing.assert_close(stem.a_II, patches.T @ patches / len(patches))
    # What a change of one output at one position does to the features, position by position.
    total = torch.zeros(4, 4, dtype=torch.float64)
    encoder: Any = base.encoder
    for item in items:
        outputs = encoder.stem(item[None]).detach().requires_grad_()
        features = encoder.point(encoder.deep(outputs).relu()).mean((2, 3))[0]
        for d in range(3):
            (g,) = torch.autograd.grad(features[d], outputs, retain_graph=True)
            g = g[0].flatten(1)
            total += g @ g.T
    torch.testing.assert_close(stem.b_OO, total / len(items))


class Attending(nn.Module):
    """Attention whose four projections no module of their own uses."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0].mean(1)


def test_the_projections_inside_attention_have_factors() -> None:
    torch.manual_seed(0)
    encoder = Attending().double().eval()
    base = Backbone(BaseSpec("timm", "attention"), encoder, toy.Numbers(), ("*",), 16.0)
    items = list(torch.randn(5, 3, 6, dtype=torch.float64))
    found = measure(base, items, directions=every_unit)
    names = {layer.weight: layer for layer in found.layers}
    assert set(names) == {"attention.in_proj_weight", "attention.out_proj.weight"}
    assert not found.diagonal
    x = torch.cat([torch.stack(items).flatten(0, 1), torch.ones(15, 1, dtype=torch.float64)], 1)
    torch.testing.assert_close(names["attention.in_proj_weight"].a_II, x.T @ x / 15)
    # The output projection is linear in what it says: mean of three positions, one unit each.
    back = names["attention.out_proj.weight"].b_OO
    torch.testing.assert_close(back, torch.eye(6, dtype=torch.float64) / 3)


# -- merging, files


def test_merged_is_the_mean_of_relative_statistics() -> None:
    base = toy.backbone()
    one, two = (measure(base, toy.inputs(6, seed)) for seed in (1, 2))
    both = merged([one, two])
    assert both.rows == 12
    for i, layer in enumerate(both.layers):
        a = (one.layers[i].a_II + two.layers[i].a_II) / 2
        b = sum(it.coherence * it.layers[i].b_OO / it.feature_norm**2 for it in (one, two))
        torch.testing.assert_close(layer.a_II, a)
        torch.testing.assert_close(layer.b_OO, b / 2)
    tau = toy.random_tau(base.encoder)
    alone = merged([one]).penalty(tau)
    torch.testing.assert_close(alone, one.penalty(tau))
    with pytest.raises(BaseMismatch):
        merged([one, replace(two, base="other")])
    with pytest.raises(EmptySplit):
        merged([])


def test_a_file_keeps_everything_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    base = toy.backbone(torch.float32)
    statistics = measure(base, toy.inputs(6, 1, torch.float32))
    statistics.save(tmp_path / "one")
    statistics.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    again, tau = Statistics.load(tmp_path / "one"), toy.random_tau(base.encoder)
    assert (again.base, again.rows) == (base.digest, 6)
    torch.testing.assert_close(again.penalty(tau), statistics.penalty(tau), rtol=0, atol=0)
    (tmp_path / "broken").write_bytes((tmp_path / "one").read_bytes()[:-40])
    with pytest.raises(CorruptBlob):
        Statistics.load(tmp_path / "broken")
    (tmp_path / "foreign").write_text("x")
    with pytest.raises(CorruptBlob):
        Statistics.load(tmp_path / "foreign")


def test_a_file_from_before_coherence_is_still_read(tmp_path: Path) -> None:
    found = measure(toy.backbone(), toy.inputs(6, 1))
    found.save(tmp_path / "now")
    with safe_open(tmp_path / "now", framework="pt") as file:
        head = json.loads(file.metadata()["tacl"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    head["format"] = 1
    del head["coherence"]
    save_file(tensors, tmp_path / "before", metadata={"tacl": json.dumps(head)})
    tau = toy.random_tau(toy.backbone().encoder)
    expected = replace(found, coherence=1.0).penalty(tau)
    torch.testing.assert_close(Statistics.load(tmp_path / "before").penalty(tau), expected)
    head["format"] = 3
    save_file(tensors, tmp_path / "later", metadata={"tacl": json.dumps(head)})
    with pytest.raises(CorruptBlob, match="format 3"):
        Statistics.load(tmp_path / "later")


def test_the_same_seed_gives_the_same_statistics() -> None:
    base, items = toy.backbone(), toy.inputs(20, 1)
    tau = toy.random_tau(base.encoder)
    values = [measure(base, items, rows=8, seed=s).penalty(tau).item() for s in (1, 1, 2)]
    assert values[0] == values[1] != values[2]
    with pytest.raises(EmptySplit):
        measure(base, [])


# -- training


def with_statistics(scene: toy.Scene) -> list[Store]:
    """Statistics and not one sample."""
    return [
        Store(store.name, [], store.feature_norm, measure(scene.backbone, store.items))
        for store in scene.stores
    ]


CONFIG = replace(toy.CONFIG, penalty="curvature", steps=40)


def interference(scene: toy.Scene, tau: Params) -> float:
    """Mean |J tau|^2 on the others' inputs relative to their features."""
    total = 0.0
    for store in scene.stores:
        tangent = toy.jacobian(scene.backbone.encoder, store.items) @ toy.flat(tau)
        total += tangent.square().sum(-1).mean().item() / store.feature_norm**2
    return total / len(scene.stores)


def test_training_with_statistics_alone_keeps_out_of_the_others_way() -> None:
    scene = toy.scene()
    stores = with_statistics(scene)
    engine = scene.engine(CONFIG)
    records = scene.run(engine, CONFIG, known=lambda step: stores)
    assert records[0].penalty == 0
    assert all(record.penalty for record in records[1:])
    penalised = interference(scene, engine.module.tau_dict())
    free = interference(scene, scene.trained(CONFIG, penalty="none"))
    assert penalised < 0.6 * free
    strong = replace(CONFIG, strength=5.0)
    engine = scene.engine(strong)
    scene.run(engine, strong, known=lambda step: stores)
    assert interference(scene, engine.module.tau_dict()) < penalised


@pytest.mark.parametrize("norm", ["l2", "l2_squared"])
def test_a_task_may_share_statistics_where_others_share_samples(norm: Norm) -> None:
    """Its turn in the cycle is a step against its statistics; nobody reads a sample of it."""
    scene = toy.scene()
    stated = with_statistics(scene)
    stores = [scene.stores[0], stated[1], *scene.stores[2:]]
    config = replace(CONFIG, penalty="cyclical", norm=norm, steps=2 * len(stores))
    engine = scene.engine(config)
    penalties = []

    def known(step: int) -> list[Store]:
        statistics = stated[1].statistics
        assert statistics is not None
        penalties.append(statistics.penalty(engine.module.tau_by_block()).item())
        return stores

    records = scene.run(engine, config, known=known)
    turns = [record for record in records if record.step % len(stores) == 1]
    for record in turns:
        root = 1 if norm == "l2_squared" else 0.5
        assert record.penalty == pytest.approx(penalties[record.step] ** root, rel=1e-5)
        assert record.penalty
    assert all(torch.isfinite(p).all() for p in engine.module.parameters())
    strict = replace(config, penalty="strict", steps=2)
    records = scene.run(scene.engine(strict), strict, known=lambda step: stores)
    assert records[1].penalty


def test_rows_dealt_to_a_task_that_shares_statistics_are_met_by_those(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of four rows two are of samples, those at the places 20 and 22 of the deal; the statistics
    are read once for the other two."""
    scene, config = toy.scene(), replace(CONFIG, penalty="mixed")
    samples, stated = scene.stores[0], with_statistics(scene)[1]
    tau, engine = toy.random_tau(scene.backbone.encoder), scene.engine(config)
    engine.module.load_tau(tau)
    dealt = other_tasks("mixed", 5, [samples, stated], config.penalty_batch)
    places = (scene.backbone, scene.head, scene.data, dealt, config, 5, slice(0, None, 1))
    reads, penalised = [], Statistics.penalty
    monkeypatch.setattr(
        Statistics, "penalty", lambda self, tau: reads.append(self) or penalised(self, tau)
    )
    _, penalty = losses(engine, *places)
    assert reads == [stated.statistics]
    rows = [batch_rows(len(samples.items), 1, config.seed, place)[0] for place in (20, 22)]
    jacobian_NDP = toy.jacobian(scene.backbone.encoder, [samples.items[row] for row in rows])
    sizes = (jacobian_NDP @ toy.flat(tau)).square().sum(-1) / samples.feature_norm**2
    assert stated.statistics is not None
    expected = (sizes.mean() + stated.statistics.penalty(tau)) / 2
    assert penalty.item() == pytest.approx(expected.item(), rel=1e-6)


def test_micro_batches_add_up_to_the_same_step() -> None:
    scene = toy.scene()
    stores = with_statistics(scene)

    def trained(accumulation: int) -> Tensor:
        config = replace(CONFIG, steps=5, accumulation=accumulation)
        engine = scene.engine(config)
        scene.run(engine, config, known=lambda step: stores)
        return toy.flat(engine.module.tau_dict())

    torch.testing.assert_close(trained(1), trained(2), rtol=1e-4, atol=1e-7)


def test_a_task_that_arrives_counts_from_its_step_on() -> None:
    scene = toy.scene()
    stores = with_statistics(scene)
    engine = scene.engine(CONFIG)
    records = scene.run(engine, CONFIG, known=lambda step: stores if step >= 10 else [])
    assert [record.penalty is None for record in records] == [True] * 10 + [False] * 30


def test_samples_without_statistics_are_refused() -> None:
    scene = toy.scene()
    with pytest.raises(BadConfig, match="other1"):
        scene.run(scene.engine(CONFIG), CONFIG)


def test_theta0_is_left_alone() -> None:
    base = toy.backbone()
    before = functional_call(base.encoder, {}, (torch.stack(toy.inputs(3, 1)),))
    measure(base, toy.inputs(5, 2))
    assert torch.equal(base.encoder(torch.stack(toy.inputs(3, 1))), before)
    assert all(not p.requires_grad and p.grad is None for p in base.encoder.parameters())


def test_statistics_of_a_file_are_merged_by_name(tmp_path: Path) -> None:
    def of(b: float, a: float) -> Statistics:
        sizes = {"b": b, "a": a}.items()
        layers = tuple(KroneckerFactors(n, None, x * torch.eye(2), torch.eye(2)) for n, x in sizes)
        return Statistics("base", 1, 1.0, 1.0, layers, {})

    of(3.0, 300.0).save(tmp_path / "two")
    both = merged([of(1.0, 100.0), Statistics.load(tmp_path / "two")])
    found = {layer.weight: layer.a_II[0, 0].item() for layer in both.layers}
    assert found == {"b": 2.0, "a": 200.0}
