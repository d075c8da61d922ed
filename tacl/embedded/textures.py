"""Two-coloured textures that fill the picture: formulas over a warped plane."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from PIL import Image

from tacl.embedded.canvas import SIDE, Look, blotches

Plane = np.ndarray  # float [SIDE, SIDE], one coordinate of every pixel; one unit is one period


def checkerboard(x: Plane, y: Plane) -> np.ndarray:
    return (np.floor(2 * x) + np.floor(2 * y)) % 2


def polka_dots(x: Plane, y: Plane) -> np.ndarray:
    shifted = x + 0.5 * (np.floor(y) % 2)
    return np.hypot(shifted % 1 - 0.5, y % 1 - 0.5) < 0.3


def brick_wall(x: Plane, y: Plane) -> np.ndarray:
    row = np.floor(1.6 * y)
    return ((x + 0.5 * (row % 2)) % 1 > 0.14) & ((1.6 * y) % 1 > 0.22)


def zigzag(x: Plane, y: Plane) -> np.ndarray:
    return (y + np.abs(x % 1 - 0.5)) % 0.7 < 0.35


def fish_scales(x: Plane, y: Plane) -> np.ndarray:
    row = np.floor(2 * y)
    return np.abs(np.hypot((x + 0.5 * (row % 2)) % 1 - 0.5, 0.9 * ((2 * y) % 1) / 2) - 0.42) > 0.09


def marble(x: Plane, y: Plane) -> np.ndarray:
    bent = x + 0.7 * np.sin(1.7 * y + 1.3 * np.sin(2.1 * x)) + 0.3 * np.sin(4.1 * y + x)
    return 0.5 + 0.5 * np.sin(2.5 * bent)


PATTERNS: dict[str, Callable[[Plane, Plane], np.ndarray]] = {
    "horizontal stripes": lambda x, y: y % 1 < 0.5,
    "vertical stripes": lambda x, y: x % 1 < 0.5,
    "checkerboard": checkerboard,
    "polka dots": polka_dots,
    "brick wall": brick_wall,
    "zigzag": zigzag,
    "fish scales": fish_scales,
    "marble": marble,
}
NAMES = tuple(PATTERNS)


def plane(look: Look, rng: Generator) -> tuple[Plane, Plane]:
    """The pixels' coordinates in periods, shifted and turned; stretched and warped when wild."""
    wild = look.wildness
    periods = rng.uniform(2.6 - 0.8 * wild, 4.2 + 1.6 * wild)
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE * periods
    angle = np.deg2rad(4 + 26 * wild) * rng.uniform(-1, 1)
    u = np.cos(angle) * x - np.sin(angle) * y + rng.uniform(0, 2)
    v = np.sin(angle) * x + np.cos(angle) * y * rng.uniform(1 - 0.3 * wild, 1 + 0.3 * wild)
    v = v + rng.uniform(0, 2)
    buckle = 0.22 * wild
    return u + blotches(rng, 4, buckle), v + blotches(rng, 4, buckle)


def draw(name: str, look: Look, rng: Generator) -> Image.Image:
    """The texture of this name, in the look's two colours, as an opaque sprite."""
    mix = np.asarray(PATTERNS[name](*plane(look, rng)), np.float32)[..., None]
    if look.odd(rng, 0.5):
        mix = 1 - mix
    ink, ground = (np.asarray(colour, np.float32) for colour in (look.ink, look.ground))
    pixels = mix * ink + (1 - mix) * ground
    worn = blotches(rng, 6, 50 * look.wildness)[..., None]
    pixels = np.clip(pixels + worn, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).convert("RGBA")
