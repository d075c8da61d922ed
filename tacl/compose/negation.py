"""Negation by aTLAS (arXiv 2407.02880): unlearn some tasks and keep others, both by their labels.

The loss of a row is `tacl.heads.joint.JointHead`'s with a sign of -1 for what is to be unlearned,
its vector starts at 0. Of that loss there is no least value: the score ends the learning where the
control falls under 95 % of what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tacl.compose.grid import KEPT
from tacl.compose.learning import INADMISSIBLE
from tacl.compose.scaled import ScaledEncoder
from tacl.data.batches import Labelled
from tacl.evaluation.metrics import absolute, accuracy
from tacl.evaluation.tangents import Collates
from tacl.heads.head import Head

Rows = Mapping[str, tuple[Head, Labelled]]  # by task


def unlearning(
    module: ScaledEncoder, backbone: Collates, rows: Rows, unlearned: Sequence[str]
) -> Callable[[ScaledEncoder], float]:
    """A score for `learn`: minus the mean accuracy on the tasks of `unlearned`, INADMISSIBLE where
    another task of `rows` keeps less than 95 % of its accuracy by the module as it is now."""
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
    """By task, of the composed model."""
    return {
        task: accuracy(head.logits(module.features(backbone, data.items)), data.labels)
        for task, (head, data) in rows.items()
    }
