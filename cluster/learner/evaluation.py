"""Accuracies of a composition on the test splits of its tasks, by addition of cached tangents.

The linearized model is linear in tau: J(x) tau of a vector on a data set is computed once and kept
in a file; another subset, sign or coefficient of the same vectors costs no pass.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.explanations import parts_of
from cluster.domain.methods import answering, is_plain, judged, require_linearized
from cluster.domain.tasks import VectorRef
from cluster.domain.work import (
    CONFUSED,
    ClassReport,
    Evaluated,
    EvaluateWork,
    TaskAccuracy,
    TaskData,
)
from cluster.learner.artifacts import BATCH, Materials, given_device
from cluster.learner.feature_cache import kept, tensor_of
from cluster.learner.progress import ProgressCallback
from cluster.storage.home import Home
from cluster.storage.samples import Raw, labelled_rows
from tacl.backbone import Item
from tacl.compose.arithmetic import composed
from tacl.compose.materialized import materialized, materialized_features
from tacl.evaluation import metrics
from tacl.evaluation.classes import accuracies, confusion, f1_scores
from tacl.heads.head import Head
from tacl.vectors.params import Params

KEPT = "value"  # the name of a tensor in its file
Terms = Sequence[RecipeTerm]
Features = Mapping[str, Tensor]  # by task: features [N, D], or labels [N]


def evaluate(work: EvaluateWork, home: Home, tell: ProgressCallback) -> Evaluated:
    """Zero-shot, individual and composed accuracy per task, and their summaries.

    Zero-shot and class-incremental accuracy are with the heads of the training, all others with
    the heads that answer. `tell` reports the number of test rows that are done.

    Raises MixedRegimes for vectors that were not trained in the linearized model.
    """
    started = time.monotonic()
    own = [task.individual for task in work.tasks if task.individual is not None]
    require_linearized("an evaluation", [*(one.vector for one in work.composition.terms), *own])
    materials = Materials(home, work.base, given_device(work.gpus))
    kept_at = home.path / "cache" / "tangents"
    per_task: dict[str, dict[str, float]] = {}
    left_out: dict[str, dict[str, float]] = {}
    features, views, ordinary, plain, labels, trained, heads = {}, {}, {}, {}, {}, {}, {}
    for task in _in_turn(work.tasks, tell):
        trained[task.name] = materials.head(task.head_blob)
        rows = TestRows(materials, kept_at, task, trained[task.name].weight_CD.shape[1])
        head = heads[task.name] = materials.head(task.fitted_head or task.head_blob)
        f_ND, plain_NE = rows.features_ND, rows.plain_NE
        features[task.name] = f_ND + rows.tangent_of(work.composition)
        views[task.name] = head.views(plain_NE, features[task.name])
        plain[task.name], labels[task.name] = plain_NE, rows.labels_N
        points = {
            "zero_shot": trained[task.name].logits(f_ND),
            "composed": head.logits(views[task.name]),
        }
        if task.individual is not None:
            individual_ND = f_ND + rows.tangent(_alone(task.individual))
            points["individual"] = head.logits(head.views(plain_NE, individual_ND))
        if work.materialized:
            ordinary[task.name] = rows.materialized(work.composition)
            points["materialized"] = head.narrow().logits(ordinary[task.name])
        per_task[task.name] = {
            name: metrics.accuracy(logits_NC, rows.labels_N) for name, logits_NC in points.items()
        } | {"rows": len(rows.labels_N)}
        if work.without:
            left_out[task.name] = rows.left_out(work.composition, head, features[task.name])
    apart = _apart(work, materials, plain, views, labels, heads)
    added = judged(work.composition, per_task)
    merged = {t: per_task[t]["composed"] for t in added}
    single = _single(per_task, added)
    asked, columns = _unnamed(work.composition, views, heads)
    return Evaluated(
        per_task={t: TaskAccuracy(**row, **_of_task(t, apart)) for t, row in per_task.items()},
        absolute=metrics.absolute(merged),
        normalized=metrics.normalized({t: merged[t] for t in single}, single) if single else None,
        class_incremental=_mean(_unknown(work.composition, features, labels, trained), added),
        task_unknown=_mean(apart["unknown"], added),
        materialized_unknown=_mean(_narrow(work.composition, ordinary, labels, heads), added),
        calibration_error=metrics.joint_calibration(asked, labels, columns) if asked else None,
        none_auroc=_none_auroc(work.composition, materials, plain),
        frozen_known=_mean(apart["frozen_known"], added),
        frozen_unknown=_mean(apart["frozen_unknown"], added),
        by_class={t: _by_class(heads[t], views[t], labels[t]) for t in heads},
        without=_by_term(left_out),
        unjudged=tuple(t for t in answering(work.composition) if t not in per_task),
        seconds=time.monotonic() - started,
    )


def _single(per_task: Mapping[str, Mapping[str, float]], added: Sequence[str]) -> dict[str, float]:
    """Accuracy of single-task models, except where it is zero, as a ratio to zero is undefined: on
    few rows, a model may get all wrong."""
    return {t: row["individual"] for t in added if (row := per_task[t]).get("individual")}


def _narrow(
    model: Composition, ordinary: Features, labels: Features, heads: Mapping[str, Head]
) -> dict[str, float]:
    """Accuracy as one ordinary model, task unknown; empty if that was not requested."""
    return _unknown(model, ordinary, labels, {t: heads[t].narrow() for t in ordinary})


def _in_turn(tasks: Sequence[TaskData], tell: ProgressCallback) -> Iterator[TaskData]:
    done, total = 0, sum(task.test.rows for task in tasks)
    for task in tasks:
        tell(done, total, None)
        yield task
        done += task.test.rows


def _unknown(
    model: Composition, features: Features, labels: Features, heads: Mapping[str, Head]
) -> dict[str, float]:
    """Accuracy of each task among all answering tasks, task unknown."""
    asked, columns = _unnamed(model, features, heads)
    return metrics.class_incremental(asked, labels, columns) if asked else {}


def _by_term(left_out: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Turns task -> term -> accuracy into term -> task -> accuracy."""
    terms = dict.fromkeys(term for shares in left_out.values() for term in shares)
    return {term: {task: shares[term] for task, shares in left_out.items()} for term in terms}


