"""Prepares a composition: checks what the user requested, then stores its rows.

Runs where the data are; only digests and counts are sent on.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.data.ingest import ingest_samples, ingest_shots
from cluster.data.labelled import Progress
from cluster.data.sources import Data
from cluster.domain.compositions import Adapt, CompositionMethod, Method
from cluster.domain.methods import require_possible, require_shots
from cluster.domain.tasks import UNSAID, Reading
from cluster.storage.home import Home
from tacl.compose.terms import parse_recipe
from tacl.errors import BadConfig


def prepared(
    home: Home,
    terms: Sequence[str],
    method: Method,
    *,
    fit: Data | None = None,
    shots: int | None = None,
    adapt: Data | None = None,
    select: str | None = None,
    reading: Reading = UNSAID,
    progress: Progress | None = None,
) -> CompositionMethod:
    """How to make a composition in a home of this machine. Raises ClusterNotRunning if there is no
    home, BadConfig and BadRecipe for what cannot be made, and the errors of bad data
    (`cluster.data.ingest`); nothing is stored then."""
    blobs, modality = home.blobs(), home.founded().base.modality
    rows = [kind for kind, data in (("fit", fit), ("adapt", adapt)) if data is not None]
    require_possible(method, parse_recipe(terms), rows, select)
    require_shots(fit, shots)
    _require_rows(reading, rows)
    making = CompositionMethod(method=method, select=select)
    if fit is not None and shots is not None:
        found = ingest_shots(fit, blobs, modality, shots, reading, progress)
        return making.model_copy(update={"fit": found})
    if adapt is not None:
        inputs = ingest_samples(adapt, blobs, modality, reading, progress=progress)
        given = Adapt(inputs=inputs, classes=reading.classes or ())
        return making.model_copy(update={"adapt": given})
    return making


def _require_rows(reading: Reading, rows: Sequence[str]) -> None:
    """Raises BadConfig if reading options are given without rows, or class names are empty or
    repeated."""
    said = [name for name, value in reading if value]
    if said and not rows:
        raise BadConfig(
            f"{', '.join(said)} of no rows; give the rows too (--fit, --adapt), or leave it out"
        )
    classes = reading.classes or ()
    given = f"classes {','.join(classes)!r}"
    if len(set(classes)) < len(classes) or not all(name.strip() for name in classes):
        raise BadConfig(f"{given}: write each name once and none empty, such as --classes ham,spam")
