"""The statements that a registry sends to its database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event

from cluster.registry import Registry


def statements(registry: Registry, ask: Callable[[], object]) -> list[tuple[str, Any]]:
    """Each statement with its parameters, in order."""
    engine, asked = registry._engine, list[tuple[str, Any]]()

    def heard(*told: Any) -> None:
        asked.append((" ".join(told[2].split()), told[3]))

    event.listen(engine, "before_cursor_execute", heard)
    try:
        ask()
    finally:
        event.remove(engine, "before_cursor_execute", heard)
    return asked
