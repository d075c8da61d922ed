"""The numbers of every table: the metrics by which merging and continual learning are compared.

Accuracies are shares in [0, 1]. R[i, j] is the accuracy on task j after task i arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacl.evaluation.tangents import Cached
from tacl.heads.calibration import balanced_weights, calibration_error
from tacl.heads.columns import Columns
from tacl.heads.head import Head, starts


def correct(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Which rows are answered right, bool [N]."""
    return logits_NC.argmax(-1) == labels_N


def accuracy(logits_NC: Tensor, labels_N: Tensor) -> float:
    if len(labels_N) == 0:
        raise ValueError("the accuracy of no rows is undefined")
    return correct(logits_NC, labels_N).double().mean().item()


def absolute(accuracies: Mapping[str, float]) -> float:
    """Mean over tasks of the merged model's accuracy, each task with its own head."""
    return _mean(list(accuracies.values()))


def normalized(merged: Mapping[str, float], individual: Mapping[str, float]) -> float:
    """Mean over tasks of merged / individual: a mean of ratios, never a ratio of means."""
    if merged.keys() != individual.keys():
        raise ValueError(f"different tasks: {sorted(merged)} and {sorted(individual)}")
    wrong = sorted(task for task, value in individual.items() if value == 0)
    if wrong:
        raise ValueError(f"the individual model of {wrong} gets no row right: no ratio exists")
    return _mean([merged[task] / individual[task] for task in merged])


def class_incremental(
    features: Mapping[str, Tensor], labels: Mapping[str, Tensor], heads: Mapping[str, Head]
) -> dict[str, float]:
    """Accuracy on each task's rows with one head over the classes of ALL tasks (task unknown).

    features[t]: the merged model's features [N_t, D] of task t's rows. The mean over tasks is
    `absolute` of the result.
    """
    return shares(correct_among_all(features, labels, heads))


def correct_among_all(
    features: Mapping[str, Tensor], labels: Mapping[str, Tensor], heads: Mapping[str, Head]
) -> dict[str, Tensor]:
    """Which rows of each task are right as in `class_incremental`, bool [N_t]."""
    columns, begins = Columns(heads), dict(zip(heads, starts(heads.values()), strict=True))
    return {t: correct(columns.logits(f), labels[t] + begins[t]) for t, f in features.items()}


def shares(right_by_task: Mapping[str, Tensor]) -> dict[str, float]:
    """The accuracy of each task, from which of its rows are right."""
    return {task: right_N.double().mean().item() for task, right_N in right_by_task.items()}


def joint_calibration(
    features: Mapping[str, Tensor], labels: Mapping[str, Tensor], heads: Mapping[str, Head]
) -> float:
    """Expected calibration error of the most probable class among those of ALL tasks, the tasks
    weighted equally."""
    columns, confidence, right = Columns(heads), [], []
    for task, start in zip(heads, starts(heads.values()), strict=True):
        probability_N, place_N = columns.logits(features[task]).softmax(-1).max(-1)
        confidence.append(probability_N)
        right.append(place_N == labels[task] + start)
    return calibration_error(
        torch.cat(confidence), torch.cat(right), balanced_weights(map(len, confidence))
    )


@dataclass(frozen=True)
class Continual:
    """Metrics of a sequence of tasks; None if undefined: for a single task, or without b."""

    acc: float
    aia: float
    bwt: float | None
    forgetting: float | None
    fwt: float | None


def continual(R_TT: Tensor, b_T: Tensor | None = None) -> Continual:
    """Metrics from all accuracies R[i, j], also those of tasks yet to arrive, and zero-shot b[j].

    ACC = mean_j R[T, j]; AIA = mean_i mean_{j<=i} R[i, j]; BWT = mean_{j<T} (R[T, j] - R[j, j]);
    forgetting = mean_{j<T} (max_{l<T} R[l, j] - R[T, j]); FWT = mean_{j>1} (R[j-1, j] - b[j]).
    """
    R_TT = R_TT.double()
    tasks = R_TT.shape[0]
    if R_TT.ndim != 2 or R_TT.shape != (tasks, tasks) or not tasks or not R_TT.isfinite().all():
        raise ValueError(f"R of shape {tuple(R_TT.shape)} must be square and finite")
    if b_T is not None and b_T.shape != (tasks,):
        raise ValueError(
            f"b of shape {tuple(b_T.shape)} must have one entry for each of {tasks} tasks"
        )
    last_T, own_T = R_TT[-1], R_TT.diagonal()
    so_far_T = R_TT.tril().sum(1) / torch.arange(1, tasks + 1)
    several = tasks > 1
    bwt = (last_T - own_T)[:-1].mean().item() if several else None
    forgetting = (R_TT[:-1].amax(0) - last_T)[:-1].mean().item() if several else None
    before_T = R_TT.diagonal(1)  # R[j-1, j]
    fwt = (before_T - b_T[1:].double()).mean().item() if several and b_T is not None else None
    return Continual(last_T.mean().item(), so_far_T.mean().item(), bwt, forgetting, fwt)


def disentanglement_error(
    cached: tuple[Cached, Cached],
    heads: tuple[Head, Head],
    vectors: tuple[str, str],
    grid: Sequence[float] = tuple(torch.linspace(-3, 3, 21).tolist()),
) -> Tensor:
    """xi(alpha_1, alpha_2) [G, G], rows alpha_1, columns alpha_2; from 0 to 2 (arXiv 2305.12827).

    The sum over t in {1, 2} of the share of task t's rows whose prediction with alpha_t tau_t
    alone differs from that with alpha_1 tau_1 + alpha_2 tau_2.
    """
    one, two = vectors
    error_GG = torch.zeros(len(grid), len(grid), dtype=torch.float64)
    for rows, head, own in zip(cached, heads, (0, 1), strict=True):
        alone = [_answers(rows, head, {vectors[own]: alpha}) for alpha in grid]
        for i, alpha in enumerate(grid):
            for j, beta in enumerate(grid):
                both_N = _answers(rows, head, {one: alpha, two: beta})
                error_GG[i, j] += (alone[(i, j)[own]] != both_N).double().mean()
    return error_GG


def rank_correlation(left_N: Tensor, right_N: Tensor) -> float:
    """Spearman's correlation of ranks, where equal values share a rank; 0 if a side is constant."""
    ranks = [_ranks(values.double()) for values in (left_N, right_N)]
    centred = [rank - rank.mean() for rank in ranks]
    size = centred[0].norm() * centred[1].norm()
    return (centred[0] @ centred[1] / size).item() if size else 0.0


def _ranks(values_N: Tensor) -> Tensor:
    """For each value, the number of smaller values plus half of the equal ones."""
    smaller_N = (values_N[None] < values_N[:, None]).sum(1)
    equal_N = (values_N[None] == values_N[:, None]).sum(1)
    return smaller_N + equal_N.double() / 2


def _answers(rows: Cached, head: Head, recipe: Mapping[str, float]) -> Tensor:
    return head.logits(rows.linearized(recipe)).argmax(-1)


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise ValueError("the mean over no tasks is undefined")
    return sum(values) / len(values)
