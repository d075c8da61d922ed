"""Weak and strong changes of a prepared input that preserve its class.

Texts lose tokens, 5 % or 30 %, but never the first or the last, which mark beginning and end.
Pictures are shifted; the strong change also crops, changes brightness and contrast, and covers a
square. They are never mirrored or rotated, as letters, digits and signs would change their meaning.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from tacl.backbone import Item

Strength = Literal["weak", "strong"]
DROPOUT = {"weak": 0.05, "strong": 0.3}
SHIFT = {"weak": 1 / 16, "strong": 1 / 8}  # of the side
LEAST_SIDE = 0.75  # of a strong crop
LIGHT = 0.4  # brightness and contrast change by up to this share
COVER = 0.25  # side of the grey square


def augmented(item: Item, strength: Strength, random: torch.Generator) -> Item:
    """A changed copy of a row: int64 [L'] of a text, 1 <= L' <= L; uint8 [3, S, S] of a picture."""
    if item.ndim == 1:
        return _fewer_tokens(item, DROPOUT[strength], random)
    shifted = _shifted(item, round(SHIFT[strength] * item.shape[-1]), random)
    return shifted if strength == "weak" else _covered(_lit(_cut(shifted, random), random), random)


def _fewer_tokens(item_L: Tensor, share: float, random: torch.Generator) -> Tensor:
    stays_L = torch.rand(len(item_L), generator=random) >= share
    stays_L[0] = stays_L[-1] = True
    if len(item_L) > 2 and not stays_L[1:-1].any():
        stays_L[1] = True  # a text without words has no class
    return item_L[stays_L.to(item_L.device)]


def _whole(low: int, high: int, random: torch.Generator) -> int:
    """A random integer, uniform on low..high."""
    return int(torch.randint(low, high + 1, (), generator=random))


def _shifted(item: Tensor, most: int, random: torch.Generator) -> Tensor:
    """Shifts by up to `most` pixels each way; the border is repeated in the gap."""
    side = item.shape[-1]
    wide = pad(item.float().unsqueeze(0), [most] * 4, mode="replicate")[0]
    top, left = _whole(0, 2 * most, random), _whole(0, 2 * most, random)
    return wide[:, top : top + side, left : left + side].to(item.dtype)


def _cut(item: Tensor, random: torch.Generator) -> Tensor:
    """A random square of the picture, enlarged to its whole size."""
    side = item.shape[-1]
    cut = _whole(round(LEAST_SIDE * side), side, random)
    top, left = _whole(0, side - cut, random), _whole(0, side - cut, random)
    part = item[:, top : top + cut, left : left + cut].float().unsqueeze(0)
    return interpolate(part, size=(side, side), mode="bilinear", align_corners=False)[0]


def _lit(pixels: Tensor, random: torch.Generator) -> Tensor:
    brightness, contrast = (1 + LIGHT * (2 * torch.rand(2, generator=random) - 1)).tolist()
    mean = pixels.mean()
    return ((pixels - mean) * contrast + mean) * brightness


def _covered(pixels: Tensor, random: torch.Generator) -> Tensor:
    side = pixels.shape[-1]
    cover = round(COVER * side)
    top, left = _whole(0, side - cover, random), _whole(0, side - cover, random)
    pixels[:, top : top + cover, left : left + cover] = 127
    return pixels.round().clamp(0, 255).to(torch.uint8)
