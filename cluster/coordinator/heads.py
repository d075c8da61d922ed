"""With which heads a model answers: those of its tasks' training, or fitted again, together.

The first fit that has all of a model's vectors is the one, so that a model answers the same for
ever once its heads are there, whatever arrives later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cluster.domain.compositions import Composition, Fitted, FittedHead
from cluster.domain.methods import is_plain
from cluster.domain.tasks import VectorRef
from cluster.domain.visibility import Visibility
from cluster.registry import Registry


@dataclass(frozen=True)
class Fit:
    """`heads` by digest of the vector."""

    tasks: frozenset[str]
    taught: frozenset[str]  # owners of the private ones
    heads: Mapping[str, FittedHead]
    novelty: str | None

    @staticmethod
    def of(result: Fitted, owners: Mapping[str, str]) -> Fit:
        tasks = frozenset(one.task for one in result.heads)
        taught = frozenset(owners[task] for task in tasks if task in owners)
        return Fit(tasks, taught, {one.vector: one for one in result.heads}, result.novelty)

    def by_task(self, model: Composition) -> dict[str, FittedHead]:
        """Of what the model adds, all of which it has."""
        return {one.task: self.heads[one.digest] for one in _added(model)}


class FittedHeads:
    """Of every fit, in the order in which they ended."""

    def __init__(self, registry: Registry, owners: Mapping[str, str]) -> None:
        purged = registry.purged()
        found = (Fit.of(result, owners) for result in registry.fits())
        self._fits = [fit for fit in found if not fit.tasks & purged]

    def add(self, result: Fitted, owners: Mapping[str, str]) -> None:
        self._fits.append(Fit.of(result, owners))

    def purge(self, task: str) -> None:
        self._fits = [fit for fit in self._fits if task not in fit.tasks]

    def of(self, model: Composition, owners: Mapping[str, str]) -> dict[str, FittedHead]:
        """By task, of what is added; nothing while no fit has them all. A model that is no sum of
        whole vectors has its own, or none. What private tasks taught is for models of their owner's
        tasks."""
        if model.fitted:
            return {one.task: one for one in model.fitted}
        fit = self._answering(model, owners)
        return fit.by_task(model) if fit else {}

    def _answering(self, model: Composition, owners: Mapping[str, str]) -> Fit | None:
        added = _added(model)
        if not is_plain(model) or not added:
            return None
        may = {owners[one.task] for one in added if one.task in owners}
        for fit in self._fits:
            if fit.taught <= may and all(one.digest in fit.heads for one in added):
                return fit
        return None

    def blobs(self, tasks: Collection[str]) -> set[str]:
        """Of the heads of these tasks."""
        heads = (one for fit in self._fits for one in fit.heads.values() if one.task in tasks)
        return {blob for one in heads for blob in (one.head, one.frozen)}

    def newest(self, vector: str, visibility: Visibility) -> FittedHead | None:
        """Of a vector, by its digest, from fits of tasks that the viewer sees."""
        viewer = visibility.viewer
        for fit in reversed(self._fits):
            if vector in fit.heads and (viewer is None or fit.taught <= {viewer}):
                return fit.heads[vector]
        return None

    def answering(self, model: Composition, owners: Mapping[str, str]) -> Composition:
        """The same model; its vectors name the heads that answer, of a task that is added every
        version the same, and it names what tells inputs of none of its tasks."""
        fitted, fit = self.of(model, owners), self._answering(model, owners)
        if not fitted:
            return model
        terms = tuple(
            term.model_copy(
                update={"vector": term.vector.model_copy(update={"head_blob": one.head})}
            )
            if (one := fitted.get(term.vector.task))
            else term
            for term in model.terms
        )
        novelty = fit.novelty if fit else model.novelty
        return model.model_copy(update={"terms": terms, "novelty": novelty})


def _added(model: Composition) -> list[VectorRef]:
    return [term.vector for term in model.terms if term.coefficient > 0]
