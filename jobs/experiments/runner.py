"""Makes a table: every variant with every seed, written after each of them.

Its cells may be filled side by side first, on a Ray cluster, in two waves: the vectors that the
variants need, one piece for each (seed, training, task); then one piece for each (seed, variant).
All write into the same folder, so it must be one that every node sees. Two pieces that need the
same cell may both compute it: they write the same bytes.
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

CELLS = ".cells"  # in the folder of the tables; may be deleted, and then all is computed again
Piece = Callable[[], None]
Sizes = dict[str, dict[str, int]]  # rows and classes of each data set


@dataclass(frozen=True)
class TableRequest:
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


def precision_of(suite: Suite, out: Path) -> Precision:
    """That of the suite's tables in this place, which share cells; else the suite's."""
    for path in sorted(out.glob(f"*-{suite.name}.json")):
        return json.loads(path.read_text())["settings"]["suite"].get("precision", suite.precision)
    return suite.precision


def reproduce(request: TableRequest, say: Callable[[str], None] = lambda line: None) -> Done:
    """Computes what is not finished yet, seed by seed; the files are whole at every moment, and
    the picture is drawn when all rows are there.

    Other processes may make other seeds or variants of the same table meanwhile. Raises before
    anything is trained: BadConfig when rows made otherwise, or of other data, are in the table's
    place, or a row needs another suite or base; what reading the data raises.
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
    """What the file knows by now, and the entries of this process."""
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
    """What the file knows. BadConfig when it, or this suite or base, cannot have the rows."""
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
    """Of all data that the table is about, which are read if they were not."""
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
    """Returns when every cell is finished. Joins the Ray cluster at $RAY_ADDRESS, or starts one.
    Raises before that what `reproduce` does before anything is trained."""
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
    """In a cluster; into one that is started here nobody else comes."""
    if not (address := os.environ.get("RAY_ADDRESS")):
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray

    own = {} if address else {"num_cpus": processors.cpus(), "include_dashboard": False}
    ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    return ray


def waves(request: TableRequest) -> list[list[tuple[str, Piece]]]:
    """Named pieces of work; those of one wave do not need each other."""
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
    """The same from any directory: a cluster that is joined was started in one of its own."""
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
    """One CPU each. The first failure ends the call; what is finished is kept."""

    def run(piece: Piece) -> None:
        piece()

    remote = ray.remote(num_cpus=1, max_retries=2)(run)
    names = {remote.remote(piece): name for name, piece in pieces}
    waiting, speed = list(names), Speed()
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        try:
            ray.get(done)
        except ray.exceptions.RayTaskError as error:  # its text is a trace
            raise error.cause from error
        except ray.exceptions.RayError as error:  # as of a process that was killed for its memory
            raise RunFailed(f"{names[done[0]]}: {error}; what is finished is kept") from error
        left = time_left(speed.left(len(names) - len(waiting), len(names)))
        say(f"done: {names[done[0]]}; {len(waiting)} to go{left and ', '}{left}")
