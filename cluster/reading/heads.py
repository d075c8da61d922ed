"""Which heads a model answers with: those of its tasks' training, or heads fitted again together.

It is the first fit that has all of a model's vectors: once its heads exist a model answers the same
for ever, whatever arrives later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass

from cluster.domain.compositions import Composition, Fitted, FittedHead
from cluster.domain.tasks import VectorRef
from cluster.domain.visibility import Visibility
from cluster.reading.fits import HeadFit, added_vectors, answering
from cluster.registry import Registry


@dataclass(frozen=True)
class FittedHeads:
    """The heads of every fit that is kept, in the order in which the fits ended."""

    fits: tuple[HeadFit, ...]

    @staticmethod
    def of_all(registry: Registry, owners: Mapping[str, str]) -> FittedHeads:
        purged = registry.purged()
        found = (HeadFit.of(run_id, result, owners) for run_id, result in registry.fits())
        return FittedHeads(tuple(fit for fit in found if not purged & fit.heads.keys()))

    def with_fit(self, run_id: str, result: Fitted, owners: Mapping[str, str]) -> FittedHeads:
        return FittedHeads((*self.fits, HeadFit.of(run_id, result, owners)))

    def without_task(self, task: str) -> FittedHeads:
        return FittedHeads(tuple(fit for fit in self.fits if task not in fit.heads))

    def with_task(self, task: str) -> FittedHeads:
        return FittedHeads(tuple(fit for fit in self.fits if task in fit.heads))

    def hold_any(self, heads: Mapping[str, str]) -> bool:
        """Whether any of these heads is of one of the fits; `heads`: digests of heads by task."""
        return any(
            task in fit.heads and fit.heads[task].head == head
            for task, head in heads.items()
            for fit in self.fits
        )

    def without_runs(self, run_ids: Set[str]) -> FittedHeads:
        return FittedHeads(tuple(fit for fit in self.fits if fit.run_id not in run_ids))

    def of(
        self, model: Composition, owners: Mapping[str, str]
    ) -> tuple[dict[str, FittedHead], str | None]:
        """By task, the fitted heads of what a model adds, and the blob that tells inputs of none of
        its tasks; nothing while no fit has them all. A model that is no sum of whole vectors has
        its own, or none. What private tasks taught is only for models with private tasks of that
        owner."""
        if model.fitted:
            return {one.task: one for one in model.fitted}, model.novelty
        vectors = added_vectors(model)
        fit = answering(self.fits, vectors, owners)
        if fit is None:
            return {}, None
        return {task: fit.heads[task] for task, _ in vectors}, fit.novelty

    def blobs(self, tasks: Collection[str]) -> set[str]:
        """Digests of the heads of these tasks."""
        heads = (fit.heads[task] for fit in self.fits for task in tasks if task in fit.heads)
        return {blob for one in heads for blob in (one.head, one.frozen)}

    def newest(self, vector: VectorRef, visibility: Visibility) -> FittedHead | None:
        """The newest head of a vector, from fits of tasks that the viewer sees."""
        viewer = visibility.viewer
        for fit in reversed(self.fits):
            seen = viewer is None or fit.taught <= {viewer}
            if seen and (vector.task, vector.digest) in fit.vectors:
                return fit.heads[vector.task]
        return None

    def answering(self, model: Composition, owners: Mapping[str, str]) -> Composition:
        """The same model, naming what it answers with: in its vectors the fitted heads, the same
        for all versions of a task that is added; and the blob that tells inputs of none of
        these."""
        fitted, novelty = self.of(model, owners)
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
        return model.model_copy(update={"terms": terms, "novelty": novelty})
