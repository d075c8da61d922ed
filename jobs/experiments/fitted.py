"""Heads as a cluster fits them: on labelled rows under random sums of all vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cluster.learner.heads import FROZEN_ROWS, MOST_ROWS
from jobs.experiments.cache import Cell, Cost, Made, together
from jobs.experiments.context import Experiment
from jobs.experiments.methods import Merging
from jobs.experiments.models import Accuracies, Model, Vectors, with_heads
from jobs.experiments.rows import NONE, NONE_PROBE
from tacl.evaluation import metrics
from tacl.heads.fitting import LabelledFeatures, answering_heads, frozen_heads
from tacl.heads.head import Head, beside
from tacl.heads.novelty import Novelty
from tacl.models.sums import Sums
from tacl.vectors import Params

AtTheta0 = Callable[[str, str], Tensor]  # rows of a part of a task at theta0, [N, E]
PARTS = (f"train:{MOST_ROWS}", "validation")  # at most MOST_ROWS rows of a task, as in a cluster
FROZEN = (f"train:{FROZEN_ROWS}", "validation")  # at most FROZEN_ROWS at theta0
REST = f"train:{MOST_ROWS}-{FROZEN_ROWS}"  # those that no dual pass has measured at theta0
# Rows of the generic set to measure *none of these* on: its probe rows judge the fit.
GENERIC_TEST = "test:300"


@dataclass(frozen=True)
class Answering(Merging):
    """Heads that are fitted under sums of the model's vectors. `inner`: they also read inner
    blocks, as in a cluster."""

    inner: bool = False

    def accuracies(self, model: Model) -> tuple[Accuracies, Cell]:
        """Individual: each task's own vector alone, with the same head."""
        experiment, pool = model.experiment, model.experiment.pool
        at = experiment.plain if self.inner else experiment.features
        cell = fitted(experiment, self.added(experiment), at)
        tensors, scale = cell.tensors(), cell.facts["scale"]
        heads = {task: Head(tensors[task], scale, experiment.rows(task).classes) for task in pool}
        labels = {task: experiment.rows(task).labels_N("test") for task in pool}
        plain = {task: at(task, "test") for task in pool}
        merged = {t: beside(plain[t], model.features(t, "test")) for t in pool}
        own = {t: beside(plain[t], model.alone(t, "test")) for t in pool}
        facts = {"calibration_error": metrics.joint_calibration(merged, labels, heads)}
        facts |= _told_from_none(tensors, plain, at(experiment.suite.generics[0], GENERIC_TEST))
        found = with_heads(experiment, heads, merged, own)
        return found, replace(cell, facts={**cell.facts, **facts})

    def cost(self, model: Model, cell: Cell) -> Cost:
        """The cost of passes over the labelled rows, under sums and at theta0, and of the fit."""
        experiment, vectors = model.experiment, self.added(model.experiment)
        at_theta0 = experiment.seen_plain if self.inner else experiment.encoding
        seen = [_seen(experiment, vectors, task, part) for task in vectors for part in PARTS]
        seen += [at_theta0(t, REST) for t in vectors if experiment.rows(t).places(REST)]
        return together([*(one.cost for one in seen), cell.cost])


def fitted(experiment: Experiment, vectors: Vectors, at: AtTheta0) -> Cell:
    """The weights of the heads of all tasks; their common scale is a fact of the cell."""
    seen = {
        part: {task: _seen(experiment, vectors, task, part) for task in vectors} for part in PARTS
    }
    for task in vectors:  # before the fit, so that its cost does not include them
        _rest(experiment, at, task)
    _generic(experiment, at)

    def make() -> Made:
        trained = {task: experiment.head(task) for task in vectors}
        pairs = [_pairs(experiment, seen[part], part, at) for part in PARTS]
        plain = [{task: pair[0] for task, pair in by_task.items()} for by_task in pairs]
        train = {t: _with_rest(experiment, at, t, measured) for t, measured in plain[0].items()}
        frozen, novelty = frozen_heads(trained, train, plain[1], _generic(experiment, at))
        heads = answering_heads(trained, frozen, pairs[0], pairs[1])
        (scale,) = {head.scale for head in heads.values()}
        told = {f"novelty {name}": value for name, value in novelty.to_params().items()}
        return {"scale": scale}, told | {task: head.weight_CD for task, head in heads.items()}

    keys = [cell.key for cells in seen.values() for cell in cells.values()]
    frozen = [experiment.content(task, part) for task in vectors for part in FROZEN]
    frozen += [experiment.content(experiment.suite.generics[0], NONE)]
    inner = {"inner": list(experiment.backbone.inner)} if at == experiment.plain else {}
    what = f"of {len(vectors)} tasks"
    return experiment.cell("heads", make, what, *vectors, seen=keys, frozen=frozen, **inner)


