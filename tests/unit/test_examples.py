"""Each file of examples/ is short, runs by itself, and prints what it says that it prints.

Where a cluster is asked for, it is one in this process: real work, no Ray.
"""

from __future__ import annotations

import ast
import re
import runpy
import textwrap
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.inline import Here
from tests.support.places import ROOT

pytestmark = pytest.mark.train
LONG = ("product_catalogue",)
EXAMPLES = [
    pytest.param(path, marks=[pytest.mark.nightly] * (path.stem in LONG), id=path.stem)
    for path in sorted((ROOT / "examples").glob("*.py"))
]
NUMBER = re.compile(r"\d+\.\d+")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cluster.Client", Here)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example(
    example: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = example.read_text()
    assert len(source.splitlines()) <= 80
    about = ast.get_docstring(ast.parse(source)) or ""
    _, _, shown = about.partition("prints\n\n")
    monkeypatch.setattr("sys.argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    assert words(printed) == words(textwrap.dedent(shown))
    figures = [[float(one) for one in NUMBER.findall(text)] for text in (printed, shown)]
    assert figures[0] == pytest.approx(figures[1], abs=0.03)  # other processors round otherwise


REAL = {"cloth": "clothing10", "toys": "quickdraw6", "badges": "gtsrb"}


@pytest.mark.nightly
def test_a_catalogue_of_real_pictures(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = {name: few(shared / "data/vision" / folder) for name, folder in REAL.items()}
    file = shared / "models/efficientnet_lite0/model.safetensors"
    encoder = f"timm:tf_efficientnet_lite0@{file}?size=64"
    story = runpy.run_path(str(ROOT / "examples/product_catalogue.py"))["story"]
    story(encoder, few(shared / "data/vision/dtd10"), folders)
    *models, refused, kept = capsys.readouterr().out.splitlines()
    names = [["cloth"], ["cloth", "toys"], ["ann.badges", "cloth"]]
    assert [re.findall(r"([a-z.]+) \d", line) for line in models] == names
    assert all(float(one) > 0.4 for line in models for one in NUMBER.findall(line))  # 4 classes
    assert (refused, kept) == ("bob, of ann.badges: UnknownTask", "bob still has cloth toys")


@pytest.mark.nightly
def test_tickets_under_a_real_encoder(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = runpy.run_path(str(ROOT / "examples/support_tickets.py"))["main"]
    story(f"hf:{shared / 'models/minilm'}")
    head, *teams, none = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["team", "base", "own", "sum"]
    found = [[float(one) for one in NUMBER.findall(line)] for line in teams]
    assert all(
        own >= base and min(together, unknown) > 0.9 for base, own, together, unknown in found
    )
    *tickets, other = (float(one) for one in NUMBER.findall(none))
    assert other > 0.9 > 0.15 > max(tickets)


def few(folder: Path) -> Path:
    """Of four classes 40 rows each, in a file of this test's own folder."""
    rows = pq.read_table(folder / "train-00000.parquet")
    labels = rows["label"].to_pylist()
    kept = [
        row for label in range(4) for row in [r for r, of in enumerate(labels) if of == label][:40]
    ]
    pq.write_table(rows.take(kept), file := Path(f"{folder.name}.parquet"))
    return file


def words(text: str) -> list[str]:
    return NUMBER.sub("0", text).split()
