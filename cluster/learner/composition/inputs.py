"""The inputs of making a composition, each read once: vectors, rows, heads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from cluster.domain.compositions import RecipeTerm, Target
from cluster.domain.methods import TARGET, recipe_of
from cluster.domain.work import ComposeWork
from cluster.learner.artifacts import Materials, given_device
from cluster.storage import samples
from cluster.storage.home import Home
from tacl.backbone import Item
from tacl.data.batches import Labelled
from tacl.heads.head import Head
from tacl.models.mixed import summed
from tacl.vectors.params import Params

ROWS = 128  # validation rows of a task, for learning and for judging
Rows = dict[str, tuple[Head, Labelled]]  # by task


class Ingredients:
    """Vectors are read at once, everything else when it is needed. `target` is the new task, if
    there is one."""

    def __init__(self, work: ComposeWork, home: Home) -> None:
        self.work, self.making = work, work.making
        self.materials = Materials(home, work.base, given_device(work.gpus))
        self.backbone = self.materials.backbone
        self.vectors = [self.materials.vector(term.vector) for term in work.terms]

    def tau(self, terms: Sequence[RecipeTerm]) -> Params:
        """Their sum. Makes no other vector dense."""
        vectors = zip(self.work.terms, self.vectors, strict=True)
        by_digest = {term.vector.digest: vector for term, vector in vectors}
        taus = {t.vector.digest: by_digest[t.vector.digest].to_params() for t in terms}
        return summed(recipe_of(terms), taus)

    @cached_property
    def tasks(self) -> Rows:
        """Head and validation rows of each task of the recipe."""
        head, rows = self.materials.head, self.materials.labelled
        return {t.name: (head(t.head_blob), rows(t.validation, ROWS)) for t in self.work.tasks}

    @cached_property
    def shots(self) -> Labelled:
        assert self.making.fit is not None
        return self.materials.labelled(self.making.fit.shots)

    @cached_property
    def inputs(self) -> list[Item]:
        """All inputs to adapt to; probe rows are used too."""
        assert self.making.adapt is not None
        blobs, shard = self.materials.blobs, self.making.adapt.inputs
        raws = *samples.training_inputs(blobs, shard), *samples.probe_inputs(blobs, shard)
        return self.materials.prepared(raws)

    @cached_property
    def head(self) -> Head | None:
        """The head of the new task; None if there is no new task."""
        given = self.making.fit or self.making.adapt
        if given is None or not given.classes:
            return None
        return self.materials.head_from(given.classes, lambda: self.shots)

    @cached_property
    def target(self) -> Target | None:
        """The new task, with its head stored as a blob; None if there is no new task."""
        if self.head is None:
            return None
        blob = self.materials.put_tensors(self.head.to_params())
        held_out = self.making.fit and self.making.fit.held_out
        return Target(name=TARGET, classes=self.head.classes, head_blob=blob, held_out=held_out)

    @property
    def lesson(self) -> Rows:
        """Labelled rows to learn from."""
        return self.tasks if self.head is None else {TARGET: (self.head, self.shots)}
