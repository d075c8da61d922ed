"""Makes a table: every variant with every seed, written after each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.reproduce import table as tables
from jobs.reproduce.bench import Base, Bench
from jobs.reproduce.cells import Cells
from jobs.reproduce.spec import Spec
from jobs.reproduce.table import Table
from jobs.suites import Suite
from tacl.errors import BadConfig

CELLS = ".cells"  # in the folder of the tables; may be deleted, and then all is computed again


@dataclass(frozen=True)
class Request:
    """What was asked for. `command` is kept with the table."""

    spec: Spec
    suite: Suite
    data: Path
    out: Path
    variants: Sequence[str]
    seeds: Sequence[int]
    command: str


@dataclass(frozen=True)
class Done:
    """`files`: the table as JSON, Markdown and picture; `made`: the cells computed this time."""

    table: Table
    files: list[Path]
    made: list[str]


def require_known(spec: Spec, suite: Suite, variants: Sequence[str]) -> list[str]:
    """The variants to make, all by default. BadConfig for one that this table does not have."""
    known = list(spec.variants(suite))
    unknown = [name for name in variants if name not in known]
    if unknown:
        raise BadConfig(
            f"{spec.name} has no method {', '.join(unknown)}; there are {', '.join(known)}"
        )
    return list(variants) or known


def reproduce(request: Request, say: Callable[[str], None] = lambda line: None) -> Done:
    """Computes what is not finished yet, seed by seed; the files are whole at every moment."""
    cells = Cells(request.out / CELLS, say)
    base = Base.of(request.suite)
    table, files = _known(request, base), []
    for seed in request.seeds:
        bench = Bench(request.suite, seed, request.data, cells, base)
        table.data = _sizes(bench)
        for variant in request.variants:
            say(f"{request.spec.name}: {variant}, seed {seed}")
            table.add(request.spec.entry(bench, variant))
            request.spec.finish(table)
            files = tables.write(table, request.out, request.spec.picture)
    return Done(table, files, cells.made)


def _known(request: Request, base: Base) -> Table:
    spec, suite = request.spec, request.suite
    settings = {"suite": suite.as_dict(), "base": base.backbone.digest}
    fresh = Table(
        f"{spec.name}-{suite.name}",
        f"{spec.name}, {suite.name}",
        spec.about,
        spec.columns,
        settings,
        commands=[request.command],
    )
    return tables.grown(fresh, request.out / f"{fresh.name}.json")


def _sizes(bench: Bench) -> dict[str, dict[str, int]]:
    names = [*bench.pool, *bench.suite.generics]
    parts = {"train": "train", "validation": "validation", "test": "test", "shared": "shard"}
    return {
        name: {
            "classes": len(bench.rows(name).classes),
            **{shown: bench.rows(name).count(part) for shown, part in parts.items()},
        }
        for name in names
    }
