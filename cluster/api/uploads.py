"""A data set that was sent along: laid down for as long as it is read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import UploadFile
from starlette.concurrency import run_in_threadpool

from cluster.api.service import Upload
from cluster.domain.tasks import Submission
from cluster.storage.home import Home
from tacl.errors import BadConfig

FORMATS = (".parquet", ".csv", ".tsv", ".jsonl", ".json")
DESCRIPTION = "Parquet, CSV or JSON lines."


@asynccontextmanager
async def laid_down(file: UploadFile) -> AsyncIterator[Path]:
    """BadConfig for a file whose name says another format."""
    suffix = Path(file.filename or "").suffix.lower()
    if suffix not in FORMATS:
        raise BadConfig(f"a file that ends in {suffix or 'nothing'}; send {', '.join(FORMATS)}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / f"upload{suffix}"
        await run_in_threadpool(_copy, file, place)
        yield place


def _copy(file: UploadFile, place: Path) -> None:
    with place.open("wb") as stream:
        shutil.copyfileobj(file.file, stream, 1 << 20)


def submission_of(upload: Upload, request_id: str, home: Home) -> Submission:
    """Its rows are checked and stored. Raises BadName, BadConfig and the errors of bad data."""
    from cluster.data.submissions import prepared_submission  # reads data sets: slow to import

    return prepared_submission(
        upload.name,
        upload.data,
        home.blobs(),
        home.founded().base.modality,
        owner=upload.owner,
        options=upload.options,
        request_id=request_id,
        private=upload.private,
    )
