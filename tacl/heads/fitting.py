"""Heads fitted again: one softmax over the classes of several tasks, on labelled rows under sums.

A head that is made before training uses class names or means of f(x; theta0), not the effect of the
vectors. Once vectors exist, heads are fitted on each task's labelled rows as models see them:
f + J (tau_t + sum of some other vectors). The others are drawn anew for every group of rows, so
that a task's columns are valid in any sum with its vector; a user's model takes the columns of its
tasks (results/heads-choice.md has the results of other ways).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from tacl.backbone.inner import BLOCKS
from tacl.data.splits import sample_rows
from tacl.heads.block import BLOCK, PART
from tacl.heads.calibration import balanced_weights
from tacl.heads.columns import Columns
from tacl.heads.head import Head, beside, starts, union
from tacl.heads.novelty import GENERIC, Novelty
from tacl.heads.probe import STEPS, chosen_probe, nothing, of_length_one

FEWER_STEPS = 40  # enough for a block's columns, as the other heads are already fitted
DRAWS = 8  # sums of vectors under which the rows of a task are seen


@dataclass(frozen=True)
class LabelledFeatures:
    """features_ND of labelled rows of one task, and their labels_N among its classes."""

    features_ND: Tensor
    labels_N: Tensor


@dataclass(frozen=True)
class KeptHeads:
    """Heads of other tasks, fitted earlier, that do not change (`tacl.heads.block`): `answering`
    ones read all views of a row, `frozen` ones read theta0. `beside`: the tasks whose rows take
    part, with the number of rows."""

    answering: Mapping[str, Head] = field(default_factory=dict)
    frozen: Mapping[str, Head] = field(default_factory=dict)
    beside: Mapping[str, int] = field(default_factory=dict)


def drawn_sums(tasks: Sequence[str]) -> list[frozenset[str]]:
    """DRAWS sets of tasks whose vectors are summed: every second has all tasks, the others have any
    size with about equal chance. A function of the tasks' names, not of their order."""
    return [
        frozenset(tasks) if draw % 2 == 0 else _some(sorted(tasks), f"sum 0 {draw}")
        for draw in range(DRAWS)
    ]


def _some(names: Sequence[str], seed: str) -> frozenset[str]:
    chance = random.Random(seed)
    share = chance.random()
    return frozenset(name for name in names if chance.random() < share)


def fitted_heads(
    trained: Mapping[str, Head],
    train: Mapping[str, LabelledFeatures],
    validation: Mapping[str, LabelledFeatures],
    kept: Mapping[str, Head] | None = None,
    between: Callable[[], None] = nothing,
) -> dict[str, Head]:
    """The columns of every task, from one multinomial logistic regression over all of them.

    Weights decay towards the heads that the vectors were `trained` under. Weight decay and
    temperature are chosen for the least cross-entropy on validation rows, with tasks weighted
    equally. The scale of a head includes the temperature: the softmax over columns of several tasks
    is P(task, class | x). Heads of other tasks that are `kept` take part unchanged, some of them
    with rows. `between`: see `chosen_probe`.
    """
    prior, begins = union(list(trained.values())), starts(trained.values())
    staying = [task for task in kept or () if task in train]

    def pooled(rows: Mapping[str, LabelledFeatures]) -> tuple[Tensor, Tensor]:
        labels = [rows[t].labels_N + start for t, start in zip(trained, begins, strict=True)]
        labels += [torch.full_like(rows[t].labels_N, len(prior.classes)) for t in staying]
        features = [rows[task].features_ND for task in (*trained, *staying)]
        return torch.cat(features), torch.cat(labels)

    mass_N = balanced_weights(len(validation[task].labels_N) for task in (*trained, *staying))
    learned, judged = of_length_one(pooled(train)), pooled(validation)
    others = (_logit(kept, learned[0]), _logit(kept, judged[0])) if kept else None
    steps = FEWER_STEPS if kept and len(trained) <= BLOCK + 1 else STEPS
    found, _ = chosen_probe(
        learned,
        judged,
        prior.classes,
        prior=prior,
        mass_N=mass_N,
        others=others,
        steps=steps,
        between=between,
    )
    weights = found.weight_CD.split([len(head.classes) for head in trained.values()])
    return {
        task: Head(own_CD, found.scale, head.classes)
        for (task, head), own_CD in zip(trained.items(), weights, strict=True)
    }


def _logit(heads: Mapping[str, Head], features_ND: Tensor) -> Tensor:
    """The logit of all classes of these heads as one class, [N]."""
    parts = features_ND.float().split(PART)
    return torch.cat([Columns(heads).logits(part_BD).logsumexp(-1) for part_BD in parts])


