"""Pictures in files; the interference matrix as a heat map."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # writes a file, never opens a window

import matplotlib.pyplot as plt
import numpy as np

from cluster.domain.reports import InterferenceReport


@contextmanager
def drawing(
    path: Path, title: str, width: float = 7.0, height: float = 4.0, across: int = 1, down: int = 1
) -> Iterator[Any]:
    """Axes, or an array of them, that are saved as a PNG."""
    figure, axes = plt.subplots(
        down, across, figsize=(width, height), layout="constrained", squeeze=False
    )
    figure.suptitle(title, fontsize=10)
    try:
        yield axes[0][0] if across == down == 1 else axes
        figure.savefig(path, dpi=150, format="png", metadata={"Software": None})
    finally:
        plt.close(figure)


def heat_map(report: InterferenceReport, path: Path) -> Path:
    """Write a PNG: a row per vector, a column per task's probe, relative to its own vector.

    Pairs that are not measured stay blank; a probe without a vector of its own (generic) has no
    relative value and is left out.
    """
    rows = [vector.task for vector in report.vectors]
    kept = [i for i, name in enumerate(report.on) if name in rows]
    columns = [report.on[i] for i in kept]
    logits = [[row[i] for i in kept] for row in report.logits]
    values = np.array(logits, dtype=float).reshape(len(rows), len(kept))  # None as nan
    size = (2.6 + 0.62 * len(columns), 1.9 + 0.5 * len(rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing(path, "change of the logits, relative to the task's own vector", *size) as axes:
        image = axes.imshow(values, cmap="magma_r", vmin=0, vmax=1)
        axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel("on probe rows of")
        axes.set_ylabel("vector of")
        for (i, j), value in np.ndenumerate(values):
            if not np.isnan(value):
                shade = "white" if value > 0.5 else "black"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=shade, fontsize=8)
        axes.figure.colorbar(image, shrink=0.8, extend="max")
    return path
