"""A suite of three small tasks of patterns, which runs in seconds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.experiments.cache import Cells
from jobs.experiments.catalogue import TABLES
from jobs.experiments.context import Experiment, LoadedBase
from jobs.experiments.runner import TableRequest
from jobs.experiments.suites import Suite, sources
from tacl.training.config import RefreshConfig
from tests.support import tiny

REFRESH = RefreshConfig(seed=0, steps=4, samples=16, batch=8, other_batch=4)


def data(folder: Path) -> Path:
    """Write Parquet files as on a hub; four classes each, three in the generic set."""
    for task, name in enumerate(("one", "two", "three", "generic", "target")):
        classes = 3 if name == "generic" else 4
        for seed, (part, rows) in enumerate({"train": 48, "test": 20}.items()):
            images, labels = tiny.pictures(rows, classes, seed, task=task)
            path = folder / name / f"{part}-00000.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"image": images, "label": labels}), path)
    return folder


def suite(folder: Path) -> Suite:
    return Suite(
        "small",
        tiny.base(folder),
        sources("one two three"),
        sources("generic"),
        sources("target"),
        steps=6,
        learning_rate=1e-3,
        batch=8,
        penalty_batch=2,
        refresh=REFRESH,
    )


def request(
    folder: Path, out: str, table: str, variants: list[str], seeds: tuple[int, ...] = (0,)
) -> TableRequest:
    """`folder` has the data and the base, `out` is a folder in it."""
    source = folder / "data"
    if not source.is_dir():
        data(source)
    spec, chosen = TABLES[table], suite(folder)
    return TableRequest(
        spec, chosen, source, folder / out, variants, seeds, f"tacl reproduce {table}"
    )


def bench_of(request: TableRequest) -> Experiment:
    """The experiment of the first seed, over the cells that a table left."""
    cells, base = Cells(request.out / ".cells"), LoadedBase.of(request.suite)
    return Experiment(request.suite, request.seeds[0], request.data, cells, base)
