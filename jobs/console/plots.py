"""The interference matrix as a picture: changes of logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a file, never a window

import matplotlib.pyplot as plt
import numpy as np


def heat_map(matrix: dict[str, Any], path: Path) -> Path:
    """Write a PNG: a row per vector, a column per probe, relative to each task's own vector.

    Pairs that are not measured stay blank; a probe without a vector of its own (generic) has no
    relative value and is left out.
    """
    rows = [vector["task"] for vector in matrix["vectors"]]
    kept = [i for i, name in enumerate(matrix["on"]) if name in rows]
    columns = [matrix["on"][i] for i in kept]
    values = np.array(
        [[np.nan if row[i] is None else row[i] for i in kept] for row in matrix["logits"]],
        dtype=float,
    ).reshape(len(rows), len(kept))
    size = (2.6 + 0.62 * len(columns), 1.9 + 0.5 * len(rows))
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    image = axes.imshow(values, cmap="magma_r", vmin=0, vmax=1)
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel("on the samples of")
    axes.set_ylabel("vector of")
    axes.set_title("change of the logits, relative to that by the own vector", fontsize=10)
    for (i, j), value in np.ndenumerate(values):
        if not np.isnan(value):
            shade = "white" if value > 0.5 else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=shade, fontsize=8)
    figure.colorbar(image, shrink=0.8, extend="max")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
