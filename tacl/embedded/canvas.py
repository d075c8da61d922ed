"""The canvas of the embedded pictures: colours, placing, clutter, light and grain.

A family of pictures (glyphs, shapes, faces, ...) draws a sprite, an RGBA image [SIDE, SIDE]; this
file turns a sprite into a finished picture, uint8 [SIZE, SIZE, 3].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFilter

SIZE = 32
SCALE = 3  # sprites are drawn three times larger and shrunk, which smooths their edges
SIDE = SIZE * SCALE

Colour = tuple[int, int, int]

COLOURS: dict[str, Colour] = {
    "red": (214, 40, 40),
    "orange": (240, 140, 30),
    "yellow": (245, 215, 60),
    "green": (50, 160, 70),
    "cyan": (60, 200, 210),
    "blue": (45, 80, 200),
    "purple": (130, 60, 170),
    "pink": (245, 150, 190),
    "brown": (120, 75, 40),
    "black": (20, 20, 20),
    "gray": (128, 128, 128),
    "white": (245, 245, 245),
}


@dataclass(frozen=True)
class Look:
    """How a picture looks, apart from what it shows.

    `wildness` is 0 for a clean picture and 1 for one that is hard to recognise.
    """

    ink: Colour
    ground: Colour
    wildness: float = 0.0

    def odd(self, rng: Generator, chance: float) -> bool:
        """Whether to draw in an unusual way: True with probability chance * wildness."""
        return rng.random() < chance * self.wildness


def jitter(colour: Colour, amount: float, rng: Generator) -> Colour:
    """The colour moved by at most `amount` in each channel."""
    moved = np.clip(np.asarray(colour) + rng.uniform(-amount, amount, 3), 0, 255)
    return (int(moved[0]), int(moved[1]), int(moved[2]))


def permuted(pixels: np.ndarray, rng: Generator) -> np.ndarray:
    """uint8 [..., 3 or 4] with its colour channels in random order; alpha, if any, stays."""
    order = [*rng.permutation(3), *range(3, pixels.shape[-1])]
    return np.ascontiguousarray(pixels[..., order])


def two_colours(rng: Generator, distance: float) -> tuple[str, str]:
    """Names of two colours at least `distance` apart in RGB."""
    names = list(COLOURS)
    while True:
        first, second = (names[i] for i in rng.integers(len(names), size=2))
        if np.linalg.norm(np.subtract(COLOURS[first], COLOURS[second])) >= distance:
            return first, second


def sprite() -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """An empty sprite and the pen that draws on it."""
    image = Image.new("RGBA", (SIDE, SIDE))
    return image, ImageDraw.Draw(image)


def at(points: Sequence[tuple[float, float]] | np.ndarray) -> list[tuple[float, float]]:
    """Points of the square [-1, 1]^2 (y downwards) as sprite pixels."""
    return [((1 + x) * SIDE / 2, (1 + y) * SIDE / 2) for x, y in points]


def box(x: float, y: float, rx: float, ry: float | None = None) -> list[tuple[float, float]]:
    """The bounding box of an ellipse or rectangle around (x, y), as sprite pixels."""
    ry = rx if ry is None else ry
    return at([(x - rx, y - ry), (x + rx, y + ry)])


def place(image: Image.Image, look: Look, rng: Generator, turn: float = 40.0) -> Image.Image:
    """The sprite turned by up to `turn` degrees, scaled, sheared and shifted, more when wild."""
    wild = look.wildness
    angle = np.deg2rad(turn * (0.15 + 0.85 * wild)) * rng.uniform(-1, 1)
    scale = rng.uniform(0.9 - 0.15 * wild, 1.05)
    shear = 0.25 * wild * rng.uniform(-1, 1)
    shift = (0.05 + 0.05 * wild) * SIDE * rng.uniform(-1, 1, 2)
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    inverse = np.linalg.inv(scale * turned @ np.array([[1, shear], [0, 1]]))
    centre = np.full(2, SIDE / 2)
    offset = centre - inverse @ (centre + shift)
    matrix = (*inverse[0], offset[0], *inverse[1], offset[1])
    return image.transform((SIDE, SIDE), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def blotches(rng: Generator, cells: int, amount: float) -> np.ndarray:
    """A smooth random field float32 [SIDE, SIDE] of values about +-amount."""
    coarse = rng.normal(0, amount, (cells, cells)).astype(np.float32)
    field = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.asarray(field)


def paper(look: Look, rng: Generator) -> Image.Image:
    """The background in the ground colour, blotched and scribbled on when wild."""
    pixels = np.broadcast_to(np.asarray(look.ground, np.float32), (SIDE, SIDE, 3))
    if look.odd(rng, 0.9):
        fields = [blotches(rng, 4, 35 * look.wildness) for _ in range(3)]
        pixels = pixels + np.stack(fields, axis=-1)
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    scribble(image, rng.poisson(2 * look.wildness), 5, rng)
    return image


def scribble(image: Image.Image, strokes: int, width: int, rng: Generator) -> None:
    """Draws random coloured strokes over the image, in place."""
    pen = ImageDraw.Draw(image)
    for _ in range(strokes):
        colour = jitter((128, 128, 128), 127, rng)
        start, way = rng.uniform(0, SIDE, 2), rng.uniform(-SIDE / 2, SIDE / 2, 2)
        pen.line([tuple(start), tuple(start + way)], colour, int(rng.integers(2, width + 1)))


def compose(image: Image.Image, look: Look, rng: Generator) -> Image.Image:
    """A sprite on its background, scribbled over when wild; RGB."""
    picture = paper(look, rng)
    picture.paste(image, mask=image.getchannel("A"))
    scribble(picture, rng.poisson(look.wildness), 4, rng)
    return picture


def develop(picture: Image.Image, look: Look, rng: Generator) -> np.ndarray:
    """The finished uint8 [SIZE, SIZE, 3]; wild pictures are badly lit, tinted, pale and grainy."""
    wild = look.wildness
    pixels = np.asarray(picture.reduce(SCALE), np.float32)
    across, down = 0.35 * wild * rng.uniform(-1, 1, 2)
    ramp = np.linspace(-1, 1, SIZE, dtype=np.float32)
    light = 1 + across * ramp[None, :, None] + down * ramp[:, None, None]
    tint = rng.uniform(1 - 0.25 * wild, 1 + 0.1 * wild, 3)
    contrast = rng.uniform(1 - 0.35 * wild, 1)
    pixels = 128 + contrast * (pixels * light * tint - 128)
    pixels = pixels + rng.normal(0, 4 + 16 * wild * rng.random(), pixels.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8)


def outlined(pixels: np.ndarray) -> np.ndarray:
    """Outlines of uint8 [H, W, 3]: each pixel's difference from its surroundings, around grey."""
    around = np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(1)), np.float32)
    return np.clip(128 + 3.5 * (pixels - around), 0, 255).astype(np.uint8)
