"""Interference and disentanglement of pairs of vectors, on at most 300 test rows of each task."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from jobs.experiments import plots
from jobs.experiments.context import Bench
from jobs.experiments.cost import together
from jobs.experiments.directions import Vector, tangent
from jobs.experiments.methods import METHODS, train_of, vectors_of
from jobs.experiments.spec import Spec
from jobs.experiments.table import Column, Entry, Numbers
from tacl.evaluation import metrics
from tacl.evaluation.interference import Matrix, logit_change, tau_jp
from tacl.evaluation.tangents import Cached

PART = "test:300"
VARIANTS = ("linear", "taujp", "linear+refresh", "taujp+refresh")
INTERFERENCE = (
    "How well the probe's tau_jp predicts what is lost. For every ordered pair of vectors: "
    "acc_t(tau_t) - acc_t(tau_t + tau_s) on at most 300 test rows of task t, against the mean of "
    "|J(x) tau_s| over the 64 probe rows of t, raw and relative to |J(x) tau_t|; against *logits*: "
    "the size of the change of t's logits there by tau_s, each row's mean taken off, relative to "
    "that by tau_t; and against *flipped*: the share of the probe rows whose prediction tau_s "
    "changes. *Rank correlation*: Spearman's, over all pairs."
)
DISENTANGLEMENT = (
    "Disentanglement error xi (arXiv 2305.12827) of three pairs of tasks, on at most 300 test rows "
    "of each: the share of rows whose prediction with the own vector alone differs from that with "
    "both, summed over the two tasks (0 to 2), for coefficients on a grid of 21 x 21 over [-3, 3]."
)
COLUMNS = (
    Column("rank_raw", "rank correlation, raw", percent=False),
    Column("rank_relative", "rank correlation, relative", percent=False),
    Column("rank_logits", "rank correlation, logits", percent=False),
    Column("rank_flipped", "rank correlation, flipped", percent=False),
    Column("mean", "mean interference"),
    Column("worst", "worst interference"),
    Column("relative", "mean relative tau_jp", percent=False),
)
MAPS = (
    Column("mean", "mean xi", percent=False),
    Column("at_one", "xi at (1, 1)", percent=False),
)


def interference(bench: Bench, variant: str) -> Entry:
    vectors = vectors_of(bench, variant)
    pairs = {
        (s, t): tau_jp(tangent(bench, vectors[s], t, "probe")) for s in vectors for t in vectors
    }
    matrix = Matrix(pairs)
    own_change = {t: _logit_change(bench, t, vectors[t]) for t in vectors}
    points = []
    for s, t in permutations(vectors, 2):
        relative = matrix.relative(s, t)
        lost = metrics.interference(
            _accuracy(bench, t, vectors[t]), _accuracy(bench, t, vectors[t], vectors[s])
        )
        points.append(
            {
                "vector": s,
                "task": t,
                "tau_jp": pairs[s, t].mean,
                "relative": relative.value if relative else 0.0,
                "logits": _logit_change(bench, t, vectors[s]) / own_change[t],
                "flipped": _flipped(bench, t, vectors[t], vectors[s]),
                "lost": lost,
            }
        )
    return _entry(bench, variant, vectors, _correlated(points), {"points": points})


def _correlated(points: list[dict[str, Any]]) -> Numbers:
    keys = ("lost", "tau_jp", "relative", "logits", "flipped")
    found = (torch.tensor([p[key] for p in points]) for key in keys)
    lost, raw, relative, logits, flipped = found
    return {
        "rank_raw": metrics.rank_correlation(raw, lost),
        "rank_relative": metrics.rank_correlation(relative, lost),
        "rank_logits": metrics.rank_correlation(logits, lost),
        "rank_flipped": metrics.rank_correlation(flipped, lost),
        "mean": lost.mean().item(),
        "worst": lost.max().item(),
        "relative": relative.mean().item(),
    }


def _accuracy(bench: Bench, task: str, *vectors: Vector) -> float:
    logits_NC = _logits(bench, task, PART, *vectors)
    return metrics.accuracy(logits_NC, bench.rows(task).labels_N(PART))


def _logit_change(bench: Bench, task: str, vector: Vector) -> float:
    """Of a task's probe, by a vector."""
    tangent_ND = tangent(bench, vector, task, "probe")
    return logit_change(bench.features(task, "probe"), tangent_ND, bench.head(task)).mean


def _flipped(bench: Bench, task: str, own: Vector, other: Vector) -> float:
    """The share of the probe rows whose class is another one with the other vector. No label."""
    alone_N = _logits(bench, task, "probe", own).argmax(1)
    both_N = _logits(bench, task, "probe", own, other).argmax(1)
    return (alone_N != both_N).float().mean().item()


def _logits(bench: Bench, task: str, part: str, *vectors: Vector) -> Tensor:
    """[N, C] of f + sum J tau on the rows of a part of a task."""
    features_ND = bench.features(task, part).clone()
    for vector in vectors:
        features_ND += tangent(bench, vector, task, part)
    return bench.head(task).logits(features_ND)


def disentanglement(bench: Bench, variant: str) -> Entry:
    vectors = vectors_of(bench, variant)
    maps, tasks = {}, {}
    for one, two in three_pairs(bench.pool):
        names = (one, two)
        cached = [
            Cached(bench.features(t, PART), {n: tangent(bench, vectors[n], t, PART) for n in names})
            for t in names
        ]
        heads = (bench.head(one), bench.head(two))
        error_GG = metrics.disentanglement_error((cached[0], cached[1]), heads, names)
        at_one = [(cached[0], cached[1]), heads, names, (1.0,)]
        maps[f"{one}, {two}"] = error_GG.tolist()
        tasks[f"{one}, {two}"] = {
            "mean": error_GG.mean().item(),
            "at_one": metrics.disentanglement_error(*at_one).item(),
        }
    numbers: Numbers = {
        column.key: metrics.absolute({pair: tasks[pair][column.key] for pair in tasks})
        for column in MAPS
    }
    return _entry(bench, variant, vectors, numbers, {"maps": maps}, tasks)


def three_pairs(pool: list[str]) -> list[tuple[str, str]]:
    """The first task with the second, the third with the fourth ...; or as many as there are."""
    return [(pool[i], pool[i + 1]) for i in range(0, len(pool) - 1, 2)][:3]


def _entry(
    bench: Bench,
    variant: str,
    vectors: dict[str, Vector],
    numbers: Numbers,
    more: dict[str, Any],
    tasks: dict[str, Numbers] | None = None,
) -> Entry:
    method = METHODS[variant]
    return Entry(
        variant,
        bench.seed,
        method.saw_training,
        method.saw_merging,
        numbers,
        tasks or {},
        more,
        together([vector.cost for vector in vectors.values()]),
        together([vector.later for vector in vectors.values()]),
    )


SPECS = (
    Spec(
        "interference",
        INTERFERENCE,
        COLUMNS,
        lambda suite: VARIANTS,
        interference,
        plots.scatter,
        trainings=train_of,
    ),
    Spec(
        "disentanglement",
        DISENTANGLEMENT,
        MAPS,
        lambda suite: VARIANTS[:2],
        disentanglement,
        plots.maps,
        trainings=train_of,
    ),
)
