"""With which heads a model answers: those of its tasks' training, or fitted again, together.

The first fit that has all of a model's vectors is the one, so that a model answers the same for
ever once its heads are there, whatever arrives later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass

from cluster.domain.compositions import Composition, Fitted, FittedHead
from cluster.domain.status import OWED
from cluster.domain.visibility import Visibility
from cluster.domain.work import EvaluateWork
from cluster.reading.fits import Fit, added, answering, asked, told
from cluster.registry import Registry
from cluster.scheduler import upkeep
from cluster.scheduler.state import State


@dataclass(frozen=True)
class FittedHeads:
    """Of every fit that is kept, in the order in which they ended."""

    fits: tuple[Fit, ...]

    @staticmethod
    def of_all(registry: Registry, owners: Mapping[str, str]) -> FittedHeads:
        purged = registry.purged()
        found = (Fit.of(run_id, result, owners) for run_id, result in registry.fits())
        return FittedHeads(tuple(fit for fit in found if not fit.tasks & purged))

    def added(self, run_id: str, result: Fitted, owners: Mapping[str, str]) -> FittedHeads:
        return FittedHeads((*self.fits, Fit.of(run_id, result, owners)))

    def purged(self, task: str) -> FittedHeads:
        return FittedHeads(tuple(fit for fit in self.fits if task not in fit.tasks))

    def forgotten(self, run_ids: Set[str]) -> FittedHeads:
        return FittedHeads(tuple(fit for fit in self.fits if fit.run_id not in run_ids))

    def outdated(self, registry: Registry, state: State) -> frozenset[str]:
        """Ids of fits that no model of now answers with, nor an evaluation that is owed; that say
        nothing of a champion, and are not of the champions of now."""
        needed = {fit.run_id for fit in upkeep.fits(state)}
        needed |= told(self.fits, {vector.digest for vector in state.champions.values()})
        if all(fit.run_id in needed for fit in self.fits):
            return frozenset()
        needed |= asked(self.fits, map(added, _models(registry)), state.owners)
        return frozenset(fit.run_id for fit in self.fits if fit.run_id not in needed)

    def of(self, model: Composition, owners: Mapping[str, str]) -> dict[str, FittedHead]:
        """By task, of what is added; nothing while no fit has them all. A model that is no sum of
        whole vectors has its own, or none. What private tasks taught is for models of their owner's
        tasks."""
        if model.fitted:
            return {one.task: one for one in model.fitted}
        fit = answering(self.fits, added(model), owners)
        return fit.by_task(added(model)) if fit else {}

    def blobs(self, tasks: Collection[str]) -> set[str]:
        """Of the heads of these tasks."""
        heads = (one for fit in self.fits for one in fit.heads.values() if one.task in tasks)
        return {blob for one in heads for blob in (one.head, one.frozen)}

    def newest(self, vector: str, visibility: Visibility) -> FittedHead | None:
        """Of a vector, by its digest, from fits of tasks that the viewer sees."""
        viewer = visibility.viewer
        for fit in reversed(self.fits):
            if vector in fit.heads and (viewer is None or fit.taught <= {viewer}):
                return fit.heads[vector]
        return None

    def answering(self, model: Composition, owners: Mapping[str, str]) -> Composition:
        """The same model; its vectors name the heads that answer, of a task that is added every
        version the same, and it names what tells inputs of none of its tasks."""
        fitted, fit = self.of(model, owners), answering(self.fits, added(model), owners)
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


def _models(registry: Registry) -> Iterator[Composition]:
    for run in registry.runs(states=OWED, kinds=("evaluate",)):
        if isinstance(run.work, EvaluateWork):
            yield run.work.composition
    digest = ""
    while page := registry.recipes_after(digest):
        yield from page
        digest = page[-1].digest
