"""The cost of evaluating all pairs of vectors on all tasks: by additions, or by dual passes.

The linearized model is linear in tau, so f(x) and J(x) tau_t, stored once for every row and vector,
give every sum (`tacl.evaluation.tangents`). The alternative is a dual pass of every sum over every
row; one sum on one task is timed, and the rest is computed from the counts.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from jobs.benchmarks.encoders import Subject, subject
from jobs.benchmarks.step import made_up, small_tau
from jobs.benchmarks.timing import Run, Say, in_turns, setting
from tacl.evaluation.metrics import accuracy
from tacl.evaluation.tangents import cached_tangents
from tacl.vectors import params

VECTORS, TASKS = 8, 8


class EvaluationCase:
    """`rows` rows of one task and its head, several vectors, and their cached tangents."""

    def __init__(self, one: Subject, rows: int, device: str) -> None:
        tau, self.module = small_tau(one), one.linearized(device)
        self.rows = made_up(one, rows, 0).cast(torch.float32, device)
        self.taus = {str(t): params.scale(1 + t, tau) for t in range(VECTORS)}
        items = one.items(self.rows.batch)
        self.cached = cached_tangents(self.module, one.on(device), items, self.taus)

    def pairs(self) -> list[tuple[str, str]]:
        return list(combinations(self.taus, 2))

    def by_addition(self, pair: tuple[str, str]) -> Tensor:
        """Features of the sum, [N, D]."""
        return self.cached.linearized(dict.fromkeys(pair, 1.0))

    @torch.no_grad()
    def by_dual_pass(self, pair: tuple[str, str]) -> Tensor:
        self.module.load_tau(params.combine([(1.0, self.taus[name]) for name in pair]))
        return self.module.linearized(self.rows.batch)

    def accuracy(self, features_ND: Tensor) -> float:
        head = self.rows.head.to(features_ND.device)
        return accuracy(head.logits(features_ND), self.rows.labels_B.to(features_ND.device))


def bench_evaluate(model: str, rows: int, rounds: int, device: str, say: Say) -> dict[str, Any]:
    """`rows`: of each task."""
    task = EvaluationCase(subject(model), rows, device)
    pairs = task.pairs()
    field: dict[str, Run] = {
        "cached": lambda: [task.accuracy(task.by_addition(pair)) for pair in pairs],
        "dual": lambda: task.accuracy(task.by_dual_pass(pairs[0])),
    }
    times = in_turns(field, rounds, device, say)
    one_pass = times.median("dual")
    return {
        **setting(model, device, rounds),
        "tasks": TASKS,
        "rows_per_task": rows,
        "pairs": len(pairs),
        "cached_s": TASKS * times.median("cached"),
        "dual_s": TASKS * len(pairs) * one_pass,
        "cache_once_s": TASKS * VECTORS * one_pass,
        "speedup": len(pairs) * times.ratio("dual", "cached"),
        "spread_s": times.spreads(),
    }
