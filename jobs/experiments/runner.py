"""Makes a table: every variant with every seed, written after each of them."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.experiments import table as tables
from jobs.experiments.cache import Cells
from jobs.experiments.context import Base, Bench
from jobs.experiments.spec import Spec
from jobs.experiments.suites import Suite
from jobs.experiments.table import Entry, Table
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
    """Computes what is not finished yet, seed by seed; the files are whole at every moment.

    Other processes may make other seeds or variants of the same table meanwhile. Raises BadConfig
    before anything is computed when rows made otherwise are in the table's place.
    """
    cells = Cells(request.out / CELLS, say)
    base = Base.of(request.suite)
    done = Done(_grown(request, _fresh(request, base)), [], cells.made)
    entries: list[Entry] = []
    for seed in request.seeds:
        bench = Bench(request.suite, seed, request.data, cells, base)
        for variant in request.variants:
            say(f"{request.spec.name}: {variant}, seed {seed}")
            entries.append(request.spec.entry(bench, variant))
            done = _written(request, bench, entries)
    return done


def _written(request: Request, bench: Bench, entries: Sequence[Entry]) -> Done:
    """What the file knows by now, and the entries of this process."""
    fresh = _fresh(request, bench.base)
    targets = request.suite.targets if request.spec.targets else ()
    fresh.data = _sizes(bench, [source.name for source in targets])
    request.out.mkdir(parents=True, exist_ok=True)
    with (request.out / CELLS / "tables.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        table = _grown(request, fresh)
        for entry in entries:
            table.add(entry)
        table.sort(request.spec.variants(request.suite))
        request.spec.finish(table)
        files = tables.write(table, request.out, request.spec.picture)
    return Done(table, files, bench.cells.made)


def _grown(request: Request, fresh: Table) -> Table:
    return tables.grown(fresh, request.out / f"{fresh.name}.json")


def _fresh(request: Request, base: Base) -> Table:
    spec, suite = request.spec, request.suite
    settings = {"suite": suite.as_dict(), "base": base.backbone.digest}
    return Table(
        f"{spec.name}-{suite.name}",
        f"{spec.name}, {suite.name}",
        spec.about,
        spec.columns,
        settings,
        commands=[request.command],
    )


def _sizes(bench: Bench, targets: Sequence[str]) -> dict[str, dict[str, int]]:
    names = [*bench.pool, *bench.suite.generics, *targets]
    parts = {"train": "train", "validation": "validation", "test": "test", "shared": "shard"}
    return {
        name: {
            "classes": len(bench.rows(name).classes),
            **{shown: bench.rows(name).count(part) for shown, part in parts.items()},
        }
        for name in names
    }
