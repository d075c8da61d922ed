"""The predictor: one loaded base, resident vectors, and any number of users' models over them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from cluster.home import Home
from cluster.materials import BATCH, Materials
from cluster.messages import Composition
from tacl.compose.arithmetic import composed
from tacl.errors import ClusterNotRunning, MixedRegimes, UnknownTask
from tacl.heads import Head
from tacl.params import Params
from tacl.tangents import cached_tangents
from tacl.vectors import TaskVector

NAME = "predictor"
COMPOSED_KEPT = 4  # each is as large as the trained part of the encoder

Answer = dict[str, list[tuple[str, float]]]  # task -> (class, probability), likeliest first


class Predictor:
    """A plain class; the client makes it a named actor on the first query."""

    def __init__(self, home: str) -> None:
        place = Home.at(home)
        settings = place.settings()
        if settings is None:
            raise ClusterNotRunning(f"{home} is no home of TACL yet; run `tacl up` first")
        self._materials = Materials(place, settings.base)
        self._module = self._materials.linearized()
        self._vectors: dict[str, TaskVector] = {}
        self._heads: dict[str, Head] = {}
        self._composed: OrderedDict[str, Params] = OrderedDict()

    def predict(
        self,
        composition: Composition,
        inputs: Sequence[bytes | str],
        tasks: Sequence[str] | None = None,
    ) -> list[Answer]:
        """One answer per input, for all tasks of the composition or for those named.

        Exact: the dual forward of the composed vector. Raises BadSample, ModalityMismatch,
        UnknownTask (not in the composition), MixedRegimes.
        """
        heads = self._wanted(composition, tasks)
        items = [self._materials.backbone.prepare(raw) for raw in inputs]
        if not items:
            return []
        tau = self._tau(composition)
        backbone = self._materials.backbone
        cached = cached_tangents(self._module, backbone, items, {"tau": tau}, BATCH)
        features_ND = cached.linearized({"tau": 1.0})
        shares = {task: head.logits(features_ND).softmax(-1) for task, head in heads.items()}
        return [
            {task: _ranked(head, shares[task][row]) for task, head in heads.items()}
            for row in range(len(items))
        ]

    def _wanted(self, composition: Composition, tasks: Sequence[str] | None) -> dict[str, Head]:
        blobs = {term.vector.task: term.vector.head_blob for term in composition.terms}
        unknown = sorted(set(tasks or ()) - blobs.keys())
        if unknown:
            raise UnknownTask(
                f"{', '.join(unknown)} was asked for; {composition.user}'s model has "
                f"{', '.join(blobs)}"
            )
        return {task: self._head(blobs[task]) for task in tasks or blobs}

    def _head(self, blob: str) -> Head:
        if blob not in self._heads:
            self._heads[blob] = self._materials.head(blob)
        return self._heads[blob]

    def _tau(self, composition: Composition) -> Params:
        """The sum of the recipe, the most recent ones kept by digest."""
        kept = self._composed
        if composition.digest not in kept:
            kept[composition.digest] = self._sum(composition)
        kept.move_to_end(composition.digest)
        while len(kept) > COMPOSED_KEPT:
            kept.popitem(last=False)
        return kept[composition.digest]

    def _sum(self, composition: Composition) -> Params:
        vectors = []
        for term in composition.terms:
            if term.vector.digest not in self._vectors:
                self._vectors[term.vector.digest] = self._materials.vector(term.vector)
            vectors.append(self._vectors[term.vector.digest])
        if any(vector.regime != "linearized" for vector in vectors):
            raise MixedRegimes("only models of linearized vectors can be asked so far")
        return composed(vectors, [term.coefficient for term in composition.terms])


def _ranked(head: Head, shares_C: Tensor) -> list[tuple[str, float]]:
    ordered = torch.argsort(shares_C, descending=True, stable=True).tolist()
    return [(head.classes[row], float(shares_C[row])) for row in ordered]
