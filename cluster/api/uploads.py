"""Uploaded data sets: the form fields that describe one, and its file while it is read."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Form, UploadFile
from starlette.concurrency import run_in_threadpool

from cluster.api.schemas import TEMPLATES, Label, Reference, Template
from cluster.api.service import Service
from cluster.domain.names import class_names
from cluster.domain.tasks import Reading
from tacl.errors import BadConfig

FORMATS = (".parquet", ".csv", ".tsv", ".jsonl", ".json")
DESCRIPTION = "Parquet, CSV or JSON lines."


def _form(name: str, most: int | None = None) -> Any:
    """A form field described like that of a JSON body; `most`: values of a list."""
    field = Reference.model_fields[name]
    return Form(description=field.description, examples=field.examples, max_length=most)


async def _reading(
    input_column: Annotated[Label | None, _form("input_column")] = None,
    label_column: Annotated[Label | None, _form("label_column")] = None,
    classes: Annotated[
        str | None,
        Form(description="Names, separated by commas.", max_length=60_000, examples=["ham,spam"]),
    ] = None,
) -> Reading:
    said = {"input_column": input_column, "label_column": label_column}
    return Reading(**said, classes=class_names(classes))


Templates = Annotated[list[Template], _form("templates", TEMPLATES)]
FormReading = Annotated[Reading, Depends(_reading)]  # as fields of a form


@asynccontextmanager
async def laid_down(file: UploadFile, service: Service) -> AsyncIterator[Path]:
    """The path of the uploaded file inside the block. Raises BadConfig for an unknown suffix."""
    suffix = Path(file.filename or "").suffix.lower()
    if suffix not in FORMATS:
        raise BadConfig(f"a file that ends in {suffix or 'nothing'}; send {', '.join(FORMATS)}")
    with service.scratch() as folder:
        place = folder / f"upload{suffix}"
        await run_in_threadpool(_copy, file, place)
        yield place


def _copy(file: UploadFile, place: Path) -> None:
    with place.open("wb") as stream:
        shutil.copyfileobj(file.file, stream, 1 << 20)
