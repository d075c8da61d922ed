"""The predictor beside a cluster without a server: an actor that loads its base when first
asked."""

from __future__ import annotations

from typing import Any

import ray

from cluster.runtime.connection import NAMESPACE, patiently
from cluster.storage.home import Home


class LazyPredictor:
    """The actor around a Predictor, so that a client names it without importing torch."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._predictor: Any = None

    def predict(self, *arguments: object) -> list[Any]:
        if self._predictor is None:
            from cluster.serving.predictor import Predictor

            self._predictor = Predictor(self._home)
        return self._predictor.predict(*arguments)


def predict(home: Home, *arguments: object) -> Any:
    """Call the home's predictor; the first call of all makes it. Raises what `predict` raises."""
    return patiently(home, lambda: _predictor(home), "predict", arguments)


def _predictor(home: Home) -> Any:
    remote: Any = ray.remote(LazyPredictor)
    return remote.options(
        name="predictor",
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=-1,
    ).remote(home.where)
