"""The embedded base model's two towers, as every process of a cluster loads them.

The network, its names and its numbers are those that open_clip builds from encoder.json (a test
compares them). It is written out here because importing open_clip takes longer than importing
torch, and many processes load it. Architecture: arXiv 2103.00020, section 2.4 (a residual network
with attention pooling, and a causal text transformer).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEAD_WIDTH = 64  # of the attention pooling


class EmbeddedNet(nn.Module):
    """Pictures and texts in one space of `embed_dim` features."""

    def __init__(
        self, embed_dim: int, vision_cfg: dict[str, Any], text_cfg: dict[str, Any]
    ) -> None:
        super().__init__()
        width = text_cfg["width"]
        self.visual = Picture(embed_dim=embed_dim, **vision_cfg)
        self.token_embedding = nn.Embedding(text_cfg["vocab_size"], width)
        self.positional_embedding = nn.Parameter(torch.zeros(text_cfg["context_length"], width))
        layers = [Layer(width, text_cfg["heads"]) for _ in range(text_cfg["layers"])]
        self.transformer = nn.ModuleDict({"resblocks": nn.ModuleList(layers)})
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.zeros(width, embed_dim))
        self.logit_scale = nn.Parameter(torch.zeros(()))

    def encode_image(self, images_NCHW: Tensor, normalize: bool = False) -> Tensor:
        features_ND = self.visual(images_NCHW)
        return F.normalize(features_ND, dim=-1) if normalize else features_ND

    def encode_text(self, tokens_NL: Tensor, normalize: bool = False) -> Tensor:
        """Features [N, D], taken at each text's end token, which has the vocabulary's largest
        number."""
        x_NLW = self.token_embedding(tokens_NL) + self.positional_embedding
        for layer in self.transformer["resblocks"]:  # pyright: ignore[reportGeneralTypeIssues]
            x_NLW = layer(x_NLW)
        rows = torch.arange(len(tokens_NL), device=tokens_NL.device)
        features_ND = self.ln_final(x_NLW)[rows, tokens_NL.argmax(-1)] @ self.text_projection
        return F.normalize(features_ND, dim=-1) if normalize else features_ND


class Layer(nn.Module):
    """Causal self-attention, then two linear layers, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)}
        )

    def forward(self, x_NLW: Tensor) -> Tensor:
        x_NLW = x_NLW + self._attended(self.ln_1(x_NLW))
        hidden = F.gelu(self.mlp["c_fc"](self.ln_2(x_NLW)))
        return x_NLW + self.mlp["c_proj"](hidden)

    def _attended(self, x_NLW: Tensor) -> Tensor:
        packed = F.linear(x_NLW, self.attn.in_proj_weight, self.attn.in_proj_bias)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in packed.chunk(3, -1))
        heads_NHLE = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn.out_proj(heads_NHLE.transpose(1, 2).flatten(2))


class Picture(nn.Module):
    """Three convolutions, four groups of bottlenecks, each but the first halving the resolution,
    and attention pooling."""

    preprocess_cfg: dict[str, Any]  # as open_clip's towers have it

    def __init__(self, embed_dim: int, image_size: int, layers: list[int], width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(3, width // 2, 3, stride=2)
        self.conv2, self.bn2 = convolution(width // 2, width // 2, 3)
        self.conv3, self.bn3 = convolution(width // 2, width, 3)
        inner = [width * 2**group for group in range(4)]
        inputs = [width, *(4 * planes for planes in inner)]
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(
                Bottleneck(inputs[group], inner[group], stride=1 if group == 0 else 2),
                *(Bottleneck(4 * inner[group], inner[group]) for _ in range(layers[group] - 1)),
            )
            for group in range(4)
        )
        self.attnpool = AttentionPool((image_size // 32) ** 2, inputs[-1], embed_dim)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(images_NCHW)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.avg_pool2d(F.relu(self.bn3(self.conv3(x))), 2)
        return self.attnpool(self.layer4(self.layer3(self.layer2(self.layer1(x)))))


class Bottleneck(nn.Module):
    """Convolutions 1 x 1, 3 x 3, 1 x 1; resolution is reduced by averaging, not by a stride."""

    def __init__(self, inputs: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.conv1, self.bn1 = convolution(inputs, planes, 1)
        self.conv2, self.bn2 = convolution(planes, planes, 3)
        self.conv3, self.bn3 = convolution(planes, 4 * planes, 1)
        beside = dict(zip("01", convolution(inputs, 4 * planes, 1), strict=True))
        self.downsample = None if stride == 1 and inputs == 4 * planes else nn.ModuleDict(beside)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self._smaller(F.relu(self.bn2(self.conv2(y))))
        y = self.bn3(self.conv3(y))
        if self.downsample is not None:
            x = self.downsample["1"](self.downsample["0"](self._smaller(x)))
        return F.relu(y + x)

    def _smaller(self, x: Tensor) -> Tensor:
        return x if self.stride == 1 else F.avg_pool2d(x, self.stride)


class AttentionPool(nn.Module):
    """Attention pooling: the mean of all positions attends to all positions and to itself."""

    def __init__(self, places: int, width: int, embed_dim: int) -> None:
        super().__init__()
        self.heads = width // HEAD_WIDTH
        self.positional_embedding = nn.Parameter(torch.zeros(places + 1, width))
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.c_proj = nn.Linear(width, embed_dim)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        places_NPC = x_NCHW.flatten(2).transpose(1, 2)
        x_NPC = torch.cat([places_NPC.mean(1, keepdim=True), places_NPC], 1)
        x_NPC = x_NPC + self.positional_embedding
        asked = (self.q_proj(x_NPC[:, :1]), self.k_proj(x_NPC), self.v_proj(x_NPC))
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in asked)
        heads_NH1E = F.scaled_dot_product_attention(q, k, v)
        return self.c_proj(heads_NH1E.transpose(1, 2).flatten(1))


def convolution(
    inputs: int, outputs: int, size: int, stride: int = 1
) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return conv, nn.BatchNorm2d(outputs)
