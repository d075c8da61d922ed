"""A module of one's own as a base model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

import tacl
from tacl.compose.materialized import materialized, materialized_features
from tacl.errors import BadBase, ModalityMismatch
from tests.support import toy


def module(activation: type[nn.Module] = nn.GELU) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(toy.INPUTS, 8), nn.BatchNorm1d(8), activation(), nn.Dropout(), nn.Linear(8, 5)
    )


def rows(count: int = 6) -> Tensor:
    return torch.stack(toy.inputs(count, 1, torch.float32))


def test_the_module_stays_as_it_is_and_theta0_too() -> None:
    mine = module()
    base = tacl.wrap(mine)
    assert mine.training
    assert all(value.requires_grad for value in mine.parameters())
    before = tacl.features(base, rows())
    mine(rows()).sum().backward()  # moves the statistics of batch norm
    with torch.no_grad():
        for value in mine.parameters():
            value.add_(1.0)
    assert torch.equal(tacl.features(base, rows()), before)
    assert base.digest == tacl.wrap(module()).digest


def test_the_same_weights_in_another_module_are_another_base() -> None:
    assert tacl.wrap(module()).digest != tacl.wrap(module(nn.ReLU)).digest


def test_linearized_it_is_its_tangent_model() -> None:
    base = tacl.wrap(module())
    model = tacl.linearize(base)
    tau = toy.random_tau(base.encoder)
    model.load_tau(tau)
    theta0 = {name: value.detach() for name, value in base.encoder.named_parameters()}
    expected = jvp(lambda theta: functional_call(base.encoder, theta, (rows(),)), (theta0,), (tau,))
    for found, one in zip(model(rows()), expected, strict=True):
        torch.testing.assert_close(found, one, rtol=1e-5, atol=1e-6)
    assert sum(value.numel() for value in model.parameters()) == toy.flat(tau).numel()


def test_some_blocks_alone() -> None:
    model = tacl.linearize(tacl.wrap(module(), ["4.*"]))
    assert model.blocks == ["4.weight", "4.bias"]
    with pytest.raises(ValueError, match="no parameter matches"):
        tacl.linearize(tacl.wrap(module(), ["head.*"]))


def test_it_reads_tensors_alone() -> None:
    with pytest.raises(ModalityMismatch, match="was given str"):
        tacl.wrap(module()).prepare("a text")


class Gives(nn.Module):
    """As modules of libraries do: an object, tokens of each row, or a number."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(toy.INPUTS, 4), kind

    def forward(self, batch: Tensor) -> object:
        found = self.layer(batch)
        return {"tuple": (found, None), "tokens": found[:, None], "number": found[:, 0]}[self.kind]


@pytest.mark.parametrize(
    ("kind", "told"), [("tuple", "tuple"), ("tokens", r"\[6, 1, 4\]"), ("number", r"\[6\]")]
)
def test_a_module_that_gives_no_features_is_refused_by_what_it_gives(kind: str, told: str) -> None:
    with pytest.raises(BadBase, match=f"module:Gives gives {told}; features are one tensor"):
        tacl.features(tacl.wrap(Gives(kind)), rows())


class Keeping(nn.Module):
    """It keeps a tensor with the graph by which it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.twice = 2 * self.weight


@pytest.mark.parametrize(
    ("mine", "kind", "said"),
    [(Keeping(), RuntimeError, "deepcopy"), (nn.LazyLinear(3), ValueError, "uninitialized")],
)
def test_a_module_that_is_not_copied_or_has_no_weights_is_refused(
    mine: nn.Module, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        tacl.wrap(mine)


class Reader(nn.Module):
    """torch's transformer over embeddings, which pads rows with 0."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(9, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, ids_BL: Tensor) -> Tensor:
        # Fused layers give 0 where there is padding.
        return self.layers(self.tokens(ids_BL), src_key_padding_mask=ids_BL == 0).sum(1)


def test_torchs_fused_layers_are_not_used() -> None:
    torch.manual_seed(0)
    base = tacl.wrap(Reader())
    ids_BL = torch.tensor([[3, 1, 4, 0, 0], [2, 7, 1, 8, 2]])
    features_BD, tangent_BD = (model := tacl.linearize(base))(ids_BL)
    tangent_BD.sum().backward()
    assert all(one.grad is not None for one in model.parameters())
    for found_BD in (tacl.features(base, ids_BL), base.plain(ids_BL)[:, :8]):
        torch.testing.assert_close(found_BD, features_BD)
    assert torch.backends.mha.get_fastpath_enabled()


def test_frozen_parameters_stay_as_they_are() -> None:
    mine = module()
    mine[0].requires_grad_(False)  # pyright: ignore[reportIndexIssue]
    assert tacl.linearize(tacl.wrap(mine)).blocks == ["1.weight", "1.bias", "4.weight", "4.bias"]
    assert tacl.linearize(tacl.wrap(mine, ["?.bias"])).blocks == ["1.bias", "4.bias"]
    assert tacl.linearize(tacl.wrap(module(), "4.*")).blocks == ["4.weight", "4.bias"]
    for frozen, patterns in ((mine, ["0.*"]), (module().requires_grad_(False), ["*"])):
        with pytest.raises(BadBase, match="match have requires_grad=False.*requires_grad_"):
            tacl.wrap(frozen, patterns)
    with pytest.raises(BadBase, match="no parameters"):
        tacl.wrap(nn.Tanh())


