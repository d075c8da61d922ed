"""Symbols like those of traffic signs; faded and dirty when wild."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from tacl.embedded.canvas import COLOURS, Look, at, box, jitter, permuted, place, scribble, sprite
from tacl.embedded.glyphs import font
from tacl.embedded.shapes import outline, regular

Pen = ImageDraw.ImageDraw
RED, BLUE, WHITE = (200, 30, 40), (30, 80, 190), (245, 245, 245)
YELLOW, BLACK = COLOURS["yellow"], COLOURS["black"]


def write(pen: Pen, text: str, size: int, ink: tuple[int, int, int]) -> None:
    pen.text(at([(0, 0)])[0], text, fill=ink, font=font("DejaVuSans-Bold", size), anchor="mm")


def disc(pen: Pen, rim: tuple[int, int, int], face: tuple[int, int, int], width: float) -> None:
    pen.ellipse(box(0, 0, 0.85), fill=rim)
    pen.ellipse(box(0, 0, 0.85 - width), fill=face)


def stop(pen: Pen, rng: Generator) -> None:
    pen.regular_polygon((48, 48, 42), 8, rotation=22, fill=RED, outline=WHITE)
    write(pen, "STOP", 23, WHITE)


def give_way(pen: Pen, rng: Generator) -> None:
    pen.polygon(at([(-0.9, -0.75), (0.9, -0.75), (0, 0.85)]), fill=RED)
    pen.polygon(at([(-0.55, -0.55), (0.55, -0.55), (0, 0.45)]), fill=WHITE)


def no_entry(pen: Pen, rng: Generator) -> None:
    disc(pen, RED, RED, 0)
    pen.rectangle(box(0, 0, 0.6, 0.17), fill=WHITE)


def speed_limit(pen: Pen, rng: Generator) -> None:
    disc(pen, RED, WHITE, 0.2)
    write(pen, str(rng.choice([30, 40, 50, 60, 70, 80, 90])), 36, BLACK)


def warning(pen: Pen, rng: Generator) -> None:
    pen.polygon(at([(0, -0.85), (0.9, 0.75), (-0.9, 0.75)]), fill=RED)
    pen.polygon(at([(0, -0.45), (0.56, 0.55), (-0.56, 0.55)]), fill=WHITE)
    pen.line(at([(0, -0.15), (0, 0.25)]), BLACK, 8)
    pen.ellipse(box(0, 0.42, 0.08), fill=BLACK)


def turn(pen: Pen, side: int) -> None:
    disc(pen, WHITE, BLUE, 0.06)
    pen.polygon(at([(side * x * 0.75, y * 0.75) for x, y in outline("arrow")]), fill=WHITE)


def priority_road(pen: Pen, rng: Generator) -> None:
    pen.polygon(at(regular(4, 0.9)), fill=WHITE)
    pen.polygon(at(regular(4, 0.62)), fill=YELLOW)


def parking(pen: Pen, rng: Generator) -> None:
    pen.rectangle(box(0, 0, 0.78), fill=BLUE)
    write(pen, "P", 66, WHITE)


SIGNS = {
    "stop sign": stop,
    "give way sign": give_way,
    "no entry sign": no_entry,
    "speed limit sign": speed_limit,
    "warning sign": warning,
    "turn left sign": lambda pen, rng: turn(pen, -1),
    "turn right sign": lambda pen, rng: turn(pen, 1),
    "priority road sign": priority_road,
    "parking sign": parking,
}
NAMES = tuple(SIGNS)


def fade(image: Image.Image, look: Look, rng: Generator) -> Image.Image:
    """The sign, when wild bleached, covered with strokes and in permuted colours."""
    alpha = image.getchannel("A")
    if look.odd(rng, 0.7):
        image = Image.fromarray(permuted(np.asarray(image), rng))
    bleach = Image.new("RGBA", image.size, (*jitter((150, 150, 150), 90, rng), 255))
    worn = Image.blend(image, bleach, 0.5 * look.wildness * rng.random())
    scribble(worn, rng.poisson(1.5 * look.wildness), 8, rng)
    worn.putalpha(alpha)
    return worn


def draw(name: str, look: Look, rng: Generator) -> Image.Image:
    """The sprite of a sign by its name, in the sign's own colours."""
    image, pen = sprite()
    SIGNS[name](pen, rng)
    return place(fade(image, look, rng), look, rng, turn=30)
