"""The embedded pictures, drawn from a seed: labelled ones of the tasks, and cleaner, captioned ones
of the same things that the encoder is pre-trained on."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from PIL import Image

from tacl.embedded import faces, glyphs, land, shapes, signs, textures
from tacl.embedded.canvas import (
    COLOURS,
    SIZE,
    Look,
    compose,
    develop,
    jitter,
    outlined,
    two_colours,
)

WILDNESS = 0.2
WILDEST = 0.12  # pre-training pictures are at most this wild; those of tasks are wilder outlines

PLAIN = "{name}"
INKED = (PLAIN, PLAIN, "{ink} {name}", "{ink} {name} on {ground}")


@dataclass(frozen=True)
class Family:
    """Pictures of one kind: what they show and how one is drawn; for pre-training also how they
    are captioned and how often they are drawn."""

    names: tuple[str, ...]
    draw: Callable[[str, Look, Generator], Image.Image]
    captions: tuple[str, ...]
    share: int


LETTERS = Family(tuple(glyphs.LETTERS), glyphs.draw, INKED, 1)  # of no task
TASKS = {
    "digits": Family(tuple(glyphs.DIGITS), glyphs.draw, INKED, 4),
    "shapes": Family(shapes.NAMES, shapes.draw, INKED, 3),
    "textures": Family(
        textures.NAMES, textures.draw, (PLAIN, PLAIN, "{name} in {ink} and {ground}"), 1
    ),
    "signs": Family(signs.NAMES, signs.draw, (PLAIN,), 1),
    "land": Family(land.NAMES, land.draw, (PLAIN, "{name} from above"), 1),
    "faces": Family(faces.NAMES, faces.draw, (PLAIN,), 2),
}
FAMILIES = (TASKS["digits"], LETTERS, *list(TASKS.values())[1:])
TURNS = tuple(family for family in FAMILIES for _ in range(family.share))


def tasks() -> tuple[str, ...]:
    """The names of the embedded tasks, in the order in which the demo submits them."""
    return tuple(TASKS)


def classes(task: str) -> tuple[str, ...]:
    """The readable class names of a task, by label."""
    return TASKS[task].names


def drawn(
    family: Family,
    name: str,
    colours: tuple[str, str],
    spread: float,
    wildness: float,
    rng: Generator,
) -> np.ndarray:
    """One picture, uint8 [SIZE, SIZE, 3], in about these colours (ink, ground); everything else
    that varies is drawn from `rng`."""
    ink, ground = (jitter(COLOURS[colour], spread, rng) for colour in colours)
    look = Look(ink, ground, wildness)
    return develop(compose(family.draw(name, look, rng), look, rng), look, rng)


def render(task: str, name: str, rng: Generator) -> np.ndarray:
    """One picture of the class, uint8 [SIZE, SIZE, 3]; all that varies is drawn from `rng`.

    Tasks show outlines, pre-training whole surfaces, so that the base model still has to learn.
    """
    return outlined(drawn(TASKS[task], name, two_colours(rng, 120), 30, WILDNESS, rng))


def scene(rng: Generator) -> tuple[np.ndarray, str]:
    """A random picture uint8 [SIZE, SIZE, 3] and its caption."""
    family = TURNS[rng.integers(len(TURNS))]
    name = family.names[rng.integers(len(family.names))]
    ink, ground = two_colours(rng, 150)
    image = drawn(family, name, (ink, ground), 15, WILDEST * rng.random(), rng)
    caption = family.captions[rng.integers(len(family.captions))]
    return image, caption.format(name=name, ink=ink, ground=ground)


def row_rng(stream: str, seed: int, row: int) -> Generator:
    """The random generator of one row, so that a row does not depend on how many are made."""
    return np.random.default_rng([seed, zlib.crc32(stream.encode()), row])


def generate(task: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labelled pictures: uint8 [rows, SIZE, SIZE, 3] and int64 [rows], classes in turn."""
    names = classes(task)
    images = np.empty((rows, SIZE, SIZE, 3), np.uint8)
    for row in range(rows):
        images[row] = render(task, names[row % len(names)], row_rng(task, seed, row))
    return images, np.arange(rows, dtype=np.int64) % len(names)


def captioned(
    rows: int, seed: int, start: int = 0, stream: str = "captioned"
) -> tuple[np.ndarray, list[str]]:
    """Rows start .. start + rows of a stream: uint8 [rows, SIZE, SIZE, 3] and their captions."""
    images, captions = np.empty((rows, SIZE, SIZE, 3), np.uint8), []
    for row in range(rows):
        images[row], caption = scene(row_rng(stream, seed, start + row))
        captions.append(caption)
    return images, captions


def generic(rows: int, seed: int) -> np.ndarray:
    """The generic reference shard: unlabelled scenes, uint8 [rows, SIZE, SIZE, 3]."""
    return captioned(rows, seed, stream="generic")[0]
