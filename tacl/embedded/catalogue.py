"""The embedded tasks: the pictures that each shows, its classes, and labelled rows from a seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from PIL import Image

from tacl.embedded import canvas, faces, glyphs, land, shapes, signs, textures

WILDNESS = 0.2


@dataclass(frozen=True)
class Task:
    """A classification task: its class names, and how one is drawn."""

    classes: tuple[str, ...]
    draw: Callable[[str, canvas.Look, Generator], Image.Image]


TASKS: dict[str, Task] = {
    "digits": Task(tuple(glyphs.DIGITS), glyphs.draw),
    "shapes": Task(shapes.NAMES, shapes.draw),
    "textures": Task(textures.NAMES, textures.draw),
    "signs": Task(signs.NAMES, signs.draw),
    "land": Task(land.NAMES, land.draw),
    "faces": Task(faces.NAMES, faces.draw),
}


def tasks() -> tuple[str, ...]:
    """The names of the embedded tasks, in the order in which the demo submits them."""
    return tuple(TASKS)


def classes(task: str) -> tuple[str, ...]:
    """The readable class names of a task, by label."""
    return TASKS[task].classes


def render(task: str, name: str, rng: Generator) -> np.ndarray:
    """One picture of the class, uint8 [SIZE, SIZE, 3]; all that varies is drawn from `rng`.

    Tasks show outlines, pre-training whole surfaces: a base model that has to learn.
    """
    ink, ground = canvas.two_colours(rng, 120)
    look = canvas.Look(
        canvas.jitter(canvas.COLOURS[ink], 30, rng),
        canvas.jitter(canvas.COLOURS[ground], 30, rng),
        WILDNESS,
    )
    return canvas.outlined(
        canvas.develop(canvas.compose(TASKS[task].draw(name, look, rng), look, rng), look, rng)
    )


def row_rng(stream: str, seed: int, row: int) -> Generator:
    """The random numbers of one row: a row does not depend on how many rows are made."""
    return np.random.default_rng([seed, zlib.crc32(stream.encode()), row])


def generate(task: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labelled pictures: uint8 [rows, SIZE, SIZE, 3] and int64 [rows], classes in turn."""
    names = classes(task)
    images = np.empty((rows, canvas.SIZE, canvas.SIZE, 3), np.uint8)
    for row in range(rows):
        images[row] = render(task, names[row % len(names)], row_rng(task, seed, row))
    return images, np.arange(rows, dtype=np.int64) % len(names)
