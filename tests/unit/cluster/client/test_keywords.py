"""Keywords as type checkers read them are those that the models declare."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic.fields import FieldInfo

from cluster.client.client import Client
from cluster.client.keywords import CompositionKeywords, ImportKeywords, TrainingKeywords
from cluster.data import ingest, sources
from cluster.domain.compositions import CompositionMethod, LearnedFrom
from cluster.domain.tasks import Options, Reading
from tacl.errors import BadConfig

TYPES = {"Ingested": ingest.Ingested, "Data": sources.Data}
READING = Reading.model_fields
LEARNING = {**LearnedFrom.model_fields, "select": CompositionMethod.model_fields["select"]}
PROGRAMS = {"classes", "fit", "adapt"}  # may be more in a program: any sequence, rows that it holds


@pytest.mark.parametrize(
    ("keywords", "fields"),
    [
        (TrainingKeywords, {**READING, **Options.model_fields}),
        (CompositionKeywords, {**READING, **LEARNING}),
    ],
)
def test_keywords_are_the_fields_of_the_models(
    keywords: type, fields: Mapping[str, FieldInfo]
) -> None:
    found = get_type_hints(keywords, localns=TYPES)
    assert found.keys() == fields.keys()
    for name in found.keys() - PROGRAMS:
        assert found[name] == fields[name].annotation, name


def test_an_import_takes_what_a_submission_does() -> None:
    said = inspect.signature(Client.submit).parameters.values()
    own = {one.name for one in said if one.kind is one.KEYWORD_ONLY}
    taken = get_type_hints(ImportKeywords, localns=TYPES).keys()
    assert taken - get_type_hints(TrainingKeywords).keys() == own - {"agree", "vector"}


def test_an_import_shares_no_statistics_for_it_has_none(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="measures none; share samples, or none"):
        Client(tmp_path).import_checkpoint("pets", "some.safetensors", "data", share="statistics")


@pytest.mark.parametrize("method", ["submit", "import_checkpoint", "start_composition", "compose"])
def test_no_method_takes_just_anything(method: str) -> None:
    given: Any = inspect.signature(getattr(Client, method)).parameters.values()
    (rest,) = (one.annotation for one in given if one.kind is one.VAR_KEYWORD)
    assert rest.startswith("Unpack[")
