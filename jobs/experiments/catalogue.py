"""All tables by name."""

from __future__ import annotations

from jobs.experiments.table import Spec
from jobs.experiments.tables import addition, continual, negation, newcomers, pairs, sweeps, unseen

_MODULES = (addition, negation, continual, newcomers, sweeps, unseen, pairs)
TABLES: dict[str, Spec] = {spec.name: spec for module in _MODULES for spec in module.SPECS}
