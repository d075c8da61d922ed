"""Fields like land cover seen from above: natural colours when plain, false colours when wild."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from tacl.embedded.canvas import SIDE, Colour, Look, blotches, jitter, permuted

PALETTE: dict[str, Colour] = {
    "trees": (35, 85, 45),
    "grass": (115, 150, 75),
    "crops": (185, 170, 90),
    "soil": (150, 110, 75),
    "sand": (220, 190, 130),
    "water": (40, 80, 140),
    "road": (150, 150, 150),
    "roof": (170, 85, 65),
    "metal": (205, 210, 215),
}
Palette = dict[str, Colour]
Pen = ImageDraw.ImageDraw


def palette(look: Look, rng: Generator) -> Palette:
    """The colours of this picture; when wild, permuted and inverted, as in infrared images."""
    colours = np.asarray(list(PALETTE.values()), np.uint8)
    if look.odd(rng, 0.95):
        colours = 255 - permuted(colours, rng)
    return {
        name: jitter(tuple(colour), 8 + 30 * look.wildness, rng)
        for name, colour in zip(PALETTE, colours.astype(int), strict=True)
    }


def curve(rng: Generator, bend: float) -> list[tuple[float, float]]:
    """A line across the whole picture, from one side to the opposite one."""
    along = np.linspace(-5, SIDE + 5, 12)
    phase, waves = rng.uniform(0, 2 * np.pi), rng.uniform(0.6, 1.4)
    slope, middle = rng.uniform(-0.7, 0.7), rng.uniform(0.35, 0.65) * SIDE
    across = middle + slope * (along - SIDE / 2)
    across = across + bend * np.sin(2 * np.pi * waves * along / SIDE + phase)
    pairs = (along, across) if rng.random() < 0.5 else (across, along)
    return list(zip(*pairs, strict=True))


def spots(pen: Pen, colour: Colour, count: int, radius: float, rng: Generator) -> None:
    for x, y in rng.uniform(0, SIDE, (count, 2)):
        r = radius * rng.uniform(0.6, 1.3)
        pen.ellipse([x - r, y - r, x + r, y + r], fill=jitter(colour, 18, rng))


def patchwork(
    pen: Pen, colours: Palette, names: tuple[str, ...], cell: int, rng: Generator
) -> None:
    """Rectangular fields of a few crops, some of them ploughed."""
    edges = np.arange(-int(rng.integers(cell)), SIDE, cell)
    for x in edges.tolist():
        for y in (edges + int(rng.integers(cell)) - cell).tolist():
            colour = jitter(colours[names[rng.integers(len(names))]], 22, rng)
            pen.rectangle([x, y, x + cell - 2, y + cell * 1.6 - 2], fill=colour)


def buildings(pen: Pen, colour: Colour, pitch: int, side: int, rng: Generator) -> None:
    """Blocks along a grid of streets."""
    for x in range(-int(rng.integers(pitch)), SIDE, pitch):
        for y in range(-int(rng.integers(pitch)), SIDE, pitch):
            if rng.random() < 0.85:
                w, h = rng.uniform(0.7, 1.3, 2) * side
                left, top = x + 3 * rng.random(), y + 3 * rng.random()
                pen.rectangle([left, top, left + w, top + h], fill=jitter(colour, 20, rng))


def forest(pen: Pen, colours: Palette, rng: Generator) -> None:
    spots(pen, colours["trees"], 130, 6, rng)


def meadow(pen: Pen, colours: Palette, rng: Generator) -> None:
    spots(pen, colours["grass"], 12, 14, rng)
    spots(pen, colours["trees"], int(rng.integers(2, 8)), 4, rng)


def river(pen: Pen, colours: Palette, rng: Generator) -> None:
    meadow(pen, colours, rng)
    pen.line(curve(rng, 14), colours["water"], int(rng.integers(12, 22)), "curve")


def lake(pen: Pen, colours: Palette, rng: Generator) -> None:
    meadow(pen, colours, rng)
    x, y = rng.uniform(0.35, 0.65, 2) * SIDE
    for _ in range(4):
        dx, dy, rx, ry = *rng.uniform(-9, 9, 2), *rng.uniform(17, 27, 2)
        pen.ellipse([x + dx - rx, y + dy - ry, x + dx + rx, y + dy + ry], fill=colours["water"])


def highway(pen: Pen, colours: Palette, rng: Generator) -> None:
    patchwork(pen, colours, ("grass", "crops", "grass"), 44, rng)
    way = curve(rng, 3)
    pen.line(way, colours["road"], 12, "curve")
    pen.line(way, colours["metal"], 2, "curve")


def crop_fields(pen: Pen, colours: Palette, rng: Generator) -> None:
    patchwork(pen, colours, ("grass", "crops", "soil", "trees"), int(rng.integers(16, 30)), rng)


def village(pen: Pen, colours: Palette, rng: Generator) -> None:
    meadow(pen, colours, rng)
    pen.line(curve(rng, 3), colours["road"], 5)
    buildings(pen, colours["roof"], int(rng.integers(14, 19)), 8, rng)


def factories(pen: Pen, colours: Palette, rng: Generator) -> None:
    pen.rectangle([0, 0, SIDE, SIDE], fill=colours["road"])
    buildings(pen, colours["metal"], int(rng.integers(30, 42)), 24, rng)


def desert(pen: Pen, colours: Palette, rng: Generator) -> None:
    pen.rectangle([0, 0, SIDE, SIDE], fill=colours["sand"])
    slope, bend = rng.uniform(-0.5, 0.5), rng.uniform(0, 2 * np.pi)
    x = np.linspace(0, SIDE, 14)
    for height in np.arange(-40, SIDE + 40, rng.uniform(13, 20)):
        y = height + slope * x + 5 * np.sin(x / 14 + bend)
        pen.line(list(zip(x, y, strict=True)), jitter(colours["soil"], 12, rng), 3)


COVERS = {
    "forest": forest,
    "river": river,
    "lake": lake,
    "highway": highway,
    "crop fields": crop_fields,
    "village": village,
    "factories": factories,
    "desert": desert,
}
NAMES = tuple(COVERS)


def draw(name: str, look: Look, rng: Generator) -> Image.Image:
    """The land cover of this name as an opaque sprite; with clouds over it when wild."""
    colours = palette(look, rng)
    image = Image.new("RGB", (SIDE, SIDE), colours["grass"])
    COVERS[name](ImageDraw.Draw(image), colours, rng)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.ROTATE_90)
    grain = 6 + 12 * look.wildness
    pixels = np.asarray(image, np.float32) + blotches(rng, 24, grain)[..., None]
    if look.odd(rng, 0.5):
        pixels = pixels + np.maximum(blotches(rng, 4, 90), 0)[..., None]
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).convert("RGBA")
