"""Rows of several users in one pass: each user's own composed model, for every kind of encoder."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacl.dual import mixed
from tacl.models.linearized import LinearizedEncoder
from tacl.models.mixed import MultiRecipeEncoder, Recipe, alone
from tests.support import toy
from tests.support.budget import budget

Rows = Callable[[int], Tensor]


def clip_vit() -> tuple[nn.Module, Rows]:
    from open_clip.transformer import VisionTransformer

    tower = VisionTransformer(
        image_size=16, patch_size=8, width=16, layers=2, heads=2, mlp_ratio=2, output_dim=6
    )
    return tower, lambda rows: torch.randn(rows, 3, 16, 16)


def clip_resnet() -> tuple[nn.Module, Rows]:
    from open_clip.modified_resnet import ModifiedResNet

    tower = ModifiedResNet([1, 1, 1, 1], output_dim=6, heads=2, image_size=32, width=8)
    return tower, lambda rows: torch.randn(rows, 3, 32, 32)


def timm_vit() -> tuple[nn.Module, Rows]:
    import timm

    model = timm.create_model("test_vit", num_classes=0, img_size=32, init_values=0.5)
    return model, lambda rows: torch.randn(rows, 3, 32, 32)


def gpt2() -> tuple[nn.Module, Rows]:
    from transformers import GPT2Config, GPT2Model

    from tacl.backbone.hf import SentenceEncoder

    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    encoder = SentenceEncoder(GPT2Model(config), "mean")

    class Texts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = encoder

        def forward(self, ids_BL: Tensor) -> Tensor:
            mask = torch.ones_like(ids_BL)
            return self.inner({"input_ids": ids_BL, "attention_mask": mask})

    return Texts(), lambda rows: torch.randint(0, 20, (rows, 5))


FAMILIES = [clip_vit, clip_resnet, timm_vit, gpt2]


def scene(make: Callable[[], tuple[nn.Module, Rows]]):
    torch.manual_seed(0)
    encoder, rows = make()
    encoder = encoder.double().eval()
    moved = ("*",) if make is not gpt2 else ("*.h.*",)
    if make is clip_resnet:
        moved = ("conv?.*", "bn?.*", "layer?.*", "attnpool.?_proj.*")
    module = LinearizedEncoder(encoder, moved)
    vectors = {
        f"v{t}": {n: 0.1 * torch.randn_like(module.theta0(n)) for n in module.blocks}
        for t in range(3)
    }
    return encoder, rows, moved, module, vectors


def recipes(module: LinearizedEncoder, seed: int) -> list[tuple[Recipe, int]]:
    """Subsets, signs, numbers and one number per block; users of one and of several rows."""
    choose = random.Random(seed)
    by_block = {name: choose.uniform(-1, 1) for name in module.blocks}
    return [
        ({"v0": 1.0}, 2),
        ({"v0": -0.5, "v2": 0.7}, 1),
        ({"v0": by_block, "v1": 1.0, "v2": 0.3}, 3),
        ({}, 1),
    ]


@pytest.mark.parametrize("worth", [0, 1 << 40], ids=["mixed first", "products first"])
@pytest.mark.parametrize("make", FAMILIES, ids=lambda make: make.__name__)
def test_every_row_is_that_of_its_users_own_model(make, worth: int, monkeypatch) -> None:
    monkeypatch.setattr(mixed, "WORTH_MIXING", worth)
    monkeypatch.setattr(mixed, "MIXED_BYTES", 2000)  # blocks of several sizes of chunk
    encoder, rows, moved, module, vectors = scene(make)
    users = recipes(module, 1)
    batch = rows(sum(count for _, count in users))
    if batch.is_floating_point():
        batch = batch.double()
    found = MultiRecipeEncoder(encoder, moved, vectors)(batch, users)
    start = 0
    for recipe, count in users:
        own = slice(start, start + count)
        expected = alone(module, batch[own], recipe, vectors)
        torch.testing.assert_close(found[own], expected, rtol=1e-9, atol=1e-9)
        start += count
    plain = alone(module, batch[:2], {}, vectors)
    assert (found[:2] - plain).abs().max() > 1e-3  # the recipes do say something


@settings(max_examples=budget(25), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), st.floats(-2, 2), max_size=3),
            st.integers(1, 3),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_users_and_any_recipes(users: list[tuple[Recipe, int]]) -> None:
    base = toy.backbone()
    module = LinearizedEncoder(base.encoder)
    vectors = {name: toy.random_tau(base.encoder, seed=ord(name)) for name in "abc"}
    batch = torch.stack(toy.inputs(sum(count for _, count in users), seed=3))
    found = MultiRecipeEncoder(base.encoder, ("*",), vectors)(batch, users)
    each = [recipe for recipe, count in users for _ in range(count)]
    for row, recipe in enumerate(each):
        expected = alone(module, batch[row : row + 1], recipe, vectors)
        torch.testing.assert_close(found[row : row + 1], expected, rtol=1e-9, atol=1e-9)


class RowsInside(nn.Module):
    """Its rows are not the outermost axis where they meet the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x_BLI: Tensor) -> Tensor:
        return self.layer(x_BLI.transpose(0, 1)).mean(0)


def test_rows_that_lie_elsewhere_are_refused() -> None:
    encoder = RowsInside().eval()
    tau = {name: torch.ones_like(value) for name, value in encoder.named_parameters()}
    together = MultiRecipeEncoder(encoder, ("*",), {"a": tau, "b": tau})
    with pytest.raises(NotImplementedError, match="2 rows in a tensor of shape"):
        together(torch.randn(2, 3, 4), [({"a": 1.0}, 1), ({"b": 1.0}, 1)])


class Queried(nn.Module):
    """A parameter is what goes into its layer."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.query = how, nn.Parameter(torch.randn(3, 4))
        self.norm, self.layer = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x_BI: Tensor) -> Tensor:
        if self.how == "matmul":
            return (self.query @ x_BI.mT).mT
        return x_BI @ getattr(self, self.how)(self.query).mT


@pytest.mark.parametrize("how", ["norm", "layer", "matmul"])
def test_a_weight_that_goes_into_a_layer_is_refused(how: str) -> None:
    encoder = Queried(how).eval()
    tau = {name: torch.ones_like(value) for name, value in encoder.named_parameters()}
    together = MultiRecipeEncoder(encoder, ("*",), {"a": tau, "b": tau})
    with pytest.raises(NotImplementedError):
        together(torch.randn(2, 4), [({"a": 1.0}, 1), ({"b": 1.0}, 1)])
