"""Pins every vector of a recipe to the version that its name means now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from cluster.coordinator.acceptance import missing_files
from cluster.domain.base import identity
from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.names import no_such
from cluster.domain.tasks import CHAMPION, VectorRef
from cluster.domain.visibility import Visibility
from cluster.registry import Registry, TaskRecord
from cluster.storage.blobs import Blobs
from tacl.compose.terms import Term
from tacl.errors import BadRecipe, CorruptBlob, MixedRegimes, UnknownVector


class Pins:
    """Pins recipes. `unready` returns the state of a task that has no vector yet, as far as the
    requester may know it."""

    def __init__(
        self, registry: Registry, blobs: Blobs, unready: Callable[[TaskRecord, Visibility], str]
    ) -> None:
        self._registry, self._blobs, self._unready = registry, blobs, unready

    def composed(self, user: str, recipe: Sequence[Term], visibility: Visibility) -> Composition:
        """The user's model, its terms sorted by task: their order in a recipe means nothing.

        Raises UnknownTask, UnknownVector, BadRecipe, MixedRegimes, CorruptBlob.
        """
        vectors = self.pins(recipe, visibility)
        terms = [
            RecipeTerm(coefficient=term.coefficient, vector=vector)
            for term, vector in zip(recipe, vectors, strict=True)
        ]
        terms.sort(key=lambda term: (term.vector.task, term.vector.version))
        _require_distinct([term.vector for term in terms])
        _require_one_regime([term.vector for term in terms])
        parts = [[term.coefficient, term.vector.digest] for term in terms]
        digest = identity("composition", {"method": "sum", "terms": sorted(parts)})
        return Composition(digest=digest, user=user, terms=tuple(terms))

    def pins(self, terms: Sequence[Term], visibility: Visibility) -> list[VectorRef]:
        """The versions that terms mean now."""
        names = {term.name for term in terms}
        tasks = {task.name: task for task in self._registry.tasks(names=names)}
        wanted = {CHAMPION, *(term.alias for term in terms if term.alias)}
        aliases = self._registry.aliases_of(names, wanted)
        places: list[tuple[str, int]] = []
        for term in terms:
            task = tasks.get(term.name) if visibility.sees(term.name) else None
            task = task or self._registry.task(term.name, visibility)  # raises and says which exist
            known = aliases.get(task.name, {})
            if CHAMPION not in known:
                state = self._unready(task, visibility)
                raise UnknownVector(f"{term.name} has no vector yet: it is {state}")
            places.append((task.name, self._version(term, known)))
        found = self._registry.pinned(places)
        vectors = [found.get(place) or self._registry.vector(*place) for place in places]
        self._require_files(terms, vectors)
        return vectors

    def _version(self, term: Term, known: Mapping[str, int]) -> int:
        version = term.version or known.get(term.alias or CHAMPION)
        if version is None:
            there = sorted(self._registry.aliases(term.name))
            raise UnknownVector(no_such(f"alias of {term.name}", str(term.alias), there))
        return version

    def _require_files(self, terms: Sequence[Term], vectors: Sequence[VectorRef]) -> None:
        missing = missing_files(vectors, self._blobs)
        for term, vector in zip(terms, vectors, strict=True):
            if lost := missing.get(vector.name):
                raise CorruptBlob(
                    f"{term.vector} was asked for; its file, blob {lost}, is missing. Restore it "
                    "from a backup, or name another version."
                )


def _require_distinct(vectors: Sequence[VectorRef]) -> None:
    for one, other in pairwise(vectors):
        if (one.task, one.version) == (other.task, other.version):
            raise BadRecipe(
                f"{one.task} is named twice, and both are version v{one.version} now; write one "
                "term with the coefficient"
            )


def _require_one_regime(vectors: Sequence[VectorRef]) -> None:
    regimes = {vector.regime: vector.task for vector in vectors}
    if len(regimes) > 1:
        found = " and ".join(f"{task} is {regime}" for regime, task in regimes.items())
        raise MixedRegimes(f"{found}: they do not add up; compose vectors of one regime")
