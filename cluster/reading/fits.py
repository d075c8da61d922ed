"""Which fit of heads a model answers with, and which fits nobody needs any more. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cluster.domain.compositions import Composition, Fitted, FittedHead
from cluster.domain.methods import is_plain
from cluster.registry import Recipe

Added = Sequence[tuple[str, str]]  # what a sum adds: tasks, and digests of their vectors


@dataclass(frozen=True)
class HeadFit:
    """One fit of heads. `heads` is by task: a lookup takes the same time however many there are."""

    run_id: str
    taught: frozenset[str]  # owners of the private tasks in it
    heads: Mapping[str, FittedHead]
    novelty: str | None

    @staticmethod
    def of(run_id: str, result: Fitted, owners: Mapping[str, str]) -> HeadFit:
        heads = {one.task: one for one in result.heads}
        taught = frozenset(owner for task, owner in owners.items() if task in heads)
        return HeadFit(run_id, taught, heads, result.novelty)

    @cached_property
    def vectors(self) -> frozenset[tuple[str, str]]:
        """(task, digest) of its vectors; cached: every request checks if it has all of many."""
        return frozenset((task, head.vector) for task, head in self.heads.items())


def added_vectors(model: Composition) -> Added:
    """What a model adds; nothing if it is no sum of whole vectors."""
    terms = model.terms if is_plain(model) else ()
    return [(term.vector.task, term.vector.digest) for term in terms if term.coefficient > 0]


def added_vectors_of(recipe: Recipe) -> Added:
    """The same, of a model as the registry keeps it."""
    terms = json.loads(recipe.terms) if recipe.merged is None else ()
    vectors = [one["vector"] for one in terms if one["coefficient"] > 0]
    is_whole = all(one.get("by_block") is None for one in terms)
    return [(one["task"], one["digest"]) for one in vectors] if is_whole else []


def answering(fits: Iterable[HeadFit], added: Added, owners: Mapping[str, str]) -> HeadFit | None:
    """The first fit that has all of these vectors. A fit that private tasks taught is only for
    models with private tasks of the same owner."""
    may, wanted = {owners[task] for task, _ in added if task in owners}, frozenset(added)
    for fit in fits if added else ():
        if fit.taught <= may and wanted <= fit.vectors:
            return fit
    return None


def warm_start(fits: Sequence[HeadFit], owner: str, champions: Mapping[str, str]) -> HeadFit | None:
    """The fit that a new fit of these champions starts from. It must be of some of their tasks
    alone, so that nothing is left in heads of a task that is gone, or that another owner keeps
    private. Of these it is the one that has most of the champions; the newest of several."""
    may = [
        fit
        for fit in reversed(fits)
        if fit.taught <= {owner} and fit.heads.keys() <= champions.keys() and fit.novelty
    ]
    return max(may, key=lambda fit: len(fit.vectors & champions.items()), default=None)


def fits_shown(fits: Sequence[HeadFit], champions: Mapping[str, str]) -> set[str]:
    """Ids of the fits shown in a status: for each set of owners whose private tasks taught them,
    the newest fit of every champion (task -> digest of its vector)."""
    found, left = set[str](), dict[frozenset[str], set[str]]()
    for fit in reversed(fits):
        wanted = left.setdefault(fit.taught, {*champions})
        if new := {task for task in wanted if (task, champions[task]) in fit.vectors}:
            found.add(fit.run_id)
            wanted -= new
    return found


def fits_in_use(
    fits: Sequence[HeadFit], models: Iterable[Added], owners: Mapping[str, str]
) -> set[str]:
    """Ids of the fits that these models answer with. The others can go: each of these models still
    answers with the first fit that has all of its vectors, which is the same."""
    found = (answering(fits, one, owners) for one in models)
    return {fit.run_id for fit in found if fit}
