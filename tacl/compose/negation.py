"""Addition and negation by aTLAS (arXiv 2407.02880): learn tasks, or unlearn some and keep the
others, using the labels of all.

The loss of a row is that of `tacl.heads.joint.JointHead`, with a sign of -1 for a task to be
unlearned, whose vector starts at 0. That loss has no minimum: the score ends the learning once the
accuracy of a task to be kept falls below 95 % of what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tacl.backbone import Backbone
from tacl.compose.grid import KEPT
from tacl.compose.learning import INADMISSIBLE, Learned, learn, learning_config
from tacl.compose.scaled import ScaledEncoder
from tacl.data.batches import Labelled
from tacl.evaluation.metrics import absolute, accuracy
from tacl.evaluation.tangents import Collates
from tacl.heads.head import Head
from tacl.heads.joint import JointHead, joint_data
from tacl.training.loop import StepRecord

ROWS_OF_A_TASK = 16  # in a batch of several tasks

Rows = Mapping[str, tuple[Head, Labelled]]  # by task


def joint_objective(rows: Rows, unlearned: Collection[str]) -> tuple[JointHead, Labelled]:
    """The rows of all tasks together, and their loss."""
    heads = [head for head, _ in rows.values()]
    loss = JointHead.of(heads, [-1.0 if task in unlearned else 1.0 for task in rows])
    return loss, joint_data([data for _, data in rows.values()], heads)


def supervised_atlas(
    module: ScaledEncoder,
    backbone: Backbone,
    rows: Rows,
    unlearned: Collection[str] = (),
    *,
    seed: int = 0,
    on_step: Callable[[StepRecord], None] | None = None,
) -> Learned:
    """Learns the module's coefficients in place. The score, on the same rows, is the mean accuracy
    over the tasks, or that of `unlearning` if some are unlearned."""
    loss, data = joint_objective(rows, unlearned)
    use = "negation" if unlearned else "addition"
    config = learning_config(use, len(data), seed, ROWS_OF_A_TASK * len(rows))

    def mean(now: ScaledEncoder) -> float:
        return absolute(accuracies(now, backbone, rows))

    score = unlearning(module, backbone, rows, unlearned) if unlearned else mean
    return learn(module, backbone, loss, data, config, score=score, on_step=on_step)


def unlearning(
    module: ScaledEncoder, backbone: Collates, rows: Rows, unlearned: Collection[str]
) -> Callable[[ScaledEncoder], float]:
    """A score for `learn`: minus the mean accuracy on the tasks of `unlearned`; INADMISSIBLE if
    another task of `rows` keeps less than 95 % of its accuracy at the time of this call."""
    kept = {task: of_task for task, of_task in rows.items() if task not in unlearned}
    gone = {task: of_task for task, of_task in rows.items() if task in unlearned}
    least = {task: KEPT * share for task, share in accuracies(module, backbone, kept).items()}

    def score(now: ScaledEncoder) -> float:
        found = accuracies(now, backbone, kept)
        if any(found[task] < least[task] for task in kept):
            return INADMISSIBLE
        return -absolute(accuracies(now, backbone, gone))

    return score


def accuracies(module: ScaledEncoder, backbone: Collates, rows: Rows) -> dict[str, float]:
    """Accuracy of the composed model, by task."""
    found = module.features(backbone, (data.items for _, data in rows.values()))
    return {
        task: accuracy(head.logits(features_ND), data.labels)
        for (task, (head, data)), features_ND in zip(rows.items(), found, strict=True)
    }
