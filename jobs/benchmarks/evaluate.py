"""What it costs to evaluate all pairs of vectors on all tasks: additions, or dual passes.

The linearized model is linear in tau, so f(x) and J(x) tau_t, kept once for every row and vector,
give every sum (`tacl.evaluation.tangents`). The other way is a dual pass of every sum over every
row; one sum on one task is run and the rest follows by counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from jobs.benchmarks.encoders import Subject, subject
from jobs.benchmarks.step import SCALE, Rows, made_up, small_tau
from jobs.benchmarks.timing import Run, Say, in_turns, ratio
from tacl.evaluation.metrics import accuracy
from tacl.evaluation.tangents import Cached, cached_tangents
from tacl.heads.head import Head
from tacl.models.frozen import Batch
from tacl.models.linearized import LinearizedEncoder
from tacl.vectors import params
from tacl.vectors.params import Params

VECTORS, TASKS = 8, 8


class MadeUp:
    """Rows that are ready already: an item is the number of a row."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def collate(self, items: Sequence[Tensor]) -> Batch:
        rows = torch.cat([item[:1] for item in items])
        batch = self._batch
        return batch[rows] if isinstance(batch, Tensor) else {k: x[rows] for k, x in batch.items()}


@dataclass(frozen=True)
class Evaluation:
    """One task's rows and head, several vectors, and their cached tangents."""

    module: LinearizedEncoder
    rows: Rows
    taus: dict[str, Params]
    cached: Cached

    @staticmethod
    def of(one: Subject, rows: int, device: str) -> Evaluation:
        module = LinearizedEncoder(one.encoder.to(device), one.trainable)
        made = made_up(one, rows, 0).cast(torch.float32, device)
        taus, items = several(one, VECTORS), [torch.tensor([row]) for row in range(rows)]
        return Evaluation(
            module, made, taus, cached_tangents(module, MadeUp(made.batch), items, taus)
        )

    def pairs(self) -> list[tuple[str, str]]:
        return list(combinations(self.taus, 2))

    def by_addition(self, pair: tuple[str, str]) -> Tensor:
        """Features of the sum, [N, D]."""
        return self.cached.linearized(dict.fromkeys(pair, 1.0))

    @torch.no_grad()
    def by_dual_pass(self, pair: tuple[str, str]) -> Tensor:
        self.module.load_tau(params.add(*(self.taus[name] for name in pair)))
        return self.module.linearized(self.rows.batch)

    def accuracy(self, features_ND: Tensor) -> float:
        classes = tuple(map(str, range(len(self.rows.weight_CD))))
        head = Head(self.rows.weight_CD, SCALE, classes).to(features_ND.device)
        return accuracy(head.logits(features_ND), self.rows.labels_B.to(features_ND.device))


def bench_evaluate(model: str, rows: int, rounds: int, device: str, say: Say) -> dict[str, Any]:
    """`rows` of each task."""
    task = Evaluation.of(subject(model), rows, device)
    pairs = task.pairs()
    field: dict[str, Run] = {
        "cached": lambda: [task.accuracy(task.by_addition(pair)) for pair in pairs],
        "dual": lambda: task.accuracy(task.by_dual_pass(pairs[0])),
    }
    times = in_turns(field, rounds, device, say)
    one_pass = times["dual"].median
    return {
        "model": model,
        "device": device,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "tasks": TASKS,
        "rows_per_task": rows,
        "pairs": len(pairs),
        "cached_s": TASKS * times["cached"].median,
        "dual_s": TASKS * len(pairs) * one_pass,
        "cache_once_s": TASKS * VECTORS * one_pass,
        "speedup": len(pairs) * ratio(times, "dual", "cached"),
        "spread_s": {name: t.spread for name, t in times.items()},
    }


def several(one: Subject, count: int) -> dict[str, Params]:
    tau = small_tau(one)
    return {str(t): params.scale(1 + t, tau) for t in range(count)}
