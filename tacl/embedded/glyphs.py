"""Digits and letters, set in the fonts that matplotlib ships."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from numpy.random import Generator
from PIL import Image, ImageFont

from tacl.embedded.canvas import SIDE, Look, place, sprite

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIGITS = {f"digit {word}": str(digit) for digit, word in enumerate(WORDS)}
LETTERS = {f"letter {letter}": letter.upper() for letter in "abcdefghjklmnpqrstuvwxyz"}

BOOK_FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono-Bold")
ODD_FONTS = (
    *("DejaVuSerif-BoldItalic", "DejaVuSans-BoldOblique", "DejaVuSansMono-Oblique"),
    *("STIXGeneralBolIta", "STIXGeneralItalic", "cmb10", "cmss10", "cmtt10", "cmti10"),
)


@lru_cache
def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font from matplotlib's package data, which are the same on every machine.

    matplotlib itself is not imported. Raises FileNotFoundError when it is not installed.
    """
    found = find_spec("matplotlib")
    if found is None or found.origin is None:
        raise FileNotFoundError(
            "the embedded digits need the fonts of matplotlib: install matplotlib"
        )
    folder = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"
    return ImageFont.truetype(folder / f"{name}.ttf", size)


def draw(name: str, look: Look, rng: Generator) -> Image.Image:
    """The sprite of a glyph by its name ("digit seven"); odd fonts and outlines when wild."""
    character = DIGITS.get(name) or LETTERS[name]
    fonts = ODD_FONTS if look.odd(rng, 0.85) else BOOK_FONTS
    face = font(fonts[rng.integers(len(fonts))], int(rng.integers(76, 92)))
    image, pen = sprite()
    hollow = look.odd(rng, 0.4)
    pen.text(
        (SIDE / 2, SIDE / 2),
        character,
        fill=look.ground if hollow else look.ink,
        font=face,
        anchor="mm",
        stroke_width=4 if hollow else 0,
        stroke_fill=look.ink,
    )
    return place(image, look, rng, turn=25)
