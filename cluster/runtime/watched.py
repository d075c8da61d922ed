"""The coordinator as an actor is named: whoever looks it up imports this, and not what is behind it
(SQL, the scheduler), which takes longer to import than most questions to answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.domain.api import CoordinatorAPI, RunAPI

OF_MANY = ("holders", "compositions")  # several questions in one call, of the HTTP API
OF_HEADS = ("serves",)


class WatchedCoordinator:
    """Passes calls on to `cluster.runtime.actors.TickingCoordinator`."""

    def __init__(self, home: str, learner: str) -> None:
        from cluster.runtime.actors import TickingCoordinator

        self._coordinator = TickingCoordinator(home, learner)


def _passing_on(method: str) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        return getattr(self._coordinator, method)(*arguments, **named)

    return call


def methods() -> list[str]:
    declared = [*vars(CoordinatorAPI), *vars(RunAPI)]
    return [*(name for name in declared if not name.startswith("_")), *OF_MANY, *OF_HEADS]


for name in methods():
    setattr(WatchedCoordinator, name, _passing_on(name))
