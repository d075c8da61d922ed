"""Which models are kept composed: those that are asked most."""

from __future__ import annotations

import torch

from cluster.serving import cache
from cluster.serving.cache import ComposedCache


def test_models_that_are_asked_often_are_kept_within_their_bytes() -> None:
    kept = ComposedCache(most=3)
    made: list[str] = []

    def ask(name: str, times: int) -> bool:
        def compose() -> dict[str, torch.Tensor]:
            made.append(name)
            return {"block": torch.zeros(10)}

        return [kept.count(name, compose) for _ in range(times)][-1]

    assert not ask("once", 1)
    for name in "abc":
        assert ask(name, cache.OFTEN)
    assert not ask("d", 2 * cache.OFTEN - 1)  # nearly as hot: it does not push them out
    assert ask("d", 1)  # twice as often
    assert len(kept.kept) == 3
    assert made.count("d") == 1
    kept = ComposedCache(most=0)
    assert not ask("a", 3 * cache.OFTEN)
    assert made.count("a") == 1  # never for nothing
