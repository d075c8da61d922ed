"""A base and tasks small enough to train in seconds: a random transformer, patterns under noise."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 32


def base(folder: Path) -> str:
    """The spec of a vision transformer of 0.3 million random weights, written into `folder`."""
    import safetensors.torch
    import timm
    import torch

    torch.manual_seed(0)
    model = timm.create_model("test_vit", pretrained=False, num_classes=0)
    path = folder / "tiny.safetensors"
    safetensors.torch.save_file(model.state_dict(), path)
    return f"timm:test_vit@{path}?size={SIDE}"


def pictures(
    rows: int, classes: int = 4, seed: int = 0, noise: float = 60.0, task: int = 0
) -> tuple[list[bytes], list[int]]:
    """PNG images and labels; a class is one coarse pattern of its task, a row adds noise."""
    patterns = np.random.default_rng([1, task]).integers(40, 216, (classes, 4, 4, 3))
    random = np.random.default_rng([2, task, seed])
    labels = [row % classes for row in range(rows)]
    return [_png(patterns[label], noise, random) for label in labels], labels


def _png(pattern: np.ndarray, noise: float, random: np.random.Generator) -> bytes:
    pixels = np.kron(pattern, np.ones((SIDE // 4, SIDE // 4, 1)))
    pixels = pixels + random.normal(0, noise, pixels.shape)
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, format="PNG")
    return file.getvalue()
