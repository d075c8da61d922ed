"""Each file of examples/ is short, runs by itself, and prints what it says that it prints.

Where a cluster is asked for, it is one in this process: real work, no Ray.
"""

from __future__ import annotations

import ast
import re
import runpy
import textwrap
from pathlib import Path

import pytest

from tests.support.inline import Here
from tests.support.places import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NUMBER = re.compile(r"\d+\.\d+")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cluster.Client", Here)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = example.read_text()
    assert len(source.splitlines()) <= 80
    about = ast.get_docstring(ast.parse(source)) or ""
    _, _, shown = about.partition("prints\n\n")
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    assert words(printed) == words(textwrap.dedent(shown))
    figures = [[float(one) for one in NUMBER.findall(text)] for text in (printed, shown)]
    assert figures[0] == pytest.approx(figures[1], abs=0.03)  # other processors round otherwise


def words(text: str) -> list[str]:
    return NUMBER.sub("0", text).split()
