"""New tasks from old vectors: few-shot, test-time and parameter-efficient aTLAS (arXiv 2407.02880).

The targets are tasks outside the pool, as a vector that was trained against a task's samples has no
effect on them. Only coefficients are learned; all start at 0, also those of tauJp vectors: their
sum is good for their own tasks, and for a new one that is unknown.

If the base has no text tower, a head is made of the labelled rows that coefficients are learned
from, there is no zero-shot accuracy, and without labels nothing can be adapted.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch

from jobs.experiments import plots, saw
from jobs.experiments.cache import Made
from jobs.experiments.context import Experiment
from jobs.experiments.methods import linear, ordinary, tau_jp
from jobs.experiments.models import KeptDirection, Model, TrainedVector, features_of, task_vectors
from jobs.experiments.suites import Suite
from jobs.experiments.table import Entry, Method, Numbers, Spec, Train, means_of, shares
from tacl.backbone import Backbone
from tacl.compose.learning import Use, learn, learning_config
from tacl.compose.scaled import ScaledEncoder
from tacl.compose.ufm import ufm
from tacl.data.batches import Labelled
from tacl.errors import BadConfig
from tacl.evaluation.metrics import accuracy
from tacl.heads.adapters import LpPlusPlus, TipAdapter
from tacl.heads.head import Head

SHOTS = (1, 2, 4, 8, 16)
SHARES = (1, 10, 100)  # % of the training rows
PARTS = (1, 4, 16)
MOST_STEPS = 200
POOLED = ("ordinary", "linear", "taujp")
TRAIN: dict[str, tuple[Train | None, str]] = {
    **{"ordinary": (ordinary, saw.LABELS), "linear": (linear, saw.LABELS)},
    **{"taujp": (tau_jp, saw.PENALISED), "theta0": (None, saw.NOTHING)},
}
TOPS = {"tip": TipAdapter, "lp": LpPlusPlus}
FEW_SHOT = (
    "A few labelled rows of a new task: aTLAS learns one coefficient for each (vector of the pool, "
    "block), from 0; on top of it, or of theta0 alone, Tip-Adapter (tip) or LP++ (lp). Test "
    "accuracy, mean over the target tasks, over the number of shots of each class."
)
TEST_TIME = (
    "aTLAS without labels (UFM) on the validation inputs of a new task; *transductive*: on its "
    f"test inputs. At most {MOST_STEPS} steps. Test accuracy, mean over the target tasks."
)
PEFT = (
    "aTLAS with K coefficients for each (vector, block), over entries dealt at random, on a share "
    f"of a new task's training rows, at most {MOST_STEPS} steps. Test accuracy, mean over targets."
)
ZERO = {"zero_shot": "zero-shot"}
SHOT_COLUMNS = shares(**ZERO, **{f"shots_{n}": f"{n}" for n in SHOTS})
TIME_COLUMNS = shares(**ZERO, adapted="adapted", transductive="transductive")
SHARE_COLUMNS = shares(**ZERO, **{f"share_{n}": f"{n} %" for n in SHARES})


@dataclass(frozen=True)
class LearnedJudge:
    """Features along `direction`, without one those of theta0, and a judge that reads them."""

    direction: KeptDirection | None
    judge: Head | TipAdapter | LpPlusPlus

    def accuracy(self, experiment: Experiment, target: str) -> float:
        found_ND = Model(experiment, direction=self.direction).features(target, "test")
        return accuracy(self.judge.logits(found_ND), experiment.rows(target).labels_N("test"))


Learn = Callable[
    [Experiment, Sequence[TrainedVector], str], LearnedJudge
]  # vectors of the pool, target


@dataclass(frozen=True)
class Fitting(Method):
    """`columns`: what is learned for each of them; `labels`: whether it needs labelled rows."""

    columns: Mapping[str, Learn]
    labels: bool = True

    def require(self, suite: Suite, backbone: Backbone) -> None:
        if not suite.targets:
            raise BadConfig(f"suite {suite.name} names no tasks outside its pool: no targets")
        if not self.labels and backbone.head_kind != "text":
            raise BadConfig(
                f"test-time adaptation sees no labels, and the heads of {suite.base} are made "
                "of labelled rows; choose a suite whose base has a text tower"
            )


def few_shot(suite: Suite) -> list[Fitting]:
    found = []
    for name, top in (*product(POOLED, ("",)), *product(("theta0", "ordinary", "taujp"), TOPS)):
        columns = {f"shots_{n}": partial(_with_shots, count=n, top=top) for n in SHOTS}
        variant = f"{name}+{top}" if top else name
        found.append(Fitting(variant, *TRAIN[name], "labelled shots", columns))
    return found


def _with_shots(
    experiment: Experiment, vectors: Sequence[TrainedVector], target: str, count: int, top: str
) -> LearnedJudge:
    data = some_of_each(experiment.rows(target).train, count, experiment.seed)
    direction = shots(experiment, vectors, target, count) if vectors else None
    head = experiment.head_from(target, data)
    if not top:
        return LearnedJudge(direction, head)
    features_ND = features_of(experiment, direction, data.items)
    return LearnedJudge(direction, TOPS[top].of(head, features_ND, data.labels))


def shots(
    experiment: Experiment, vectors: Sequence[TrainedVector], target: str, count: int
) -> KeptDirection:
    """Coefficients learned from `count` rows of each class."""
    rows = partial(some_of_each, experiment.rows(target).train, count, experiment.seed)
    return fitted(experiment, vectors, target, {"shots": count}, "few-shot", rows)


def some_of_each(data: Labelled, count: int, seed: int) -> Labelled:
    """`count` rows of each class by seed, or all if there are fewer; more shots contain fewer."""
    rows: list[int] = []
    for label in sorted(set(data.labels.tolist())):
        of_class = (data.labels == label).nonzero().flatten().tolist()
        random.Random(f"shots {seed} {label}").shuffle(of_class)
        rows += of_class[:count]
    return _some(data, rows)


def test_time(suite: Suite) -> list[Fitting]:
    parts = {"adapted": "validation", "transductive": "test"}
    columns = {key: partial(_adapted, part=part) for key, part in parts.items()}
    return [Fitting(n, *TRAIN[n], "inputs of the target", columns, labels=False) for n in POOLED]


def _adapted(
    experiment: Experiment, vectors: Sequence[TrainedVector], target: str, part: str
) -> LearnedJudge:
    """Coefficients learned from the inputs of a part of the target's rows."""
    how, rows = {"adapted": part}, partial(experiment.rows(target).labelled, part)
    found = fitted(experiment, vectors, target, how, "test-time", rows, MOST_STEPS)
    return LearnedJudge(found, experiment.head(target))


