"""Base models that no run could use: refused when a home is made."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cluster.learner.learner import Learner
from tacl.backbone import Backbone
from tacl.backbone.inputs import Images
from tacl.errors import BadBase
from tacl.spec import BaseSpec


class Keeping(nn.Module):
    """Keeps what it makes of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 2)

    def forward(self, pixels_BCHW: Tensor) -> Tensor:
        self.kept = 2 * self.linear.weight
        return pixels_BCHW.flatten(1) @ self.kept.T


class Leaving(Keeping):
    """Loses the derivative."""

    def forward(self, pixels_BCHW: Tensor) -> Tensor:
        return self.linear(pixels_BCHW.flatten(1)) * self.linear.weight.sum().item()


class Once(Keeping):
    """Its derivative has no gradient."""

    @torch.no_grad()
    def forward(self, pixels_BCHW: Tensor) -> Tensor:
        return self.linear(pixels_BCHW.flatten(1))


@pytest.mark.parametrize(
    ("encoder", "why"),
    [(Keeping, r"keeps \.kept"), (Leaving, "would lose"), (Once, "gradient of tau")],
)
def test_an_encoder_that_no_run_could_use_founds_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: type[nn.Module], why: str
) -> None:
    pictures = Images(2, (0.0,) * 3, (1.0,) * 3)
    base = Backbone(BaseSpec.parse("timm:x"), encoder(), pictures, ("*",), 1.0)
    monkeypatch.setattr("tacl.backbone.load_backbone", lambda spec: base)
    with pytest.raises(BadBase, match=why):
        Learner(str(tmp_path)).describe_base("timm:x")