def _pairs(
    experiment: Experiment, seen: Mapping[str, Cell], part: str, at: AtTheta0
) -> dict[str, tuple[LabelledFeatures, LabelledFeatures]]:
    """Rows of a part at theta0, with inner blocks if `at` has them, and under sums; by task."""
    found: dict[str, tuple[LabelledFeatures, LabelledFeatures]] = {}
    for task, cell in seen.items():
        tensors, labels_N = cell.tensors(), experiment.rows(task).labels_N(part)
        moved_ND, plain_NE = tensors["moved"], tensors["plain"]
        if at != experiment.plain:
            plain_NE = plain_NE[:, : moved_ND.shape[1]]
        plain = LabelledFeatures(plain_NE, labels_N)
        found[task] = plain, LabelledFeatures(moved_ND, labels_N)
    return found


def _rest(experiment: Experiment, at: AtTheta0, task: str) -> Tensor | None:
    """Rows of REST at theta0, [N, E]; None if the task has no more rows than MOST_ROWS."""
    return at(task, REST) if experiment.rows(task).places(REST) else None


def _with_rest(
    experiment: Experiment, at: AtTheta0, task: str, measured: LabelledFeatures
) -> LabelledFeatures:
    """FROZEN_ROWS at theta0, in the order of the split: `measured` by dual passes, and the rest."""
    if (rest_NE := _rest(experiment, at, task)) is None:
        return measured
    rows = experiment.rows(task)
    order = torch.tensor([*rows.places(PARTS[0]), *rows.places(REST)]).argsort()
    plain_NE = torch.cat([measured.features_ND, rest_NE])[order]
    return LabelledFeatures(plain_NE, rows.labels_N(FROZEN[0]))


def _told_from_none(
    tensors: Params, plain: Mapping[str, Tensor], generic_NE: Tensor
) -> dict[str, float]:
    """AUROC of *none of these*: against the rows of the one task that a model lacks, as mean over
    these models, and against test rows of the generic set."""
    told = {n.removeprefix("novelty "): v for n, v in tensors.items() if n.startswith("novelty ")}
    novelty = Novelty.from_params(told)
    others = {task: {t: f for t, f in plain.items() if t != task} for task in plain}
    areas = {
        task: novelty.auroc_against(others[task], foreign_NE) for task, foreign_NE in plain.items()
    }
    of_generic = novelty.auroc_against(plain, generic_NE)
    return {"none_auroc": metrics.absolute(areas), "none_auroc_generic": of_generic}


def _generic(experiment: Experiment, at: AtTheta0) -> tuple[Tensor, Tensor]:
    """Inputs of no task at theta0: those to learn from, and those to judge by."""
    learned_NE, judged_NE = (at(experiment.suite.generics[0], part) for part in (NONE, NONE_PROBE))
    return learned_NE, judged_NE


def _seen(experiment: Experiment, vectors: Vectors, task: str, part: str) -> Cell:
    """The cell of a task's rows of a part, at theta0 and under sums of the vectors."""
    rows, precision = experiment.rows(task), experiment.suite.precision

    def make() -> Made:
        tau_of = lambda name: vectors[name].tau()  # noqa: E731
        module = experiment.base.linearized(precision)
        sums = Sums(module, experiment.backbone, [*vectors], tau_of)
        found = sums.rows(task, rows.items(part))
        return {}, {"plain": found.plain_NE, "moved": found.moved_ND}

    keys = {name: vector.key for name, vector in vectors.items()}
    data, what = experiment.content(task, part), f"of {task}, {part}"
    half = {"precision": precision} if precision != "float32" else {}  # older cells are float32
    return experiment.cell("dual", make, what, task=task, vectors=keys, data=data, **half)
