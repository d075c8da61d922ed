"""The notebook is short, whole, and asks for what there is; `test_followed` runs it."""

from __future__ import annotations

import ast

import nbformat
import pytest

import tacl.embedded
from cluster import Client
from tests.support.notebooks import code_of, printed
from tests.support.places import ROOT

STORY = ROOT / "examples/story.ipynb"
MOST = 150 << 10  # bytes, with its pictures
OF = {"client": Client, "embedded": tacl.embedded}


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return code_of(nbformat.read(STORY, as_version=4))


def test_it_is_short_and_has_an_output_of_every_cell(lines: list[str]) -> None:
    notebook = nbformat.read(STORY, as_version=4)
    nbformat.validate(notebook)
    assert STORY.stat().st_size < MOST
    assert len(lines) <= 80
    assert all(printed(notebook)), "run it anew: python -m tests.support.notebooks"
    assert "error" not in printed(notebook)


def test_what_it_calls_is_there(lines: list[str]) -> None:
    found = ast.walk(ast.parse("\n".join(lines)))
    named = [
        (one.value.id, one.attr)
        for one in found
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in OF
    ]
    assert len(named) > 10
    assert [name for name in named if not hasattr(OF[name[0]], name[1])] == []
