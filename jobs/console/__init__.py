"""How answers are shown to people. Each file is imported at its first use: `console.tables`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.console import documents as documents
    from jobs.console import evaluations as evaluations
    from jobs.console import explanations as explanations
    from jobs.console import interference as interference
    from jobs.console import live as live
    from jobs.console import plots as plots
    from jobs.console import progress as progress
    from jobs.console import tables as tables


def __getattr__(name: str) -> ModuleType:
    file = f"{__name__}.{name}"
    if find_spec(file) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(file)
