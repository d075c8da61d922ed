"""The embedded tasks: the pictures that each shows, its classes, and labelled rows from a seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from PIL import Image

from tacl.embedded import faces, glyphs, land, shapes, signs, textures
from tacl.embedded.canvas import COLOURS, SIZE, Look, compose, develop, jitter, two_colours


@dataclass(frozen=True)
class Task:
    """A classification task: its class names, how one is drawn, and how hard it looks."""

    classes: tuple[str, ...]
    draw: Callable[[str, Look, Generator], Image.Image]
    wildness: float


TASKS: dict[str, Task] = {
    "digits": Task(tuple(glyphs.DIGITS), glyphs.draw, 0.8),
    "shapes": Task(shapes.NAMES, shapes.draw, 0.8),
    "textures": Task(textures.NAMES, textures.draw, 0.8),
    "signs": Task(signs.NAMES, signs.draw, 0.8),
    "land": Task(land.NAMES, land.draw, 0.8),
    "faces": Task(faces.NAMES, faces.draw, 0.8),
}


def tasks() -> tuple[str, ...]:
    """The names of the embedded tasks, in the order in which the demo submits them."""
    return tuple(TASKS)


def classes(task: str) -> tuple[str, ...]:
    """The readable class names of a task, by label."""
    return TASKS[task].classes


def render(task: str, name: str, rng: Generator) -> np.ndarray:
    """One picture of the class, uint8 [SIZE, SIZE, 3]; all that varies is drawn from `rng`."""
    family = TASKS[task]
    ink, ground = two_colours(rng, 120)
    look = Look(jitter(COLOURS[ink], 30, rng), jitter(COLOURS[ground], 30, rng), family.wildness)
    return develop(compose(family.draw(name, look, rng), look, rng), look, rng)


def row_rng(stream: str, seed: int, row: int) -> Generator:
    """The random numbers of one row: a row does not depend on how many rows are made."""
    return np.random.default_rng([seed, zlib.crc32(stream.encode()), row])


def generate(task: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labelled pictures: uint8 [rows, SIZE, SIZE, 3] and int64 [rows], classes in turn."""
    names = classes(task)
    images = np.empty((rows, SIZE, SIZE, 3), np.uint8)
    for row in range(rows):
        images[row] = render(task, names[row % len(names)], row_rng(task, seed, row))
    return images, np.arange(rows, dtype=np.int64) % len(names)
