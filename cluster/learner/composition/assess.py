"""What making a composition did: accuracies before and after, and tau_jp measured again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.domain.compositions import JudgedOn, JudgedTask, MeasuredAgain, RecipeTerm
from cluster.domain.methods import TARGET, TAUGHT
from cluster.learner.composition.inputs import Ingredients, Rows
from tacl.evaluation.interference import MeanSize, logit_change, relative, tau_jp
from tacl.evaluation.metrics import accuracy
from tacl.vectors.params import Params


def judges(found: Ingredients) -> tuple[JudgedOn, Rows]:
    """The rows that judge; none for a new task whose inputs have no labels."""
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
    """By task: of f_lin with each tau, `before` and `after`."""
    judged: dict[str, JudgedTask] = {}
    for task, (head, data) in rows.items():
        cached = found.materials.tangents(data.items, taus)
        features = {name: cached.linearized({name: 1.0}) for name in taus}
        features["zero_shot"] = cached.features_ND
        shares = {n: accuracy(head.logits(f_ND), data.labels) for n, f_ND in features.items()}
        judged[task] = JudgedTask(rows=len(data), **shares)
    return judged


def measured_again(found: Ingredients, terms: Sequence[RecipeTerm]) -> tuple[MeasuredAgain, ...]:
    """Of every vector with its coefficients, on the probe of every task of the recipe.

    Unequal coefficients of blocks undo what training against other tasks achieved, so that what was
    measured when a vector was published does not hold of it here.
    """
    names = {term.vector.digest: term.vector.name for term in terms}
    taus = {names[term.vector.digest]: found.tau([term]) for term in terms}
    told: list[MeasuredAgain] = []
    for shard in found.work.probes:
        cached = found.materials.tangents(found.materials.probe_items(shard.blob), taus)
        term = next(t for t in reversed(terms) if t.vector.task == shard.task)
        own, head = names[term.vector.digest], found.materials.head(term.vector.head_blob)
        sizes = {name: tau_jp(cached.tangents[name]) for name in taus}
        changes = {
            name: logit_change(cached.features_ND, cached.tangents[name], head) for name in taus
        }
        told += [_told(name, shard.task, own, sizes, changes) for name in taus]
    return tuple(told)


def _told(
    vector: str, on: str, own: str, sizes: Mapping[str, MeanSize], changes: Mapping[str, MeanSize]
) -> MeasuredAgain:
    moved, changed = relative(sizes[vector], sizes[own]), relative(changes[vector], changes[own])
    return MeasuredAgain(
        vector=vector,
        on=on,
        tau_jp=sizes[vector].mean,
        standard_error=sizes[vector].standard_error,
        rows=sizes[vector].rows,
        relative=moved and moved.value,
        logits=changed and changed.value,
    )
