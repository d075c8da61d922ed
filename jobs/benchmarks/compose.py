"""The cost of a sum of vectors, and of a step that learns its coefficients, against a copy.

The vectors are random, written to disk and mapped, as a home stores them. Sums and copies are
written into existing memory: new pages from the system cost more than a sum does, and are measured
separately (`fresh_s`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from jobs.benchmarks.encoders import Subject, subject
from jobs.benchmarks.step import made_up, ordinary, ours, small_tau
from jobs.benchmarks.timing import MadeBytes, Run, Say, in_turns, setting
from tacl.compose.arithmetic import composed
from tacl.compose.scaled import ScaledEncoder, composed_block
from tacl.errors import BadConfig
from tacl.vectors import Params, TaskVector, params

COUNTS = (2, 8, 22)
PLAIN_UP_TO = 8  # scaled copies of more vectors would not fit into the memory of a small machine
ATLAS_COUNT = 8


def bench_compose(
    model: str, counts: Sequence[int], batch: int, rounds: int, device: str, say: Say
) -> dict[str, Any]:
    one = subject(model)
    with vectors_on_disk(one, max(*counts, ATLAS_COUNT)) as vectors:
        sums = {str(count): bench_sum(vectors[:count], rounds, device, say) for count in counts}
        atlas = bench_atlas(one, vectors[:ATLAS_COUNT], batch, rounds, device, say)
    found = {"theta_bytes": vectors[0].nbytes, "sum": sums, "atlas": atlas}
    return {**setting(model, device, rounds), **found}


@contextmanager
def vectors_on_disk(one: Subject, count: int) -> Iterator[list[TaskVector]]:
    """`count` different vectors of all trained blocks, mapped from files that are deleted later."""
    tau = small_tau(one)
    needed = count * sum(value.nbytes for value in tau.values())
    with tempfile.TemporaryDirectory() as folder:
        _require_room(needed, Path(folder))
        yield [_mapped(Path(folder) / f"{t}.safetensors", t, tau) for t in range(count)]


def _require_room(needed: int, folder: Path) -> None:
    """Vectors that do not fit into memory would be read from disk at every pass."""
    room = min(psutil.virtual_memory().available // 2, shutil.disk_usage(folder).free)
    if needed > room:
        raise BadConfig(
            f"the vectors take {needed / 1e9:.1f} GB of {folder}, and of memory as they are read; "
            f"there is room for {room / 1e9:.1f} GB. Ask for fewer (--vectors) or a smaller model"
        )


def _mapped(path: Path, t: int, tau: Params) -> TaskVector:
    vector = TaskVector.of_params(f"task{t}", Subject.digest, "ordinary", params.scale(1 + t, tau))
    vector.save(path)
    return TaskVector.load(path)


def bench_sum(vectors: Sequence[TaskVector], rounds: int, device: str, say: Say) -> dict[str, Any]:
    cs = [1.0] * len(vectors)  # as tauJp vectors are added
    total, buffer = (composed(vectors, cs) for _ in range(2))
    field: dict[str, Run] = {
        "compose": lambda: composed(vectors, cs, out=total),
        "copy": lambda: _copy(vectors, buffer),
        "fresh": lambda: composed(vectors, cs),
    }
    if len(vectors) <= PLAIN_UP_TO:
        field["plain"] = lambda: plainly(vectors, cs)
    times = in_turns(field, rounds, device, say)
    with MadeBytes() as made:
        composed(vectors, cs)
    return {
        **times.figures(),
        "ratio_to_copy": times.ratio("compose", "copy"),
        "read_gb_per_s": len(vectors) * vectors[0].nbytes / times.median("compose") / 1e9,
        "peak_bytes": made.peak,
    }


def _copy(vectors: Sequence[TaskVector], buffer: Params) -> None:
    """Read every byte of the vectors, and write it once."""
    for vector in vectors:
        for name, block in vector.blocks.items():
            buffer[name].copy_(block.dense())


def plainly(vectors: Sequence[TaskVector], coefficients: Sequence[float]) -> Params:
    """The sum of scaled copies of all vectors."""
    scaled = [params.scale(c, v.to_params()) for c, v in zip(coefficients, vectors, strict=True)]
    return {name: torch.stack([s[name] for s in scaled]).sum(0) for name in scaled[0]}


def bench_atlas(
    one: Subject, vectors: Sequence[TaskVector], batch: int, rounds: int, device: str, say: Say
) -> dict[str, Any]:
    """A step of aTLAS (arXiv 2407.02880), against an ordinary step and two passes over vectors."""
    rows = made_up(one, batch, 0).cast(torch.float32, device)
    backbone = one.on(device)
    weights = _weights_alone(backbone.encoder, vectors)
    field: dict[str, Run] = {
        "weights": weights,
        "step": ours(ScaledEncoder(backbone, vectors, [0.1] * len(vectors)), rows).step,
        "ordinary": ordinary(one, rows, torch.float32, device).step,
        "passes": lambda: [_read(vectors) for _ in range(2)],
    }
    times = in_turns(field, rounds, device, say)
    with MadeBytes() as made:
        weights()
    ideal = times.ratio("step", "ordinary", "passes")
    found = {"ratio_to_ideal": ideal, "peak_bytes": made.peak}
    return {"vectors": len(vectors), **times.figures(), **found}


def _weights_alone(encoder: nn.Module, vectors: Sequence[TaskVector]) -> Run:
    """All composed blocks, and the gradient of every coefficient from those of the blocks."""
    theta0 = dict(encoder.named_parameters())
    size, device = (len(vectors), len(vectors[0].blocks), 1), next(encoder.parameters()).device
    lambda_TBK = torch.full(size, 0.1, device=device, requires_grad=True)
    known_TK = [[0.1]] * len(vectors)  # known without reading from the device
    gradients = {name: torch.randn_like(theta0[name]) for name in vectors[0].blocks}

    def run() -> None:
        for b, name in enumerate(vectors[0].blocks):
            taus = [vector.blocks[name] for vector in vectors]
            weight = composed_block(theta0[name], lambda_TBK[:, b], taus, known_TK=known_TK)
            weight.backward(gradients[name])

    return run


def _read(vectors: Sequence[TaskVector]) -> None:
    """One pass over the vectors that does almost nothing with them."""
    for vector in vectors:
        for block in vector.blocks.values():
            block.dense().sum()
