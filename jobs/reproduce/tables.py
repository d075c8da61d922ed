"""All tables by name."""

from __future__ import annotations

from jobs.reproduce import (
    addition,
    continual,
    negation,
    newcomers,
    pairs,
    refreshes,
    sweeps,
    unseen,
)
from jobs.reproduce.spec import Spec

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
