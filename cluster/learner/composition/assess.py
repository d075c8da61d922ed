"""The effect of making a composition: accuracies before and after, and tau_jp measured again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.domain.compositions import JudgedOn, JudgedTask, MeasuredAgain, RecipeTerm
from cluster.domain.methods import TARGET, TAUGHT
from cluster.domain.tasks import VectorRef
from cluster.learner.composition.inputs import Ingredients, Rows
from tacl.evaluation.interference import MeanSize, logit_change, relative, tau_jp
from tacl.evaluation.metrics import accuracy
from tacl.vectors.params import Params


def judges(found: Ingredients) -> tuple[JudgedOn, Rows]:
    """The rows that accuracies are of, and their name; none for a new task without labels."""
    fit = found.making.fit
    if found.head is None:
        taught = found.making.method in TAUGHT and not found.making.adapt
        return "the validation rows it learned from" if taught else "validation rows", found.tasks
    if fit is None:
        return "nothing", {}
    if fit.held_out is None:
        return "the shots themselves", {TARGET: (found.head, found.shots)}
    return "rows held out", {TARGET: (found.head, found.materials.labelled(fit.held_out))}


def accuracies(found: Ingredients, rows: Rows, taus: Mapping[str, Params]) -> dict[str, JudgedTask]:
    """Accuracies by task: of theta0, and of f_lin with each tau, named as in `taus`."""
    judged: dict[str, JudgedTask] = {}
    for task, (head, data) in rows.items():
        cached = found.materials.tangents(data.items, taus)
        features = {name: cached.linearized({name: 1.0}) for name in taus}
        features["zero_shot"] = cached.features_ND
        shares = {n: accuracy(head.logits(f_ND), data.labels) for n, f_ND in features.items()}
        judged[task] = JudgedTask(rows=len(data), **shares)
    return judged


def measured_again(found: Ingredients, terms: Sequence[RecipeTerm]) -> tuple[MeasuredAgain, ...]:
    """Measures every vector with its coefficients on the probe of every task of the recipe.

    Unequal coefficients of blocks undo the effect of training against other tasks, so that the
    values measured when a vector was published are no longer valid.
    """
    probes = {p.task: found.materials.probe_items(p.blob) for p in found.work.probes}
    measured = {task: dict[str, tuple[MeanSize, MeanSize]]() for task in probes}
    for term in terms:  # one dense vector at a time
        name, tau = term.vector.name, found.tau([term])
        for task, items in probes.items():
            cached = found.materials.tangents(items, {name: tau})
            tangent_ND, head = (
                cached.tangents[name],
                found.materials.head(_own(terms, task).head_blob),
            )
            change = logit_change(cached.features_ND, tangent_ND, head)
            measured[task][name] = tau_jp(tangent_ND), change
    return tuple(
        _told(name, task, of[name], of[_own(terms, task).name])
        for task, of in measured.items()
        for name in of
    )


def _own(terms: Sequence[RecipeTerm], task: str) -> VectorRef:
    return next(t.vector for t in reversed(terms) if t.vector.task == task)


def _told(
    vector: str, on: str, found: tuple[MeanSize, MeanSize], own: tuple[MeanSize, MeanSize]
) -> MeasuredAgain:
    """Of the features and of the logits, beside what the own vector of the task does there."""
    (size, _), (moved, changed) = found, map(relative, found, own)
    return MeasuredAgain(
        vector=vector,
        on=on,
        tau_jp=size.mean,
        standard_error=size.standard_error,
        rows=size.rows,
        relative=moved and moved.value,
        logits=changed and changed.value,
    )
