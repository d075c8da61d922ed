"""What people see of answers. Each file is imported when it is first used: `console.tables`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.console import (
        documents,
        evaluations,
        explanations,
        interference,
        live,
        plots,
        progress,
        tables,
    )

__all__ = [
    "documents",
    "evaluations",
    "explanations",
    "interference",
    "live",
    "plots",
    "progress",
    "tables",
]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
