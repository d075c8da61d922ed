"""The notebook is short and whole, and each cell does its work with fewer rows and steps, in this
process, without Ray.

That it gives the figures it shows is seen by `test_followed`, on a cluster, in a kernel."""

from __future__ import annotations

import ast
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest

import tacl.embedded
from cluster import Client
from tests.support.followed import Plainly
from tests.support.notebooks import cells_of, code_of, done, printed
from tests.support.places import ROOT

STORY = ROOT / "examples/story.ipynb"
MOST = 150 << 10  # bytes, with its pictures
OF = {"client": Client, "embedded": tacl.embedded}
LESS = {"train_rows=300": "train_rows=60", "test_rows=100": "test_rows=30", "steps=40": "steps=4"}


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


@pytest.mark.train
def test_every_cell_gives_what_it_shows_but_for_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook, known = nbformat.read(STORY, as_version=4), dict[str, object]()
    monkeypatch.setattr("cluster.Client", Plainly)
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    cells = zip(cells_of(notebook), printed(notebook), strict=True)
    for number, (source, shown) in enumerate(cells, 1):
        assert kinds(done(less(source), known)) == kinds(shown), f"cell {number}"


def kinds(given: str) -> list[str]:
    """Whether lines are printed, and what else a cell gives."""
    lines = given.splitlines()
    others = [line for line in lines if line in ("display_data", "execute_result")]
    return ["lines"] * any(line and line not in others for line in lines) + others


def less(source: str) -> str:
    for whole, part in LESS.items():
        source = source.replace(whole, part)
    return source


def test_what_is_made_less_is_in_the_notebook(lines: list[str]) -> None:
    assert all(whole in "\n".join(lines) for whole in LESS)


@pytest.mark.parametrize(
    ("source", "given"),
    [
        ("print(1)", "1\n"),
        ("1 + 1", "\nexecute_result"),
        ("for _ in (1,):\n    1", ""),
        ("figure = plt.figure()", "\ndisplay_data"),
        ("plt.figure()", "\nexecute_result\ndisplay_data"),
    ],
)
def test_what_a_cell_gives(source: str, given: str) -> None:
    plt.switch_backend("Agg")
    assert done(source, {"plt": plt}) == given
