"""What inner blocks give beside f: which blocks, pooled how, and in the pass that gives f."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from tacl.backbone.inner import channels_last, inner_blocks, watched
from tacl.models.mixed import MultiRecipeEncoder
from tests.support import toy


class Tokens(nn.Module):
    """Rows of token numbers; each block adds its own number to all of them."""

    def __init__(self, blocks: int, rows_first: bool = True) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Adds(block + 1.0) for block in range(blocks))
        self.rows_first = rows_first

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        tokens_BLD = batch["input_ids"].unsqueeze(-1) * torch.tensor([1.0, 2.0])
        if not self.rows_first:
            tokens_BLD = tokens_BLD.transpose(0, 1)
        for block in self.layer:
            tokens_BLD = block(tokens_BLD)[0]
        return tokens_BLD[:, 0] if self.rows_first else tokens_BLD[0]


class Adds(nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, tokens_BLD: Tensor) -> tuple[Tensor]:
        return (tokens_BLD + torch.tensor([0.0, self.number]),)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(2, ()), (3, (0, 1)), (6, (1, 3)), (7, (1, 4)), (12, (3, 7))],
)
def test_the_first_and_the_second_third_end_with_them(
    count: int, expected: tuple[int, ...]
) -> None:
    assert inner_blocks(Tokens(count)) == tuple(f"layer.{place}" for place in expected)


@pytest.mark.parametrize("rows_first", [True, False])
def test_tokens_that_are_no_padding_are_averaged(rows_first: bool) -> None:
    encoder = Tokens(3, rows_first)
    tokens_BL = torch.tensor([[4.0, 6.0, 90.0], [3.0, 3.0, 3.0]])
    mask_BL = torch.tensor([[1, 1, 0], [1, 1, 1]])
    batch = {"input_ids": tokens_BL, "attention_mask": mask_BL}
    with watched(encoder, inner_blocks(encoder), batch, last=False) as plain:
        found_BE = plain(encoder(batch))
    means_B = torch.tensor([5.0, 3.0])
    blocks = (torch.stack([means_B, 2 * means_B + added], -1) for added in (1.0, 3.0))
    inner_BK = torch.cat([normalize(one_BW, dim=-1) for one_BW in blocks], -1)
    f_BD = encoder(batch)
    torch.testing.assert_close(found_BE[:, :2], f_BD)
    torch.testing.assert_close(found_BE[:, 2:], f_BD.norm(dim=-1, keepdim=True) * inner_BK)


def test_places_of_a_picture_are_averaged() -> None:
    encoder = nn.Sequential(*(nn.Conv2d(3, 3, 1) for _ in range(3)), nn.Flatten())
    images = torch.randn(4, 3, 5, 5)
    with watched(encoder, ["0"], images, last=False) as plain:
        found_BE = plain(encoder(images))
    inner_BK = found_BE[:, 75:] / found_BE[:, :75].norm(dim=-1, keepdim=True)
    torch.testing.assert_close(inner_BK, normalize(encoder[0](images).mean((2, 3)), dim=-1))


def test_a_pass_under_vectors_shows_what_theta0_gives() -> None:
    """The pass of a predictor: rows of two users, each under vectors of their own."""
    base = toy.backbone(torch.float32)
    batch = base.collate(toy.inputs(5, 0, torch.float32))
    taus = {name: toy.random_tau(base.encoder, seed=seed) for seed, name in enumerate("ab")}
    mixed = MultiRecipeEncoder(base.encoder, base.trainable, taus)
    users = [({"a": 1.0}, 2), ({"a": -0.5, "b": 2.0}, 3)]
    with base.watched(batch) as plain:
        features_BD, tangent_BD = mixed.parts(batch, users)
    found_BE = plain(features_BD)
    assert tangent_BD.norm() > 0.1
    assert found_BE.shape == (5, toy.FEATURES + 32)
    torch.testing.assert_close(found_BE, base.plain(batch))


def test_a_pass_does_not_walk_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """How its blocks lie is seen once: for a single row the walk is a part of the pass."""
    base = toy.backbone(torch.float32)
    batch = base.collate(toy.inputs(5, 0, torch.float32))
    monkeypatch.setattr(nn.Module, "modules", None)
    with base.watched(batch):
        pass


def test_nothing_watches_after_the_pass() -> None:
    base = toy.backbone(torch.float32)
    with pytest.raises(RuntimeError), base.watched(torch.zeros(1, toy.INPUTS)):
        raise RuntimeError
    assert not any(module._forward_hooks for module in base.encoder.modules())


class Places(nn.Module):
    """Blocks that give [B, 3, 2, 4], or with channels last [B, 2, 4, 3]."""

    def __init__(self, channels_last: bool) -> None:
        super().__init__()
        self.stages = nn.Sequential(nn.Identity(), nn.Identity(), nn.Identity())
        if channels_last:
            self.output_fmt = "NHWC"  # as timm says it
        self.places = (1, 2) if channels_last else (2, 3)

    def forward(self, batch: Tensor) -> Tensor:
        return self.stages(batch).mean(self.places)


def test_places_are_averaged_wherever_the_channels_are() -> None:
    pixels_BCHW = torch.rand(5, 3, 2, 4)
    for is_last in (False, True):
        batch = pixels_BCHW.permute(0, 2, 3, 1) if is_last else pixels_BCHW
        encoder = Places(is_last)
        with watched(encoder, inner_blocks(encoder), batch, channels_last(encoder)) as plain:
            found_BE = plain(encoder(batch))
        features_BC = pixels_BCHW.mean((2, 3))
        length_B1 = features_BC.norm(dim=-1, keepdim=True)
        inner_BC = length_B1 * normalize(features_BC, dim=-1)
        torch.testing.assert_close(found_BE, torch.cat([features_BC, inner_BC, inner_BC], -1))


class Rewritten(nn.Module):
    """What a block gives is written over by what comes next; or is a list."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.stages = nn.Sequential(*(Gives(kind) for _ in range(3)))
        self.kind = kind

    def forward(self, batch: Tensor) -> Tensor:
        for stage in self.stages:
            found = stage(batch)
            batch = found[0] if self.kind == "list" else found.relu_()
        return batch.mean((2, 3))


class Gives(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, batch: Tensor) -> Tensor | list[Tensor]:
        return [batch - 0.1] if self.kind == "list" else batch - 0.1


@pytest.mark.parametrize("kind", ["in place", "list"])
def test_what_a_block_gave_is_what_is_read(kind: str) -> None:
    pixels_BCHW = torch.rand(5, 3, 2, 4)
    encoder = Rewritten(kind)
    with watched(encoder, ("stages.0",), pixels_BCHW, last=False) as plain:
        found_BE = plain(encoder(pixels_BCHW))
    first_BC = normalize((pixels_BCHW - 0.1).mean((2, 3)), dim=-1)
    torch.testing.assert_close(normalize(found_BE[:, 3:], dim=-1), first_BC)
