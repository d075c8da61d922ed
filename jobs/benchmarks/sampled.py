"""What some users of many must be told: of their models every probability is recomputed, by cached
tangents; of anybody else's answer it is looked whether it names the tasks of their model."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cluster.domain.methods import head_blobs, recipe_of
from cluster.learner.artifacts import Materials
from jobs.benchmarks.load import Expected, is_close
from jobs.benchmarks.population import Population
from tacl.evaluation.tangents import Cached, cached_tangents
from tacl.heads.columns import Columns


class Sampled:
    """`load.Right` of the models of a population, each a plain sum; `users` are their numbers."""

    def __init__(
        self, population: Population, pictures: Sequence[bytes], users: Iterable[int]
    ) -> None:
        self.encoded: Sequence[str] = [base64.b64encode(raw).decode() for raw in pictures]
        self._population = population
        self._materials = Materials(population.home, population.base)
        models = {user: population.composition(user) for user in users}
        refs = {term.vector.digest: term.vector for one in models.values() for term in one.terms}
        taus = {name: self._materials.vector(ref).to_params() for name, ref in refs.items()}
        backbone = self._materials.backbone
        items = [backbone.prepare(raw) for raw in pictures]
        cached = cached_tangents(self._materials.linearized(), backbone, items, taus)
        self.expected = {user: self._expected(user, cached) for user in models}

    def is_right(self, user: int, picture: int, answer: Mapping[str, Any]) -> bool:
        if user in self.expected:
            return is_close(self.expected[user][picture], answer)
        return answer.keys() == head_blobs(self._population.composition(user)).keys()

    def _expected(self, user: int, cached: Cached) -> list[Expected]:
        model = self._population.composition(user)
        heads = {task: self._materials.head(blob) for task, blob in head_blobs(model).items()}
        coefficients: Any = recipe_of(model.terms)
        features_ND = cached.linearized(coefficients)
        shares = Columns(heads).joint(features_ND)
        return [
            {t: dict(zip(heads[t].classes, shares[t][row].tolist(), strict=True)) for t in heads}
            for row in range(len(features_ND))
        ]
