"""New tasks from old vectors: few-shot, test-time and parameter-efficient aTLAS (arXiv 2407.02880).

The targets are tasks outside the pool: a vector that was trained against a task's samples is inert
on them. Nothing but coefficients is learned; all start at 0, also of tauJp vectors: their sum works
for their own tasks, and for a new one it is not known to be of any use.

Where the base has no text tower, a head is made of the labelled rows that are learned from, there
is no zero-shot accuracy, and without labels nothing can be adapted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from jobs.experiments import plots
from jobs.experiments.cache import Made
from jobs.experiments.context import Bench
from jobs.experiments.cost import together
from jobs.experiments.directions import Kept, Vector, features, features_of
from jobs.experiments.methods import LABELS, NOTHING, PENALISED, Train, linear, ordinary, tau_jp
from jobs.experiments.spec import Spec
from jobs.experiments.table import Column, Entry, Numbers, mean_of
from tacl.compose.learning import Use, learn, learning_config
from tacl.compose.scaled import ScaledEncoder
from tacl.compose.ufm import ufm
from tacl.data.batches import Labelled
from tacl.errors import BadConfig
from tacl.evaluation.metrics import accuracy
from tacl.heads.adapters import LpPlusPlus, TipAdapter
from tacl.training.config import TrainConfig

SHOTS = (1, 2, 4, 8, 16)
SHARES = (1, 10, 100)  # % of the training rows
PARTS = (1, 4, 16)
MOST_STEPS = 200
TRAIN: dict[str, Train] = {"ordinary": ordinary, "linear": linear, "taujp": tau_jp}
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
ZERO = Column("zero_shot", "zero-shot")
SHOT_COLUMNS = (ZERO, *(Column(f"shots_{n}", f"{n}") for n in SHOTS))
TIME_COLUMNS = (ZERO, Column("adapted", "adapted"), Column("transductive", "transductive"))
SHARE_COLUMNS = (ZERO, *(Column(f"share_{n}", f"{n} %") for n in SHARES))
SHOT_VARIANTS = (
    *TRAIN,
    *(f"{name}+{top}" for name in ("theta0", "ordinary", "taujp") for top in TOPS),
)
PEFT_VARIANTS = tuple(f"{name} x {parts}" for name in ("ordinary", "taujp") for parts in PARTS)


class Judge(Protocol):
    """A head, or what was put on top of one."""

    def logits(self, features_BD: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class Learned:
    """Without a direction the features are those of theta0."""

    direction: Kept | None
    judge: Judge

    def accuracy(self, bench: Bench, target: str) -> float:
        plain_ND = bench.features(target, "test")
        move = self.direction
        found_ND = plain_ND if move is None else features(bench, move, target, "test")
        return accuracy(self.judge.logits(found_ND), bench.rows(target).labels_N("test"))


Learn = Callable[[list[Vector], str], dict[str, Learned]]


def few_shot(bench: Bench, variant: str) -> Entry:
    name, _, top = variant.partition("+")

    def learned(vectors: list[Vector], target: str) -> dict[str, Learned]:
        return {f"shots_{n}": _with_shots(bench, vectors, target, n, top) for n in SHOTS}

    return _entry(bench, variant, TRAIN.get(name), "labelled shots", learned)


def _with_shots(
    bench: Bench, vectors: Sequence[Vector], target: str, count: int, top: str
) -> Learned:
    data = some_of_each(bench.rows(target).train, count, bench.seed)
    direction = shots(bench, vectors, target, count) if vectors else None
    head = bench.head_from(target, data)
    if not top:
        return Learned(direction, head)
    regime = direction.regime if direction else "ordinary"
    tau = direction.tau() if direction else {}
    features_ND = features_of(bench, regime, tau, data.items)
    return Learned(direction, TOPS[top].of(head, features_ND, data.labels))


def shots(bench: Bench, vectors: Sequence[Vector], target: str, count: int) -> Kept:
    """Coefficients learned from `count` rows of each class."""

    def make() -> Made:
        data = some_of_each(bench.rows(target).train, count, bench.seed)
        module = _scaled(bench, vectors)
        config = learning_config("few-shot", len(data), bench.seed)
        learned = learn(module, bench.backbone, bench.head_from(target, data), data, config)
        return {"rows": len(data), "loss": learned.losses}, module.tau_dict()

    return _cell(bench, vectors, target, {"shots": count}, make)


def some_of_each(data: Labelled, count: int, seed: int) -> Labelled:
    """`count` rows of each class by seed, all of a class that has fewer; more shots hold fewer."""
    rows: list[int] = []
    for label in sorted(set(data.labels.tolist())):
        of_class = (data.labels == label).nonzero().flatten().tolist()
        random.Random(f"shots {seed} {label}").shuffle(of_class)
        rows += of_class[:count]
    return _some(data, rows)


def test_time(bench: Bench, variant: str) -> Entry:
    parts = {"adapted": "validation", "transductive": "test"}
    if bench.backbone.head_kind != "text":
        raise BadConfig(
            f"test-time adaptation sees no labels, and the heads of {bench.suite.base} are made "
            "of labelled rows; choose a suite whose base has a text tower"
        )

    def learned(vectors: list[Vector], target: str) -> dict[str, Learned]:
        head = bench.head(target)
        return {k: Learned(adapted(bench, vectors, target, p), head) for k, p in parts.items()}

    return _entry(bench, variant, TRAIN[variant], "inputs of the target", learned)


def adapted(bench: Bench, vectors: Sequence[Vector], target: str, part: str) -> Kept:
    """Coefficients learned from the inputs of a part of the target's rows."""

    def make() -> Made:
        items = bench.rows(target).items(part)
        module = _scaled(bench, vectors)
        config = _bounded("test-time", len(items), bench.seed)
        learned = ufm(module, bench.backbone, bench.head(target), items, config)
        return {"rows": len(items), "loss": learned.losses}, module.tau_dict()

    return _cell(bench, vectors, target, {"adapted": part}, make)


