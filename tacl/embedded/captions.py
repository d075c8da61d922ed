"""What the embedded encoder is pre-trained on: cleaner pictures of the same things, captioned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from PIL import Image

from tacl.embedded import faces, glyphs, land, shapes, signs, textures
from tacl.embedded.canvas import COLOURS, SIZE, Look, compose, develop, jitter, two_colours
from tacl.embedded.catalogue import row_rng

WILDEST = 0.12  # pre-training pictures are at most this wild; the tasks are wilder, and outlines

PLAIN = "{name}"
INKED = (PLAIN, PLAIN, "{ink} {name}", "{ink} {name} on {ground}")


@dataclass(frozen=True)
class Family:
    """Pictures of one kind: what they show, how they are drawn, captioned, and how often."""

    names: tuple[str, ...]
    draw: Callable[[str, Look, Generator], Image.Image]
    captions: tuple[str, ...]
    share: int


FAMILIES = (
    Family(tuple(glyphs.DIGITS), glyphs.draw, INKED, 4),
    Family(tuple(glyphs.LETTERS), glyphs.draw, INKED, 1),
    Family(shapes.NAMES, shapes.draw, INKED, 3),
    Family(textures.NAMES, textures.draw, (PLAIN, PLAIN, "{name} in {ink} and {ground}"), 1),
    Family(signs.NAMES, signs.draw, (PLAIN,), 1),
    Family(land.NAMES, land.draw, (PLAIN, "{name} from above"), 1),
    Family(faces.NAMES, faces.draw, (PLAIN,), 2),
)
TURNS = tuple(family for family in FAMILIES for _ in range(family.share))


def scene(rng: Generator) -> tuple[np.ndarray, str]:
    """A random picture uint8 [SIZE, SIZE, 3] and its caption."""
    family = TURNS[rng.integers(len(TURNS))]
    name = family.names[rng.integers(len(family.names))]
    ink, ground = two_colours(rng, 150)
    wildness = WILDEST * rng.random()
    look = Look(jitter(COLOURS[ink], 15, rng), jitter(COLOURS[ground], 15, rng), wildness)
    image = develop(compose(family.draw(name, look, rng), look, rng), look, rng)
    caption = family.captions[rng.integers(len(family.captions))]
    return image, caption.format(name=name, ink=ink, ground=ground)


def captioned(rows: int, seed: int, start: int = 0) -> tuple[np.ndarray, list[str]]:
    """Rows start .. start + rows of a stream: uint8 [rows, SIZE, SIZE, 3] and their captions."""
    images, captions = np.empty((rows, SIZE, SIZE, 3), np.uint8), []
    for row in range(rows):
        images[row], caption = scene(row_rng("captioned", seed, start + row))
        captions.append(caption)
    return images, captions


def generic(rows: int, seed: int) -> np.ndarray:
    """The generic reference shard: unlabelled scenes, uint8 [rows, SIZE, SIZE, 3]."""
    images = np.empty((rows, SIZE, SIZE, 3), np.uint8)
    for row in range(rows):
        images[row], _ = scene(row_rng("generic", seed, row))
    return images