def _of_task(task: str, apart: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {kind: shares[task] for kind, shares in apart.items() if task in shares}


def _mean(shares: Mapping[str, float], tasks: Sequence[str]) -> float | None:
    """The mean over those of `tasks` that have a value; None if none has."""
    found = {task: shares[task] for task in tasks if task in shares}
    return metrics.absolute(found) if found else None


def _none_auroc(model: Composition, materials: Materials, plain: Features) -> float | None:
    """AUROC of test rows against validation rows of tasks that the model does not have."""
    own = {task: plain[task] for task in answering(model) if task in plain}
    if model.novelty is None or not own:
        return None
    return materials.novelty(model.novelty).auroc(own)


def _unnamed(
    model: Composition, features: Features, heads: Mapping[str, Head]
) -> tuple[dict[str, Tensor], dict[str, Head]]:
    tasks = [task for task in answering(model) if task in features]
    return {task: features[task] for task in tasks}, {task: heads[task] for task in tasks}


def _by_class(head: Head, features_ND: Tensor, labels_N: Tensor) -> ClassReport:
    counted = head.logits(features_ND).argmax(-1), labels_N, len(head.classes)
    few = len(head.classes) <= CONFUSED  # of 10,000 classes the numbers would take 800 MB
    return ClassReport(
        classes=head.classes,
        accuracy=tuple(accuracies(*counted)),
        f1=tuple(f1_scores(*counted)),
        confusion=tuple(map(tuple, confusion(*counted).tolist())) if few else (),
    )


def _apart(
    work: EvaluateWork,
    materials: Materials,
    plain: Features,
    views: Features,
    labels: Features,
    heads: Mapping[str, Head],
) -> dict[str, dict[str, float]]:
    """Accuracy of each task with the task unknown, and of a classifier on the base alone, fitted on
    the same rows as the heads; empty if there is none."""
    model = work.composition
    blobs = {task.name: task.frozen_head for task in work.tasks}
    frozen = {name: materials.head(blob) for name, blob in blobs.items() if blob}
    seen: Features = {}
    if len(frozen) == len(blobs):
        seen = {t: frozen[t].read(plain_NE) for t, plain_NE in plain.items()}
    return {
        "unknown": _unknown(model, views, labels, heads),
        "frozen_known": {
            t: metrics.accuracy(frozen[t].logits(f_ND), labels[t]) for t, f_ND in seen.items()
        },
        "frozen_unknown": _unknown(model, seen, labels, frozen),
    }


class TestRows:
    """The test split of one task; `width` is the length of its features. Tensors by (content, data
    set) are files in `folder`, complete or absent, which all evaluations share."""

    __test__ = False  # no test of pytest's

    def __init__(self, materials: Materials, folder: Path, task: TaskData, width: int) -> None:
        self._materials, self._folder = materials, folder
        self._task, self._width = task, width

    @cached_property
    def _rows(self) -> tuple[list[Raw], list[int]]:
        return labelled_rows(self._materials.blobs, self._task.test)

    @cached_property
    def _items(self) -> list[Item]:
        """Prepared rows, made only if a pass is needed: preparing pictures takes longer than all
        additions. The originals, mostly larger, are dropped."""
        raws, _ = self._rows
        found = self._materials.prepared(raws)
        raws.clear()
        return found

    @cached_property
    def labels_N(self) -> Tensor:
        return torch.tensor(self._rows[1])

    @cached_property
    def features_ND(self) -> Tensor:
        """f(x; theta0), [N, D]."""
        return self.plain_NE[:, : self._width]

    @cached_property
    def plain_NE(self) -> Tensor:
        """f(x; theta0) and the outputs of inner blocks beside it, [N, E]."""
        return self._once("plain", lambda: self._materials.plain(self._items))

    def tangent_of(self, model: Composition) -> Tensor:
        """J(x) tau of the model, [N, D]."""
        if is_plain(model):
            return self.tangent(model.terms)
        return self._one_pass(model.digest, lambda: self._materials.tau(model))

    def parts_of(self, model: Composition) -> dict[str, Tensor]:
        """By term: c_t J(x) tau_t of each vector, [N, D]."""
        alone = [
            model.model_copy(update={"terms": (term,), "digest": f"{model.digest} {place}"})
            for place, term in enumerate(model.terms)
        ]
        tangents = map(self.tangent_of, alone)
        return dict(zip(parts_of(model), tangents, strict=True))

    def left_out(self, model: Composition, head: Head, features_ND: Tensor) -> dict[str, float]:
        """By term: the accuracy without it, given the features of the whole model."""
        moved = {part: features_ND - move_ND for part, move_ND in self.parts_of(model).items()}
        views = {part: head.views(self.plain_NE, rest_ND) for part, rest_ND in moved.items()}
        return {
            part: metrics.accuracy(head.logits(view), self.labels_N) for part, view in views.items()
        }

    def tangent(self, terms: Terms) -> Tensor:
        """J(x) sum_t c_t tau_t, [N, D]: cached tangents are added, the rest takes ONE dual pass."""
        total_ND = torch.zeros_like(self.features_ND)
        rest = []
        for term in terms:
            kept_ND = tensor_of(self._file(_alone(term.vector)), KEPT)
            if kept_ND is None:
                rest.append(term)
            else:
                total_ND.add_(kept_ND, alpha=term.coefficient)
        if len(rest) == 1:
            factor, rest = rest[0].coefficient, _alone(rest[0].vector)
            return total_ND.add_(self._combination(rest), alpha=factor)
        return total_ND.add_(self._combination(rest)) if rest else total_ND

    def materialized(self, model: Composition) -> Tensor:
        """f(x; theta0 + tau) of the model, [N, D]: one plain pass."""
        what = self._file(model.terms).name if is_plain(model) else model.digest

        def compute() -> Tensor:
            backbone = self._materials.backbone
            theta = materialized(backbone.encoder, self._materials.tau(model))
            return materialized_features(backbone, theta, self._items, BATCH)

        return self._once(f"materialized {what}", compute)

    def _combination(self, terms: Terms) -> Tensor:
        def tau() -> Params:
            vectors = [self._materials.vector(term.vector) for term in terms]
            return composed(vectors, [term.coefficient for term in terms])

        return self._one_pass(terms, tau)

    def _one_pass(self, what: Terms | str, tau_of: Callable[[], Params]) -> Tensor:
        def compute() -> Tensor:
            return self._materials.tangents(self._items, {"sum": tau_of()}).tangents["sum"]

        return self._once(what, compute)

    def _once(self, what: Terms | str, compute: Callable[[], Tensor]) -> Tensor:
        """The cached tensor; if there is none, it is computed and cached."""
        return kept(self._file(what), compute, KEPT)

    def _file(self, what: Terms | str) -> Path:
        if not isinstance(what, str):
            what = json.dumps(sorted((t.vector.digest, t.coefficient) for t in what))
        text = f"{self._materials.backbone.digest}\0{self._task.test.digest}\0{what}"
        return self._folder / hashlib.sha256(text.encode()).hexdigest()


def _alone(vector: VectorRef) -> Terms:
    return (RecipeTerm(coefficient=1.0, vector=vector),)
