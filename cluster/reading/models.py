"""A user's model, or why there is none; and the command that makes it again."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from cluster.domain.compositions import Composition, CompositionMethod, RecipeTerm
from cluster.domain.work import ComposeWork
from tacl.compose.terms import Term
from tacl.errors import BadRecipe, Erased, NoComposition, TaclError


def tasks_in(model: Composition) -> set[str]:
    return {term.vector.task for term in model.terms}


def current(
    user: str,
    model: Composition | None,
    purged: set[str],
    removed_of: Callable[[Collection[str]], set[str]],
) -> Composition | TaclError:
    """A user's model, or why there is none: NoComposition, or Erased when it needs vectors of the
    tasks `purged`, whose bytes are gone. The message then leaves out every task that was removed:
    none of them can be composed."""
    if model is None:
        return NoComposition(f"{user} has no model yet; make one: tacl compose {user} +TASK ...")
    gone = [t.vector.name for t in model.terms if t.vector.task in purged]
    if not gone:
        return model
    without = removed_of({term.vector.task for term in model.terms})
    return Erased(
        f"the model of {user} needs {', '.join(gone)}, whose bytes were erased for ever "
        f"(tacl remove --purge). Compose again without: {recompose_command(model, None, without)}"
    )


def require_sum(model: Composition, asked: ComposeWork | None) -> None:
    """Raises BadRecipe unless the model is a sum: any other was made of just these versions.
    `asked`: as for `recompose_command`."""
    if model.method != "sum":
        raise BadRecipe(
            f"{model.user}'s model was made by {model.method} of the versions it has; make it "
            f"again: {recompose_command(model, asked)}"
        )


def recompose_command(
    model: Composition, asked: ComposeWork | None, without: Collection[str] = frozenset()
) -> str:
    """The command that makes a model again, from the present champions and `without` removed tasks.
    `asked`: the work that its user requested, None for a sum. The model does not have it:
    coefficients were made, and the data are not in it."""
    if model.method == "sum" and not without:
        return f"tacl compose {model.user} --update"
    method = "" if model.method == "sum" else f" --method {model.method}"
    asked_terms = model.terms if model.method == "sum" else asked.terms if asked else ()
    terms = [term for term in asked_terms if term.vector.task not in without]
    how = _how(asked.making) if asked and terms else method
    written = " ".join(map(str, with_champions(terms)))
    return f"tacl compose {model.user} {written or 'TERM ...'}{how}"


def with_champions(terms: Sequence[RecipeTerm]) -> list[Term]:
    """The terms with the present champions; a task that occurs twice keeps its versions."""
    once = named_once(terms)
    pinned = [None if t.vector.task in once else t.vector.version for t in terms]
    return [Term(t.coefficient, t.vector.task, v) for t, v in zip(terms, pinned, strict=True)]


def named_once(terms: Sequence[RecipeTerm]) -> set[str]:
    """The tasks that occur in a single term."""
    return {task for task, count in Counter(t.vector.task for t in terms).items() if count == 1}


def _how(making: CompositionMethod) -> str:
    """The options of the command. Where the data were is not known, and their rows may be gone."""
    how = f" --method {making.method}"
    if making.select:
        how += f" --select {making.select}"
    if making.fit:
        how += f" --fit DATA --shots {making.fit.shots.rows // len(making.fit.classes)}"
    if making.adapt:
        how += " --adapt DATA"
    if making.adapt and making.adapt.classes:
        how += f" --classes {shlex.quote(','.join(making.adapt.classes))}"
    if making.fit or making.adapt:
        how += " (DATA: the same rows again, with the columns and --classes that you named)"
    return how