def frozen_heads(
    trained: Mapping[str, Head],
    train: Mapping[str, LabelledFeatures],
    validation: Mapping[str, LabelledFeatures],
    generic: tuple[Tensor, Tensor],
    kept: KeptHeads | None = None,
    between: Callable[[], None] = nothing,
) -> tuple[dict[str, Head], Novelty]:
    """Heads fitted on rows at theta0 (f and the outputs of inner blocks), and a Novelty, which
    detects rows that belong to none of some tasks.

    `generic`: features_ND of samples of no task, for learning and for judging. They have a column
    of their own in the fit. `train` and `validation` also have rows of tasks with `kept` heads.
    """
    kept = kept or KeptHeads()
    wide = {task: _beside_inner(head, generic[0].shape[1]) for task, head in trained.items()}
    any_head = next(iter(wide.values()))
    nothing = Head(torch.zeros_like(any_head.weight_CD[:1]), any_head.scale, (GENERIC,))
    learned, judged = (
        LabelledFeatures(features_ND, torch.zeros(len(features_ND), dtype=torch.long))
        for features_ND in generic
    )
    judged_by = {**validation, GENERIC: judged}
    found = fitted_heads(
        {**wide, GENERIC: nothing},
        _taking_part({**train, GENERIC: learned}, kept),
        _taking_part(judged_by, kept),
        kept.frozen,
        between,
    )
    heads = {**kept.frozen, **found}
    seen = {
        task: (train[task].features_ND, train[task].labels_N) for task in heads if task != GENERIC
    }
    judging = {task: judged_by[task].features_ND for task in heads}
    novelty = Novelty.of(heads, seen, judging)
    return {task: found[task] for task in wide}, novelty


def _taking_part(
    rows: Mapping[str, LabelledFeatures], kept: KeptHeads
) -> dict[str, LabelledFeatures]:
    """All rows of the tasks that are fitted, and `kept.beside` rows of the tasks that stay."""
    found = {task: own for task, own in rows.items() if task not in kept.frozen}
    for task, count in kept.beside.items():
        own = rows[task]
        some = sample_rows(range(len(own.labels_N)), count, 0, own.labels_N.tolist())
        found[task] = LabelledFeatures(own.features_ND[some], own.labels_N[some])
    return found


def answering_heads(
    trained: Mapping[str, Head],
    frozen: Mapping[str, Head],
    train: Mapping[str, tuple[LabelledFeatures, LabelledFeatures]],
    validation: Mapping[str, tuple[LabelledFeatures, LabelledFeatures]],
    kept: KeptHeads | None = None,
    between: Callable[[], None] = nothing,
) -> dict[str, Head]:
    """Heads fitted on rows at theta0 and under sums, side by side; `narrow_CD` has the weights for
    rows under sums alone.

    Weights decay half towards the heads of the training and half towards the `frozen` ones, which
    were fitted at theta0: there a row costs one forward pass, so all rows take part.
    """
    stay = kept.answering if kept else {}
    both = {task: _half(trained[task], frozen[task]) for task in trained}
    narrow_stay = {task: head.narrow() for task, head in stay.items()}
    narrow = fitted_heads(both, _under_sums(train), _under_sums(validation), narrow_stay, between)
    priors = {task: _half_each(trained[task], frozen[task]) for task in trained}
    wide = fitted_heads(priors, views(train), views(validation), stay, between)
    return {
        task: replace(head, narrow_CD=narrow[task].scale / head.scale * narrow[task].weight_CD)
        for task, head in wide.items()
    }


def views(
    pairs: Mapping[str, tuple[LabelledFeatures, LabelledFeatures]],
) -> dict[str, LabelledFeatures]:
    """Rows of every task as the heads read them (`beside`)."""
    return {
        task: LabelledFeatures(beside(plain.features_ND, moved.features_ND), moved.labels_N)
        for task, (plain, moved) in pairs.items()
    }


def _under_sums(
    pairs: Mapping[str, tuple[LabelledFeatures, LabelledFeatures]],
) -> dict[str, LabelledFeatures]:
    return {task: moved for task, (_, moved) in pairs.items()}


def _beside_inner(trained: Head, width: int) -> Head:
    """A head with the same logits on rows of `width`: f, and beside it outputs of inner blocks."""
    more = width - trained.weight_CD.shape[1]
    if not more:
        return trained
    return replace(trained, weight_CD=math.sqrt(1 + BLOCKS) * pad(trained.weight_CD, (0, more)))


def _parted(frozen: Head, trained: Head) -> tuple[Tensor, Tensor]:
    """Weights, at the scale of `trained`, that give the logits of `frozen` from f and from the
    output of each inner block, all of length 1."""
    width = trained.weight_CD.shape[1]
    scale = frozen.scale / trained.scale
    if frozen.weight_CD.shape[1] > width:
        scale /= math.sqrt(1 + BLOCKS)
    return scale * frozen.weight_CD[:, :width], scale * frozen.weight_CD[:, width:]


def _half(trained: Head, frozen: Head) -> Head:
    """The mean of the logits of both on the moved features; of `frozen`, the part that reads f."""
    return replace(trained, weight_CD=(trained.weight_CD + _parted(frozen, trained)[0]) / 2)


def _half_each(trained: Head, frozen: Head) -> Head:
    """The mean of the logits of `trained` on the moved features and of `frozen` on those at theta0,
    from the views of `beside`, whose length is the root of their number."""
    own_CD, (plain_CD, inner_CK) = trained.weight_CD, _parted(frozen, trained)
    weight_CV = torch.cat([own_CD, plain_CD, torch.zeros_like(own_CD), inner_CK], -1)
    views = 3 + (BLOCKS if inner_CK.shape[1] else 0)
    return replace(trained, weight_CD=math.sqrt(views) / 2 * weight_CV)