def peft(suite: Suite) -> list[Fitting]:
    found = []
    for name, parts in product(("ordinary", "taujp"), PARTS):
        columns = {f"share_{n}": partial(_on_a_share, share=n, parts=parts) for n in SHARES}
        found.append(Fitting(f"{name} x {parts}", *TRAIN[name], "labels of the target", columns))
    return found


def _on_a_share(
    experiment: Experiment, vectors: Sequence[TrainedVector], target: str, share: int, parts: int
) -> LearnedJudge:
    """Coefficients of `parts` parts of each block, learned from `share` % of the training rows."""
    how, rows = {"share": share, "parts": parts}, partial(share_of, experiment, target, share)
    found = fitted(experiment, vectors, target, how, "peft", rows, MOST_STEPS, parts)
    return LearnedJudge(found, experiment.head_from(target, rows()))


def share_of(experiment: Experiment, target: str, share: int) -> Labelled:
    """`share` % of the training rows by seed; at least one of each class, if the head needs it."""
    whole, seed = experiment.rows(target).train, experiment.seed
    count = max(2, len(whole) * share // 100)
    rows = random.Random(f"share {seed}").sample(range(len(whole)), count)
    if experiment.backbone.head_kind != "text":
        labels = whole.labels.tolist()
        missing = set(labels) - {labels[row] for row in rows}
        rows += [labels.index(label) for label in sorted(missing)]
    return _some(whole, rows)


def _some(data: Labelled, rows: list[int]) -> Labelled:
    return Labelled([data.items[row] for row in rows], data.labels[torch.tensor(rows)])


def fitted(
    experiment: Experiment,
    vectors: Sequence[TrainedVector],
    target: str,
    how: dict[str, Any],
    use: Use,
    rows: Callable[[], Labelled],
    most: int = sys.maxsize,
    parts: int = 1,
) -> KeptDirection:
    """Coefficients learned from `rows`, in at most `most` steps; in the suite's precision if the
    vectors are linearized. `how` identifies the rows and the parts of a block in the key."""

    def make() -> Made:
        data, seed = rows(), experiment.seed
        precision = experiment.suite.precision if vectors[0].regime == "linearized" else "float32"
        dtype = torch.bfloat16 if precision == "bfloat16" else None
        kept = task_vectors(experiment, vectors)
        module = ScaledEncoder(experiment.backbone, kept, parts=parts, seed=seed, dtype=dtype)
        steps = min(learning_config(use, len(data), seed).steps, most)
        config = learning_config(use, len(data), seed, steps=steps)
        if use == "test-time":
            learned = ufm(module, experiment.backbone, experiment.head(target), data.items, config)
        else:
            head = experiment.head_from(target, data)
            learned = learn(module, experiment.backbone, head, data, config)
        facts = {"rows": len(data), "loss": learned.losses, "precision": precision}
        return facts, module.tau_dict()

    cell = experiment.cell(
        "coefficients",
        make,
        f"{how} of {target}",
        target,
        **how,
        vectors=[vector.key for vector in vectors],
        target=[experiment.rows(target).digest(part) for part in ("train", "validation", "test")],
        classes=experiment.rows(target).classes,
        seed=experiment.seed,
    )
    return KeptDirection(cell, vectors[0].regime)


def entry(experiment: Experiment, method: Fitting) -> Entry:
    vectors = list(method.vectors(experiment).values())
    textual = experiment.backbone.head_kind == "text"  # else class names alone make no head
    tasks: dict[str, Numbers] = {}
    merging = []
    for target in [source.name for source in experiment.suite.targets]:
        found = {key: learn(experiment, vectors, target) for key, learn in method.columns.items()}
        scores = {key: one.accuracy(experiment, target) for key, one in found.items()}
        plain = (
            LearnedJudge(None, experiment.head(target)).accuracy(experiment, target)
            if textual
            else None
        )
        tasks[target] = {"zero_shot": plain, **scores}
        merging += [one.direction.cell.cost for one in found.values() if one.direction]
    means = means_of(tasks)
    training = [vector.cost for vector in vectors]
    return method.entry(experiment, means, tasks, training=training, merging=merging)


SPECS = (
    Spec("few-shot", FEW_SHOT, SHOT_COLUMNS, few_shot, entry, plots.across, targets=True),
    Spec("test-time", TEST_TIME, TIME_COLUMNS, test_time, entry, plots.bars, targets=True),
    Spec("peft", PEFT, SHARE_COLUMNS, peft, entry, plots.across, targets=True),
)
