"""Cartoon faces in several moods: plain discs; line drawings with glasses and hats when wild."""

from __future__ import annotations

from numpy.random import Generator
from PIL import Image, ImageDraw

from tacl.embedded.canvas import Look, at, box, jitter, place, sprite

Pen = ImageDraw.ImageDraw
MOODS = ("happy", "sad", "angry", "surprised", "sleeping", "winking", "laughing")
NAMES = tuple(f"{mood} face" for mood in MOODS)
DARK, MOUTH = (30, 25, 25), (150, 40, 50)


def open_eye(pen: Pen, x: float, size: float) -> None:
    pen.ellipse(box(x, -0.2, size, 1.3 * size), fill=DARK)


def closed_eye(pen: Pen, x: float, upwards: bool) -> None:
    start = 180 if upwards else 0
    pen.arc(box(x, -0.15 if upwards else -0.25, 0.17), start, start + 180, DARK, 6)


def brow(pen: Pen, x: float, slope: float) -> None:
    """An eyebrow; a positive slope falls towards the nose."""
    side = 1 if x > 0 else -1
    pen.line(at([(x - side * 0.18, -0.45 + slope), (x + side * 0.18, -0.45 - slope)]), DARK, 6)


def eyes(pen: Pen, mood: str, size: float) -> None:
    for x in (-0.33, 0.33):
        match mood:
            case "sleeping face":
                closed_eye(pen, x, upwards=False)
            case "laughing face":
                closed_eye(pen, x, upwards=True)
            case "winking face" if x > 0:
                pen.line(at([(x - 0.17, -0.2), (x + 0.17, -0.2)]), DARK, 6)
            case _:
                open_eye(pen, x, 1.25 * size if mood == "surprised face" else size)
        if mood == "angry face":
            brow(pen, x, 0.12)
        if mood == "sad face":
            brow(pen, x, -0.1)


def mouth(pen: Pen, mood: str) -> None:
    match mood:
        case "happy face" | "winking face":
            pen.arc(box(0, 0.12, 0.5, 0.45), 20, 160, DARK, 7)
        case "sad face" | "angry face":
            pen.arc(box(0, 0.75, 0.42, 0.4), 205, 335, DARK, 7)
        case "surprised face":
            pen.ellipse(box(0, 0.42, 0.17, 0.23), fill=MOUTH, outline=DARK, width=3)
        case "laughing face":
            pen.chord(box(0, 0.15, 0.5, 0.5), 0, 180, fill=MOUTH, outline=DARK, width=3)
        case _:
            pen.line(at([(-0.2, 0.45), (0.2, 0.45)]), DARK, 6)


def dress(pen: Pen, look: Look, rng: Generator) -> None:
    """Draws glasses, a hat or a scarf on some faces when the look is wild."""
    colour = jitter((128, 128, 128), 110, rng)
    if look.odd(rng, 0.3):
        for x in (-0.33, 0.33):
            pen.ellipse(box(x, -0.2, 0.27), outline=colour, width=4)
    if look.odd(rng, 0.4):
        pen.rectangle(box(0, -0.78, 0.75, 0.16), fill=colour)
    if look.odd(rng, 0.3):
        pen.rectangle(box(0, 0.9, 0.8, 0.14), fill=colour)


def draw(name: str, look: Look, rng: Generator) -> Image.Image:
    """The sprite of a face by its mood, its skin a light shade of the ink colour."""
    image, pen = sprite()
    line_drawing = look.odd(rng, 0.5)
    skin = tuple(110 + 135 * channel // 255 for channel in look.ink)
    fill = (225, 220, 210) if line_drawing else skin
    pen.ellipse(box(0, 0, 0.88, 0.88 - 0.2 * look.wildness * rng.random()), fill=fill)
    if line_drawing:
        pen.ellipse(box(0, 0, 0.88), outline=look.ink, width=5)
    eyes(pen, name, rng.uniform(0.1, 0.15))
    mouth(pen, name)
    dress(pen, look, rng)
    return place(image, look, rng, turn=40)
