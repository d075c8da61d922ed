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

TABLES: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        addition.SPEC,
        negation.SPEC,
        continual.SPEC,
        *newcomers.SPECS,
        *sweeps.SPECS,
        unseen.SPEC,
        refreshes.SPEC,
        *pairs.SPECS,
    )
}
