"""A data set that was sent along: what may be said of it, and the file, laid down for as long as it
is read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import Form, UploadFile
from starlette.concurrency import run_in_threadpool

from cluster.api.schemas import Label
from tacl.errors import BadConfig

FORMATS = (".parquet", ".csv", ".tsv", ".jsonl", ".json")
DESCRIPTION = "Parquet, CSV or JSON lines."
InputColumn = Annotated[
    Label | None,
    Form(description="Column of the pictures or texts. Default: by type.", examples=["review"]),
]
LabelColumn = Annotated[
    Label | None, Form(description="Column of the classes. Default: by type.", examples=["stars"])
]
Classes = Annotated[
    str | None,
    Form(description="Names, separated by commas.", max_length=60_000, examples=["ham,spam"]),
]


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