def test_a_name_with_signs_of_patterns_is_a_name() -> None:
    mine = nn.ModuleDict({"a[0]": nn.Linear(2, 2), "a0": nn.Linear(2, 2)})
    mine["a0"].weight.requires_grad_(False)
    blocks = tacl.linearize(tacl.wrap(mine)).blocks
    assert blocks == ["a[0].weight", "a[0].bias", "a0.bias"]


def test_batch_norm_without_running_statistics_is_refused() -> None:
    mine = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, track_running_stats=False))
    with pytest.raises(BadBase, match="1 is BatchNorm1d without running statistics.*GroupNorm"):
        tacl.wrap(mine)
    tacl.wrap(nn.InstanceNorm1d(8, affine=True))  # of one row each


class Buffered(nn.Module):
    """A buffer that is not saved, a tensor and a number; its text has addresses."""

    def __init__(self, buffer: float = 1.0, held: float = 1.0, power: int = 1) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor(buffer), persistent=False)
        self.held, self.power, self.made_anew = torch.tensor(held), power, object()

    def extra_repr(self) -> str:
        return repr(object.__repr__(self))


ALIKE = [
    lambda: nn.LeakyReLU(0.1),
    lambda: nn.LeakyReLU(0.2),
    lambda: nn.GELU("tanh"),
    lambda: nn.MultiheadAttention(4, 1, bias=False).requires_grad_(False).apply(_ones),
    lambda: nn.MultiheadAttention(4, 2, bias=False).requires_grad_(False).apply(_ones),
    lambda: nn.TransformerEncoderLayer(4, 1, 4, activation="relu").apply(_ones),
    lambda: nn.TransformerEncoderLayer(4, 1, 4, activation="gelu").apply(_ones),
    lambda: nn.TransformerEncoderLayer(4, 1, 4, norm_first=True).apply(_ones),
    lambda: nn.LayerNorm(4),
    lambda: nn.LayerNorm(4, eps=1e-3),
    Buffered,
    lambda: Buffered(buffer=2.0),
    lambda: Buffered(held=2.0),
    lambda: Buffered(power=2),
]


def _ones(layer: nn.Module) -> None:
    for value in layer.parameters():
        nn.init.ones_(value)


def test_other_settings_of_a_layer_are_another_base() -> None:
    once, again = (
        [tacl.wrap(nn.Sequential(make(), nn.Linear(4, 4).apply(_ones))).digest for make in ALIKE]
        for _ in range(2)
    )
    assert once == again
    assert len({*once}) == len(ALIKE)


def test_a_layer_that_comes_again_makes_another_base() -> None:
    first, again = nn.Linear(4, 4).apply(_ones), nn.Tanh()
    some = [(first, again), (first, again, again), (first, nn.Tanh(), nn.Tanh(), nn.Tanh())]
    assert len({tacl.wrap(nn.Sequential(*layers)).digest for layers in some}) == 3


class Tied(nn.Module):
    """One parameter under two names, and one buffer."""

    def __init__(self, tie: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = (nn.Linear(toy.INPUTS, toy.INPUTS, bias=False) for _ in range(2))
        shared = self.one.weight
        self.two.weight = shared if tie else nn.Parameter(shared.detach().clone())
        scale = torch.tensor(2.0)
        self.one.register_buffer("scale", scale)
        self.two.register_buffer("scale", scale)

    def forward(self, batch: Tensor) -> Tensor:
        return self.two(self.one(batch).tanh() * self.one.scale) * self.two.scale


def test_a_parameter_with_two_names_is_one_block(tmp_path: Path) -> None:
    base = tacl.wrap(Tied())
    assert base.digest != tacl.wrap(Tied(tie=False)).digest
    assert tacl.linearize(tacl.wrap(Tied(), ["two.*"])).blocks == ["one.weight"]
    features, labels = tacl.features(base, rows()), torch.tensor([0, 1] * 3)
    head = tacl.prototype_head(features, labels, ("even", "odd"))
    tacl.train(base, (rows(), labels), head, steps=2).save(tmp_path / "vector")
    vector = tacl.TaskVector.load(tmp_path / "vector")
    assert [*vector.blocks] == ["one.weight"]
    tau = tacl.composed([vector, vector], [1.0, 2.0])
    model = tacl.linearize(base)
    model.load_tau(tau)
    theta0 = {"one.weight": base.encoder.get_parameter("one.weight").detach()}
    expected = jvp(lambda theta: functional_call(base.encoder, theta, (rows(),)), (theta0,), (tau,))
    torch.testing.assert_close(model(rows())[1], expected[1])
    moved = materialized_features(base, materialized(base.encoder, tau), [*rows()])
    with torch.no_grad():
        (mine := Tied()).one.weight.add_(tau["one.weight"])
    torch.testing.assert_close(moved, mine(rows()).detach())


def test_a_module_of_any_precision_takes_rows_of_any() -> None:
    labels = torch.tensor([0, 1] * 3)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        base = tacl.wrap(module(nn.Tanh).to(dtype))
        found = [tacl.features(base, rows().to(of)) for of in (dtype, torch.float64)]
        torch.testing.assert_close(*found)
        head = tacl.prototype_head(found[0], labels, ("even", "odd"))
        vector = tacl.train(base, (rows(), labels), head, against=[rows()], steps=2)
        assert {value.dtype for value in vector.to_params().values()} == {torch.float32}
