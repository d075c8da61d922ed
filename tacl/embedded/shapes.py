"""Flat geometric shapes: filled when plain; hollow or dotted, and turned any way, when wild."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from tacl.embedded.canvas import Look, at, place, sprite

NAMES = ("circle", "triangle", "square", "hexagon", "star", "cross", "heart", "crescent", "arrow")


def regular(corners: int, radius: float = 0.75) -> np.ndarray:
    """The corners [corners, 2] of a regular polygon that stands on a side or a corner."""
    angle = 2 * np.pi * np.arange(corners) / corners - np.pi / 2
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def star() -> np.ndarray:
    return regular(10) * np.where(np.arange(10) % 2, 0.42, 1.0)[:, None]


def heart() -> np.ndarray:
    t = np.linspace(0, 2 * np.pi, 48)
    x = 16 * np.sin(t) ** 3
    y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t))
    return np.stack([x, y], axis=1) / 22


def crescent() -> np.ndarray:
    outer, inner = np.linspace(0.35 * np.pi, 1.65 * np.pi, 32), np.linspace(1.6, 0.4, 32) * np.pi
    far = 0.75 * np.stack([np.cos(outer), np.sin(outer)], axis=1)
    near = 0.6 * np.stack([np.cos(inner) + 0.55, np.sin(inner)], axis=1)
    return np.concatenate([far, near]) + np.array([0.2, 0])


CORNERS = {
    "cross": [
        (-0.22, -0.75), (0.22, -0.75), (0.22, -0.22), (0.75, -0.22), (0.75, 0.22), (0.22, 0.22),
        (0.22, 0.75), (-0.22, 0.75), (-0.22, 0.22), (-0.75, 0.22), (-0.75, -0.22), (-0.22, -0.22),
    ],
    "arrow": [
        (-0.8, -0.2), (0.05, -0.2), (0.05, -0.6), (0.8, 0), (0.05, 0.6), (0.05, 0.2), (-0.8, 0.2),
    ],
    "square": [(-0.6, -0.6), (0.6, -0.6), (0.6, 0.6), (-0.6, 0.6)],
    "circle": regular(48, 0.7), "triangle": regular(3, 0.8), "hexagon": regular(6), "star": star(),
    "heart": heart(), "crescent": crescent(),
}  # fmt: skip


def outline(name: str) -> np.ndarray:
    """The corners [P, 2] of a shape in [-1, 1]^2."""
    return np.asarray(CORNERS[name])


def dotted(pen: ImageDraw.ImageDraw, corners: np.ndarray, ink: tuple[int, int, int]) -> None:
    """Draws the outline as a chain of dots, evenly spaced along its length."""
    closed = np.concatenate([corners, corners[:1]])
    length = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(closed, axis=0), axis=1))])
    along = np.linspace(0, length[-1], 26, endpoint=False)
    dots = np.stack([np.interp(along, length, closed[:, axis]) for axis in (0, 1)], axis=1)
    for x, y in at(dots):
        pen.ellipse([x - 4, y - 4, x + 4, y + 4], fill=ink)


def draw(name: str, look: Look, rng: Generator) -> Image.Image:
    """The sprite of a shape by its name."""
    image, pen = sprite()
    corners = outline(name)
    if look.odd(rng, 0.35):
        dotted(pen, corners, look.ink)
    elif look.odd(rng, 0.6):
        points = at(corners)
        pen.line([*points, points[0], points[1]], look.ink, int(rng.integers(5, 9)), "curve")
    else:
        pen.polygon(at(corners), fill=look.ink)
    return place(image, look, rng, turn=90 if name == "arrow" else 60)
