"""Checkpoints of one run: folders named by step; complete or absent, the newest two are kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from cluster import steps

KEPT = 2


class Checkpoints:
    """`folder`/STEP, on storage that every node of the run sees."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def newest(self) -> tuple[int, Path] | None:
        """(step, path) of the newest complete checkpoint."""
        steps = self._steps()
        return (steps[-1], self._place(steps[-1])) if steps else None

    def beside(self, step: int) -> Path:
        """An empty place to write a checkpoint that is not complete yet."""
        folder = self._folder / f".{step}.writing"
        shutil.rmtree(folder, ignore_errors=True)  # of an attempt that died while it wrote
        folder.mkdir(parents=True)
        return folder

    def complete(self, step: int, written: Path) -> None:
        """The rename that makes it visible; then older ones go."""
        place = self._place(step)
        if place.exists():  # the same step of an earlier attempt: the same content
            shutil.rmtree(written)
        else:
            steps.reached("checkpoint written")
            written.rename(place)
            steps.reached("checkpoint complete")
        for old in self._steps()[:-KEPT]:
            shutil.rmtree(self._place(old))

    def write(self, step: int, save: Callable[[Path], None]) -> None:
        """All of it at once, for one process."""
        folder = self.beside(step)
        save(folder)
        self.complete(step, folder)

    def clear(self) -> None:
        """Nothing is kept of a run that has its result."""
        shutil.rmtree(self._folder, ignore_errors=True)
        steps.reached("checkpoints cleared")

    def _place(self, step: int) -> Path:
        return self._folder / str(step)

    def _steps(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())
