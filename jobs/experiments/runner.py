"""Makes a table: every variant with every seed; the files are written after each of them.

Its cells may first be computed in parallel, on a Ray cluster, in two waves: the vectors that the
variants need, one piece for each (seed, training, task); then one piece for each (seed, variant).
All write into the same folder, so every node must see it. Two pieces that need the same cell may
both compute it: they write the same bytes.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from cluster.runtime import processors
from jobs.console.progress import Speed, time_left
from jobs.experiments.cache import Cells
from jobs.experiments.context import Experiment, LoadedBase
from jobs.experiments.files import write
from jobs.experiments.suites import Suite
from jobs.experiments.table import Entry, Spec, Table, grown
from tacl.errors import BadConfig, RunFailed
from tacl.spec import BaseSpec
from tacl.training.config import Precision

CELLS = ".cells"  # in the folder of the tables; if deleted, everything is computed again
Piece = Callable[[], None]
Sizes = dict[str, dict[str, int]]  # rows and classes of each data set


@dataclass(frozen=True)
class TableRequest:
    """A request for a table. `command` is stored with the table."""

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
    """The variants to make, by default all. BadConfig for one that the table does not have."""
    known = list(spec.variants(suite))
    unknown = [name for name in variants if name not in known]
    if unknown:
        raise BadConfig(
            f"{spec.name} has no method {', '.join(unknown)}; there are {', '.join(known)}"
        )
    return list(variants) or known


def precision_of(suite: Suite, out: Path) -> Precision:
    """The precision of the suite's tables in this folder, which share cells; else the suite's."""
    for path in sorted(out.glob(f"*-{suite.name}.json")):
        return json.loads(path.read_text())["settings"]["suite"].get("precision", suite.precision)
    return suite.precision


def reproduce(request: TableRequest, say: Callable[[str], None] = lambda line: None) -> Done:
    """Compute what is not finished yet, seed by seed; the files are complete at any time, and the
    picture is drawn when all rows are there.

    Other processes may meanwhile make other seeds or variants of the same table. Raises before
    anything is trained: BadConfig if the existing table has rows made otherwise or of other data,
    or if a row needs another suite or base; and the errors of reading the data.
    """
    cells = Cells(request.out / CELLS, say)
    base = LoadedBase.of(request.suite)
    done = Done(_begun(request, base), [], cells.made)
    entries: list[Entry] = []
    rows = len(request.seeds) * len(request.variants)
    for seed in request.seeds:
        experiment = Experiment(request.suite, seed, request.data, cells, base)
        _grown(request, base, _sizes(request, experiment))  # reads all data
        for variant in request.variants:
            say(f"{request.spec.name}: {variant}, seed {seed}")
            entries.append(request.spec.entry(experiment, variant))
            done = _written(request, experiment, entries, draws=len(entries) == rows)
    return done


def _written(
    request: TableRequest, experiment: Experiment, entries: Sequence[Entry], draws: bool
) -> Done:
    """Write the entries of the existing file and those of this process."""
    sizes = _sizes(request, experiment)
    with (request.out / CELLS / "tables.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        table = _grown(request, experiment.base, sizes)
        for entry in entries:
            table.add(entry)
        table.sort(request.spec.variants(request.suite))
        request.spec.finish(table)
        files = write(table, request.out, request.spec.picture if draws else None)
    return Done(table, files, experiment.cells.made)


def _begun(request: TableRequest, base: LoadedBase) -> Table:
    """The existing table. BadConfig if it, this suite or this base cannot have the rows."""
    for variant in request.variants:
        request.spec.method(request.suite, variant).require(request.suite, base.backbone)
    return _grown(request, base, {})


def _grown(request: TableRequest, base: LoadedBase, data: Sizes) -> Table:
    spec, suite = request.spec, request.suite
    settings = {"suite": suite.as_dict(), "base": base.backbone.digest}
    name, title = f"{spec.name}-{suite.name}", f"{spec.name}, {suite.name}"
    fresh = Table(name, title, spec.about, spec.columns, settings, data, [request.command])
    return grown(fresh, request.out / f"{name}.json")


def _sizes(request: TableRequest, experiment: Experiment) -> Sizes:
    """Sizes of all data of the table; reads the data if necessary."""
    targets = request.suite.targets if request.spec.targets else ()
    names = [*experiment.pool, *experiment.suite.generics, *(source.name for source in targets)]
    parts = {"train": "train", "validation": "validation", "test": "test", "shared": "shard"}
    return {
        name: {
            "classes": len(experiment.rows(name).classes),
            **{shown: experiment.rows(name).count(part) for shown, part in parts.items()},
        }
        for name in names
    }


def fill(request: TableRequest, say: Callable[[str], None]) -> None:
    """Compute all cells. Joins the Ray cluster at $RAY_ADDRESS, or starts one. Before that, raises
    the errors that `reproduce` raises before anything is trained."""
    cells, base = Cells(request.out / CELLS, say), LoadedBase.of(request.suite)
    _begun(request, base)
    experiment = Experiment(request.suite, request.seeds[0], request.data, cells, base)
    _grown(request, base, _sizes(request, experiment))
    ray = _ray()
    try:
        for pieces in waves(request):
            _side_by_side(ray, pieces, say)
    finally:
        ray.shutdown()


def _ray() -> Any:
    """Join or start a cluster; one that is started here requires a secret token."""
    if not (address := os.environ.get("RAY_ADDRESS")):
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray

    own = {} if address else {"num_cpus": processors.cpus(), "include_dashboard": False}
    ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    return ray


def waves(request: TableRequest) -> list[list[tuple[str, Piece]]]:
    """Named pieces of work in waves; the pieces of one wave do not depend on each other."""
    request = _placed(request)
    pool, spec = request.suite.names, request.spec
    methods = [spec.method(request.suite, variant) for variant in request.variants]
    needs = dict.fromkeys(method.train for method in methods if method.train and spec.ahead)
    trainings = [
        (f"{task}, seed {seed}", _piece(request, seed, lambda b, f=train, t=task: f(b, t)))
        for seed, train, task in product(request.seeds, needs, pool)
    ]
    entries = [
        (f"{variant}, seed {seed}", _piece(request, seed, lambda b, v=variant: spec.entry(b, v)))
        for seed, variant in product(request.seeds, request.variants)
    ]
    return [trainings, entries]


def _placed(request: TableRequest) -> TableRequest:
    """The same request with absolute paths: workers of a joined cluster have another directory."""
    base = str(BaseSpec.parse(request.suite.base).placed())
    places = {"data": request.data.absolute(), "out": request.out.absolute()}
    return replace(request, suite=replace(request.suite, base=base), **places)


def _piece(request: TableRequest, seed: int, work: Callable[[Experiment], Any]) -> Piece:
    def run() -> None:
        cells, base = Cells(request.out / CELLS), LoadedBase.of(request.suite)
        work(Experiment(request.suite, seed, request.data, cells, base))

    return run


def _side_by_side(
    ray: Any, pieces: Sequence[tuple[str, Piece]], say: Callable[[str], None]
) -> None:
    """Run the pieces on one CPU each. The first failure ends the call; finished cells are kept."""

    def run(piece: Piece) -> None:
        piece()

    remote = ray.remote(num_cpus=1, max_retries=2)(run)
    names = {remote.remote(piece): name for name, piece in pieces}
    waiting, speed = list(names), Speed()
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        try:
            ray.get(done)
        except ray.exceptions.RayTaskError as error:  # the error's text is a trace
            raise error.cause from error
        except ray.exceptions.RayError as error:  # as when a process took too much memory
            raise RunFailed(f"{names[done[0]]}: {error}; what is finished is kept") from error
        left = time_left(speed.left(len(names) - len(waiting), len(names)))
        say(f"done: {names[done[0]]}; {len(waiting)} to go{left and ', '}{left}")
