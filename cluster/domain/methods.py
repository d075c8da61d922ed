"""Ways to make a composition: what each learns from and keeps, decided before anything is stored.

    sum         nothing                                  keeps signs and coefficients
    grid        labelled rows, for one common factor     keeps them; -NAME is a task to unlearn
    atlas       labelled rows, or unlabelled inputs      finds them, for each (vector, block);
                                                         -NAME is a task to unlearn
    adamerging  unlabelled inputs                        finds them, for each (vector, block)
    ties, tsv, iso   nothing                             keeps them; one tau comes out

The rows are the validation rows of the recipe's tasks, unless others are given: few labelled ones
(fit), or unlabelled inputs (adapt). Pure; the mathematics is in `tacl.compose`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import get_args

from pydantic import ValidationError

from cluster.domain.base import each_wrong, identity
from cluster.domain.compositions import (
    Adapting,
    Composition,
    Fitting,
    LearnedFrom,
    Method,
    RecipeTerm,
)
from cluster.domain.names import no_such
from cluster.domain.tasks import VectorRef
from cluster.domain.work import Composed, ComposeWork
from tacl.compose.terms import KEEPING, Term, parse_selection, require_additions, require_kept
from tacl.errors import BadConfig, BadRecipe, MixedRegimes

TARGET = "fitted"  # the name of the task that a composition was fitted to
# Which methods learn from which rows, beside those of the recipe's tasks.
LEARNS = {"fit": get_args(Fitting), "adapt": get_args(Adapting)}
TAUGHT = LEARNS["fit"]  # by labels; of the recipe's tasks, to unlearn what is subtracted
GIVEN = {"fit": "labelled rows (--fit)", "adapt": "unlabelled inputs (--adapt)"}


def require_possible(
    method: str, recipe: Sequence[Term], rows: Sequence[str], select: str | None
) -> None:
    """`rows`: which of fit and adapt are given. Raises BadConfig, BadRecipe."""
    if method not in (known := get_args(Method)):
        raise BadConfig(no_such("method", method, known))
    if len(rows) > 1:
        raise BadConfig("give labelled rows (--fit) or unlabelled inputs (--adapt), not both")
    for kind in rows:
        if method not in LEARNS[kind]:
            able = ", ".join(LEARNS[kind])
            raise BadConfig(f"{method} learns nothing from {GIVEN[kind]}; {able} can")
    if select is not None and method != "atlas":
        raise BadConfig(f"{method} selects no blocks; --select belongs to atlas")
    if select is not None:
        parse_selection(select, len(recipe))
    if method in TAUGHT and not rows:
        require_kept(recipe, method)
    if method not in KEEPING:
        given = [term.coefficient for term in recipe]
        require_additions(given, method, unlearns=method == "atlas" and not rows)
    if rows and TARGET in {term.name for term in recipe}:
        raise BadRecipe(f"{TARGET} is what the new task will be called; leave that vector out")


def require_shots(fit: object, shots: int | None) -> None:
    """Raises BadConfig unless rows and a possible number of them are given together."""
    if (fit is None) != (shots is None):
        raise BadConfig("labelled rows and their number of each class go together: --fit, --shots")
    try:
        LearnedFrom(shots=shots)
    except ValidationError as error:
        raise BadConfig(f"rows that cannot be learned: {each_wrong(error.errors())}") from error


def require_linearized(method: str, vectors: Sequence[VectorRef]) -> None:
    """Raises MixedRegimes for ordinary vectors: a cluster judges, measures and queries its models
    in the tangent."""
    foreign = [ref.name for ref in vectors if ref.regime != "linearized"]
    if foreign:
        raise MixedRegimes(
            f"{', '.join(foreign)}: ordinary vectors, and {method} is for linearized ones here. "
            "Train the task in this home (tacl submit), or import its checkpoint (tacl import)"
        )


def require_parts(model: Composition) -> None:
    """Raises BadRecipe for a merged model: it has no vectors any more that could be left out."""
    if model.merged is not None:
        raise BadRecipe(
            f"{model.user}'s model was merged by {model.method} into one vector, and none of those "
            "it was made of can be left out; compose it without one, or compose a sum"
        )


def recipe_of(terms: Sequence[RecipeTerm]) -> dict[str, float | Mapping[str, float]]:
    """Coefficients by digest of the vector, as `tacl.models.mixed` reads them."""
    return {
        term.vector.digest: term.coefficient if term.by_block is None else term.by_block
        for term in terms
    }


def is_plain(model: Composition) -> bool:
    """Whether it is a sum of whole vectors."""
    return model.merged is None and all(term.by_block is None for term in model.terms)


def head_blobs(model: Composition) -> dict[str, str]:
    """Blobs of heads by task; a new task that the model was fitted to comes first."""
    own = {model.target.name: model.target.head_blob} if model.target else {}
    return own | {term.vector.task: term.vector.head_blob for term in model.terms}


def answering(model: Composition) -> tuple[str, ...]:
    """Tasks that may be the answer when none is named: the new one that the model was fitted to,
    else those that are added. What is subtracted is to be forgotten, and never an answer."""
    if model.target is not None:
        return (model.target.name,)
    sums: dict[str, float] = {}
    for term in model.terms:
        sums[term.vector.task] = sums.get(term.vector.task, 0.0) + term.coefficient
    return tuple(task for task, coefficient in sums.items() if coefficient > 0)


def judged(model: Composition, tasks: Collection[str]) -> Sequence[str]:
    """The tasks among these that the model should be good at; what it subtracts should get worse.
    All of them if it adds none."""
    return [task for task in answering(model) if task in tasks] or list(tasks)


def model_of(work: ComposeWork, found: Composed) -> Composition:
    """The model that was made; the same content has the same digest."""
    terms = [[digest, c] for digest, c in sorted(recipe_of(found.terms).items())]
    parts: dict[str, object] = {"method": work.making.method, "terms": terms}
    parts["merged"] = found.merged and found.merged.digest
    parts["target"] = found.target and found.target.model_dump(exclude_none=True)
    heads = found.fitted.heads if found.fitted else ()
    parts |= {"heads": [one.head for one in heads]} if heads else {}
    return Composition(
        digest=identity("composition", parts),
        user=work.user,
        method=work.making.method,
        terms=found.terms,
        merged=found.merged,
        target=found.target,
        fitted=heads,
        novelty=found.fitted and found.fitted.novelty,
    )
