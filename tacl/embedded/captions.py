"""What the embedded encoder is pre-trained on: clean pictures of the tasks' vocabulary with captions."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from tacl.embedded import faces, glyphs, land, shapes, signs, textures
from tacl.embedded.canvas import COLOURS, SIZE, Look, compose, develop, jitter, two_colours
from tacl.embedded.catalogue import row_rng

WILDEST = 0.35  # pre-training pictures are at most this wild; the tasks are wilder

COLOURED = (
    "{ink} {name}",
    "a {ink} {name}",
    "a {ink} {name} on {ground}",
    "{name}, {ink} on {ground}",
)
NAMED = ("{name}", "a {name}", "a picture of a {name}", "a photo of a {name}.", "this is a {name}.")

FAMILIES = (
    (tuple(glyphs.DIGITS), glyphs.draw, COLOURED + NAMED),
    (tuple(glyphs.LETTERS), glyphs.draw, COLOURED + NAMED),
    (shapes.NAMES, shapes.draw, COLOURED + NAMED),
    (textures.NAMES, textures.draw, ("{name} in {ink} and {ground}",) + NAMED),
    (signs.NAMES, signs.draw, NAMED),
    (land.NAMES, land.draw, ("{name} from above", "a satellite picture of {name}") + NAMED),
    (faces.NAMES, faces.draw, NAMED),
)


def scene(rng: Generator) -> tuple[np.ndarray, str]:
    """A random picture uint8 [SIZE, SIZE, 3] and its caption."""
    names, draw, templates = FAMILIES[rng.integers(len(FAMILIES))]
    name = names[rng.integers(len(names))]
    ink, ground = two_colours(rng, 150)
    look = Look(
        jitter(COLOURS[ink], 15, rng),
        jitter(COLOURS[ground], 15, rng),
        WILDEST * rng.random(),
    )
    image = develop(compose(draw(name, look, rng), look, rng), look, rng)
    caption = templates[rng.integers(len(templates))]
    return image, caption.format(name=name, ink=ink, ground=ground)


def captioned(rows: int, seed: int, start: int = 0) -> tuple[np.ndarray, list[str]]:
    """Rows start .. start + rows of the captioned stream: uint8 [rows, SIZE, SIZE, 3] and captions."""
    scenes = [scene(row_rng("captioned", seed, start + row)) for row in range(rows)]
    images = np.stack([image for image, _ in scenes]) if scenes else empty()
    return images, [caption for _, caption in scenes]


def generic(rows: int, seed: int) -> np.ndarray:
    """The generic reference shard: unlabelled scenes, uint8 [rows, SIZE, SIZE, 3]."""
    scenes = [scene(row_rng("generic", seed, row))[0] for row in range(rows)]
    return np.stack(scenes) if scenes else empty()


def empty() -> np.ndarray:
    return np.empty((0, SIZE, SIZE, 3), np.uint8)
