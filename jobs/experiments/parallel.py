"""Fills cells side by side on a Ray cluster; the table is then made as in one process.

Two waves: the vectors that the variants need, one piece for each (seed, training, task); then one
piece for each (seed, variant). All write into the same folder, so it must be one that every node
sees. Two pieces that need the same cell may both compute it: they write the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from jobs.experiments.cache import Cells
from jobs.experiments.context import Base, Bench
from jobs.experiments.runner import CELLS, Request

Piece = Callable[[], None]


def fill(request: Request, say: Callable[[str], None]) -> None:
    """Returns when every cell is finished. Joins a running cluster, or starts one."""
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    try:
        for pieces in waves(request):
            _side_by_side(ray, pieces, say)
    finally:
        ray.shutdown()


def waves(request: Request) -> list[list[tuple[str, Piece]]]:
    """Named pieces of work; those of one wave do not need each other."""
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


def _piece(request: Request, seed: int, work: Callable[[Bench], Any]) -> Piece:
    def run() -> None:
        cells = Cells(request.out.absolute() / CELLS)
        base = Base.of(request.suite)
        work(Bench(request.suite, seed, request.data.absolute(), cells, base))

    return run


def _side_by_side(
    ray: Any, pieces: Sequence[tuple[str, Piece]], say: Callable[[str], None]
) -> None:
    """One CPU each. The first failure ends the call; what is finished is kept."""

    def run(piece: Piece) -> None:
        piece()

    remote = ray.remote(num_cpus=1, max_retries=2)(run)
    names = {remote.remote(piece): name for name, piece in pieces}
    waiting = list(names)
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        ray.get(done)
        say(f"done: {names[done[0]]}; {len(waiting)} to go")