def peft(bench: Bench, variant: str) -> Entry:
    name, _, parts = variant.rpartition(" x ")

    def learned(vectors: list[Vector], target: str) -> dict[str, Learned]:
        found = {}
        for share in SHARES:
            data = share_of(bench, target, share)
            direction = on_a_share(bench, vectors, target, share, int(parts))
            found[f"share_{share}"] = Learned(direction, bench.head_from(target, data))
        return found

    return _entry(bench, variant, TRAIN[name], "labels of the target", learned)


def share_of(bench: Bench, target: str, share: int) -> Labelled:
    """`share` % of the training rows by seed; one of each class at least, if the head needs it."""
    whole, seed = bench.rows(target).train, bench.seed
    count = max(2, len(whole) * share // 100)
    rows = random.Random(f"share {seed}").sample(range(len(whole)), count)
    if bench.backbone.head_kind != "text":
        labels = whole.labels.tolist()
        missing = set(labels) - {labels[row] for row in rows}
        rows += [labels.index(label) for label in sorted(missing)]
    return _some(whole, rows)


def on_a_share(
    bench: Bench, vectors: Sequence[Vector], target: str, share: int, parts: int
) -> Kept:
    """Coefficients of `parts` parts of each block, learned from `share` % of the training rows."""

    def make() -> Made:
        data = share_of(bench, target, share)
        module = _scaled(bench, vectors, parts=parts, seed=bench.seed)
        config = _bounded("peft", len(data), bench.seed)
        learned = learn(module, bench.backbone, bench.head_from(target, data), data, config)
        return {"rows": len(data), "loss": learned.losses}, module.tau_dict()

    return _cell(bench, vectors, target, {"share": share, "parts": parts}, make)


def _bounded(use: Use, rows: int, seed: int) -> TrainConfig:
    steps = min(learning_config(use, rows, seed).steps, MOST_STEPS)
    return learning_config(use, rows, seed, steps=steps)


def _some(data: Labelled, rows: list[int]) -> Labelled:
    return Labelled([data.items[row] for row in rows], data.labels[torch.tensor(rows)])


def _cell(
    bench: Bench,
    vectors: Sequence[Vector],
    target: str,
    how: dict[str, Any],
    make: Callable[[], Made],
) -> Kept:
    parts = ("train", "validation", "test")
    decides = bench.decided_by(
        target,
        **how,
        vectors=[vector.key for vector in vectors],
        target=[bench.rows(target).digest(part) for part in parts],
        classes=bench.rows(target).classes,
        seed=bench.seed,
    )
    what = f"{how} of {target}, seed {bench.seed}"
    return Kept(bench.cells.get("coefficients", decides, make, what), vectors[0].regime)


def _scaled(bench: Bench, vectors: Sequence[Vector], **how: Any) -> ScaledEncoder:
    """In the suite's precision where the vectors are linearized."""
    half = bench.suite.precision == "bfloat16" and vectors[0].regime == "linearized"
    kept = [vector.task_vector(bench.backbone.digest) for vector in vectors]
    return ScaledEncoder(bench.backbone, kept, dtype=torch.bfloat16 if half else None, **how)


def _entry(bench: Bench, variant: str, train: Train | None, saw: str, learned: Learn) -> Entry:
    if not bench.suite.targets:
        raise BadConfig(f"suite {bench.suite.name} names no tasks outside its pool: no targets")
    vectors = [train(bench, task) for task in bench.pool] if train else []
    tasks: dict[str, Numbers] = {}
    cells = []
    for target in [source.name for source in bench.suite.targets]:
        found = learned(vectors, target)
        plain = _zero_shot(bench, target)
        scores = {key: one.accuracy(bench, target) for key, one in found.items()}
        tasks[target] = {"zero_shot": plain, **scores}
        cells += [one.direction.cell for one in found.values() if one.direction]
    keys = list(next(iter(tasks.values())))
    return Entry(
        variant,
        bench.seed,
        NOTHING if train is None else PENALISED if train is tau_jp else LABELS,
        saw,
        {key: mean_of([numbers[key] for numbers in tasks.values()]) for key in keys},
        tasks,
        training=together([vector.cost for vector in vectors]),
        merging=together([cell.cost for cell in cells]),
    )


def _zero_shot(bench: Bench, target: str) -> float | None:
    """None where class names alone make no head."""
    if bench.backbone.head_kind != "text":
        return None
    return Learned(None, bench.head(target)).accuracy(bench, target)


def _trainings(variant: str) -> list[Train]:
    name = variant.partition(" x ")[0].partition("+")[0]
    return [TRAIN[name]] if name in TRAIN else []


SPECS = (
    Spec(
        "few-shot",
        FEW_SHOT,
        SHOT_COLUMNS,
        lambda suite: SHOT_VARIANTS,
        few_shot,
        plots.across,
        targets=True,
        trainings=_trainings,
    ),
    Spec(
        "test-time",
        TEST_TIME,
        TIME_COLUMNS,
        lambda suite: tuple(TRAIN),
        test_time,
        plots.bars,
        targets=True,
        trainings=_trainings,
    ),
    Spec(
        "peft",
        PEFT,
        SHARE_COLUMNS,
        lambda suite: PEFT_VARIANTS,
        peft,
        plots.across,
        targets=True,
        trainings=_trainings,
    ),
)
