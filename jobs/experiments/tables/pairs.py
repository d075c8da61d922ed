"""Interference and disentanglement of pairs of vectors, on at most 300 test rows of each task."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from jobs.experiments import plots
from jobs.experiments.context import Experiment
from jobs.experiments.methods import METHODS, Merging
from jobs.experiments.models import TrainedVector, tangent
from jobs.experiments.suites import Suite
from jobs.experiments.table import Entry, Numbers, Spec, figures, shares
from tacl.evaluation import metrics
from tacl.evaluation.interference import logit_change, relative, tau_jp
from tacl.evaluation.tangents import Cached

PART = "test:300"
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
    *figures(rank_raw="rank correlation, raw", rank_relative="rank correlation, relative"),
    *figures(rank_logits="rank correlation, logits", rank_flipped="rank correlation, flipped"),
    *shares(mean="mean interference", worst="worst interference"),
    *figures(relative="mean relative tau_jp"),
)
MAPS = figures(mean="mean xi", at_one="xi at (1, 1)")
Point = dict[str, Any]  # stored like this in the table's file


def interference(experiment: Experiment, method: Merging) -> Entry:
    vectors = method.added(experiment)
    by_task = {task: _points(experiment, vectors, task) for task in vectors}
    points = [by_task[task][other] for other, task in permutations(vectors, 2)]
    return _entry(experiment, method, vectors, _correlated(points), {}, {"points": points})


def _points(
    experiment: Experiment, vectors: Mapping[str, TrainedVector], task: str
) -> dict[str, Point]:
    """The effect of every other vector on rows of a task, against that of the task's own."""
    head, labels_N = experiment.head(task), experiment.rows(task).labels_N(PART)
    probe, test = (cached(experiment, vectors, task, part) for part in ("probe", PART))
    sizes = {name: tau_jp(tangent_ND) for name, tangent_ND in probe.tangents.items()}
    changes = {
        name: logit_change(probe.features_ND, tangent_ND, head).mean
        for name, tangent_ND in probe.tangents.items()
    }

    def answers(rows: Cached, *names: str) -> Tensor:
        """Logits [N, C] of the model moved by these vectors."""
        return head.logits(rows.linearized(dict.fromkeys(names, 1.0)))

    alone = metrics.accuracy(answers(test, task), labels_N)

    def point(other: str) -> Point:
        moved = relative(sizes[other], sizes[task])
        both = metrics.accuracy(answers(test, task, other), labels_N)
        flipped_N = answers(probe, task).argmax(1) != answers(probe, task, other).argmax(1)
        return {
            "vector": other,
            "task": task,
            "tau_jp": sizes[other].mean,
            "relative": moved.value if moved else 0.0,
            "logits": changes[other] / changes[task],
            "flipped": flipped_N.float().mean().item(),
            "lost": alone - both,
        }

    return {other: point(other) for other in vectors if other != task}


def _correlated(points: list[Point]) -> Numbers:
    ranked = {"rank_raw": "tau_jp"}
    ranked |= {f"rank_{key}": key for key in ("relative", "logits", "flipped")}
    found = {k: torch.tensor([p[k] for p in points]) for k in (*ranked.values(), "lost")}
    lost = found["lost"]
    return {
        **{rank: metrics.rank_correlation(found[key], lost) for rank, key in ranked.items()},
        "mean": lost.mean().item(),
        "worst": lost.max().item(),
        "relative": found["relative"].mean().item(),
    }


def cached(
    experiment: Experiment, vectors: Mapping[str, TrainedVector], task: str, part: str
) -> Cached:
    """Features at theta0 and tangents of the vectors, on a part of a task's rows."""
    tangents = {name: tangent(experiment, vector, task, part) for name, vector in vectors.items()}
    return Cached(experiment.features(task, part), tangents)


def disentanglement(experiment: Experiment, method: Merging) -> Entry:
    vectors = method.added(experiment)
    maps, tasks = {}, {}
    for pair in three_pairs(experiment.pool):
        both = {name: vectors[name] for name in pair}
        one, two = (cached(experiment, both, task, PART) for task in pair)
        heads = (experiment.head(pair[0]), experiment.head(pair[1]))
        error_GG = metrics.disentanglement_error((one, two), heads, pair)
        at_one = metrics.disentanglement_error((one, two), heads, pair, (1.0,)).item()
        maps[", ".join(pair)] = error_GG.tolist()
        tasks[", ".join(pair)] = {"mean": error_GG.mean().item(), "at_one": at_one}
    means = {c.key: metrics.absolute({pair: tasks[pair][c.key] for pair in tasks}) for c in MAPS}
    return _entry(experiment, method, vectors, means, tasks, {"maps": maps})


def three_pairs(pool: list[str]) -> list[tuple[str, str]]:
    """The first task with the second, the third with the fourth ...; at most three pairs."""
    return list(zip(pool[::2], pool[1::2], strict=False))[:3]


def _entry(
    experiment: Experiment, method: Merging, vectors: dict[str, TrainedVector], *found: Any
) -> Entry:
    training = [vector.cost for vector in vectors.values()]
    merging = [vector.later for vector in vectors.values()]
    return method.entry(experiment, *found, training=training, merging=merging)


ROWS = [METHODS[name] for name in ("linear", "taujp", "linear+refresh", "taujp+refresh")]


def first_two(suite: Suite) -> list[Merging]:
    """The methods without a refresh."""
    return ROWS[:2]


SPECS = (
    Spec("interference", INTERFERENCE, COLUMNS, lambda suite: ROWS, interference, plots.scatter),
    Spec("disentanglement", DISENTANGLEMENT, MAPS, first_two, disentanglement, plots.maps),
)
