"""The files of a table: JSON for programs, Markdown for readers, and a picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from cluster.storage.drafts import atomic_path
from jobs.experiments.markdown import markdown
from jobs.experiments.table import Table


def write(table: Table, folder: Path, picture: Callable[[Table, Path], None] | None) -> list[Path]:
    """Write NAME.json, NAME.md and, with a `picture`, NAME.png, each completely or not at all."""
    kinds = ("json", "md", "png") if picture else ("json", "md")
    paths = [folder / f"{table.name}.{kind}" for kind in kinds]
    with atomic_path(paths[0]) as path:
        path.write_text(json.dumps(table.as_dict(), indent=1, sort_keys=True) + "\n")
    with atomic_path(paths[1]) as path:
        path.write_text(markdown(table))
    if picture:
        with atomic_path(paths[2]) as path:
            picture(table, path)
    return paths
