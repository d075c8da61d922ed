"""Prepares a submission: checks what the user gave, and stores its rows.

Runs where the data are; only digests and counts are sent on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cluster.data.ingest import Ingested, ingest
from cluster.data.labelled import Progress
from cluster.data.sources import Data
from cluster.domain.names import checked_task
from cluster.domain.tasks import UNSAID, Options, Reading, Submission
from cluster.storage.home import Home
from tacl.errors import BadConfig


def checked_templates(templates: Sequence[str]) -> tuple[str, ...]:
    """The templates. Raises BadConfig unless each has {} once."""
    wrong = [one for one in templates if one.count("{}") != 1]
    if wrong:
        raise BadConfig(f"template {wrong[0]!r}: write {{}} once, where the class name goes")
    return tuple(templates)


def prepared_submission(
    home: Home,
    name: str,
    data: Data,
    *,
    owner: str,
    options: Options,
    request_id: str | None = None,
    private: bool = False,
    templates: Sequence[str] = (),
    vector: Path | None = None,
    read: Callable[[Ingested], None] | None = None,
    agree: Callable[[Sequence[str]], None] | None = None,
    reading: Reading = UNSAID,
    progress: Progress | None = None,
) -> Submission:
    """The submission for the coordinator of this home. `agree` receives the classes before rows are
    stored, `read` what was stored. Raises BadName, BadConfig, ClusterNotRunning, the errors of bad
    data (`cluster.data.ingest`) and what `agree` raises; nothing is stored then."""
    prompts = checked_templates(templates)
    checked_task(name, owner, private)
    seed, skip_bad = options.seed, options.skip_bad
    blobs, modality = home.blobs(), home.founded().base.modality
    read_with = partial(ingest, data, blobs, modality, reading, progress=progress)
    found = read_with(seed=seed, skip_bad=skip_bad, agree=agree)
    if read is not None:
        read(found)
    rows = {part: value for part, value in vars(found).items() if part in Submission.model_fields}
    return Submission(
        request_id=request_id or uuid.uuid4().hex,
        name=name,
        owner=owner,
        private=private,
        templates=prompts,
        options=options,
        vector_blob=blobs.put(vector) if vector else None,
        **rows,
    )
