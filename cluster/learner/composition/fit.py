"""Finding coefficients from rows: by a grid, aTLAS or AdaMerging, or by UFM without labels.

The settings are those of the papers, as in `tacl.compose`; seeds are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.domain.compositions import RecipeTerm
from cluster.learner.composition.inputs import Ingredients
from cluster.learner.progress import ProgressCallback
from tacl.compose.adamerging import adamerging
from tacl.compose.grid import best_coefficient
from tacl.compose.learning import Learned, learn, learning_config, selected
from tacl.compose.negation import joint_objective, supervised_atlas
from tacl.compose.scaled import ScaledEncoder
from tacl.compose.ufm import trusted, ufm
from tacl.data.batches import Labelled
from tacl.heads.head import Head, union
from tacl.training.loop import StepRecord

DIGITS = 6  # to which a coefficient is rounded
SEED = 0

Figures = dict[str, float]
After = Callable[[StepRecord], None]
Found = tuple[tuple[RecipeTerm, ...], Figures]


def coefficients(found: Ingredients, tell: ProgressCallback) -> Found:
    """The recipe with the coefficients that the method finds, and figures on the way."""

    def after(record: StepRecord) -> None:
        tell(record.step + 1, record.steps, record.loss)

    method = found.making.method
    if method == "grid":
        return _on_grid(found)
    if method == "adamerging":
        module, learned = _adamerged(found, after)
    else:
        module, learned = (_adapted if found.making.adapt else _taught)(found, after)
    return _by_block(found.work.terms, module, learned), _figures(learned)


def _on_grid(found: Ingredients) -> Found:
    """One factor for the whole recipe: signs and relative sizes stay (arXiv 2212.04089). The
    recipe's own tasks that are subtracted are to be unlearned."""
    lesson, taus = found.lesson, {"sum": found.tau(found.work.terms)}
    cached = {n: found.materials.tangents(data.items, taus) for n, (_, data) in lesson.items()}
    labels = {name: data.labels for name, (_, data) in lesson.items()}
    heads = {name: head for name, (head, _) in lesson.items()}
    factor = best_coefficient(cached, labels, heads, {"sum": 1.0}, _subtracted(found))
    terms = [
        term.model_copy(update={"coefficient": factor * term.coefficient})
        for term in found.work.terms
    ]
    return tuple(terms), {"factor": factor}


def _subtracted(found: Ingredients) -> list[str]:
    """The tasks of the lesson that are to be unlearned."""
    terms = found.work.terms
    return [t.vector.task for t in terms if t.coefficient < 0 and t.vector.task in found.lesson]


def _taught(found: Ingredients, after: After) -> tuple[ScaledEncoder, Learned]:
    """aTLAS on labelled rows (arXiv 2407.02880). Coefficients start at 0 for a new task and at 1
    for the recipe's own tasks, as the sum of linearized vectors works already; at 0 for those to
    unlearn."""
    unlearned, module = _subtracted(found), _scaled(found)
    loss, data = joint_objective(found.lesson, unlearned)
    if found.making.select:
        module.keep(selected(found.making.select, module, found.backbone, loss, data, SEED))
    if found.head is not None:
        config = learning_config("few-shot", len(data), SEED)
        return module, learn(module, found.backbone, loss, data, config, on_step=after)
    where = module, found.backbone, found.lesson
    return module, supervised_atlas(*where, unlearned, seed=SEED, on_step=after)


def _adapted(found: Ingredients, after: After) -> tuple[ScaledEncoder, Learned]:
    """aTLAS without labels, by unsupervised FixMatch, whose trusted rows also select the blocks."""
    head, items, module = _head(found), found.inputs, _scaled(found)
    if found.making.select:
        shares_NC = head.logits(found.materials.features(items)).softmax(-1)
        rows, labels = trusted(shares_NC)
        sure = Labelled([items[row] for row in rows], shares_NC.new_tensor(labels).long())
        module.keep(selected(found.making.select, module, found.backbone, head, sure, SEED))
    config = learning_config("test-time", len(items), SEED)
    return module, ufm(module, found.backbone, head, items, config, on_step=after)


def _adamerged(found: Ingredients, after: After) -> tuple[ScaledEncoder, Learned]:
    """AdaMerging. For inputs whose task is not known, the entropy is over all classes."""
    if found.making.adapt:
        inputs, heads = [found.inputs], [_head(found)]
    else:
        inputs = [data.items for _, data in found.tasks.values()]
        heads = [head for head, _ in found.tasks.values()]
    return adamerging(found.backbone, found.vectors, inputs, heads, seed=SEED, on_step=after)


def _scaled(found: Ingredients) -> ScaledEncoder:
    written = [term.coefficient for term in found.work.terms]
    start = [max(0.0, c) if found.head is None else 0.0 for c in written]
    return ScaledEncoder(found.backbone, found.vectors, start)


def _head(found: Ingredients) -> Head:
    """The head of the new task, or of all tasks of the recipe together."""
    return found.head or union([head for head, _ in found.tasks.values()])


def _by_block(
    terms: Sequence[RecipeTerm], module: ScaledEncoder, learned: Learned
) -> tuple[RecipeTerm, ...]:
    found, lambdas = [], learned.coefficients.squeeze(-1).tolist()
    for term, vector, lambda_B in zip(terms, module.vectors, lambdas, strict=True):
        pairs = zip(learned.blocks, lambda_B, strict=True)
        kept = {name: round(c, DIGITS) for name, c in pairs if name in vector.blocks}
        found.append(term.model_copy(update={"by_block": {n: c for n, c in kept.items() if c}}))
    return tuple(found)


def _figures(learned: Learned) -> Figures:
    figures = {"steps": float(len(learned.losses)), "best_step": float(learned.step)}
    if learned.losses:
        figures |= {"first_loss": learned.losses[0], "last_loss": learned.losses[-1]}
    return figures
