"""What the routes need of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from cluster.domain.compositions import Composition, CompositionMethod, Method

Way = Literal["linearized", "materialized"]
Ranked = dict[str, list[tuple[str, float]]]  # task -> (class, probability), likeliest first


@dataclass(frozen=True)
class Question:
    """Inputs for one model. Without tasks: all of the model; `union`: one list over all classes."""

    model: Composition
    inputs: Sequence[bytes | str]
    tasks: Sequence[str] | None = None
    union: bool = False
    way: Way = "linearized"
    beside_base: bool = False


@dataclass(frozen=True)
class Answered:
    """An answer per input, and those of the plain base when they were asked for."""

    answers: list[Ranked]
    base: list[Ranked] | None = None


class Service(Protocol):
    """Every method raises the errors of `tacl.errors`."""

    async def ask(self, method: str, *arguments: object) -> Any:
        """Call a method of `cluster.coordinator.core.Coordinator`."""
        ...

    async def predict(self, question: Question) -> Answered:
        """Raises Overloaded when too much waits already."""
        ...

    async def submit(self, data: Path, name: str, owner: str, fields: dict[str, Any]) -> Any:
        """Check, store and queue a data set that lies at `data` now;
        `cluster.client.client.submit`."""
        ...

    async def prepare(
        self, terms: list[str], method: Method, given: dict[str, Any]
    ) -> CompositionMethod:
        """Check and store the rows that a composition is to learn from;
        `cluster.data.compositions`."""
        ...

    def reference(self, name: str) -> Path:
        """Where data that the operator laid ready lies. Raises DataNotFound."""
        ...
