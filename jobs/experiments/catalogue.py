"""All tables by name."""

from __future__ import annotations

from jobs.experiments.spec import Spec
from jobs.experiments.tables import (
    addition,
    continual,
    negation,
    newcomers,
    pairs,
    refreshes,
    sweeps,
    unseen,
)

_MODULES = (addition, negation, continual, newcomers, sweeps, unseen, refreshes, pairs)
TABLES: dict[str, Spec] = {spec.name: spec for module in _MODULES for spec in module.SPECS}
