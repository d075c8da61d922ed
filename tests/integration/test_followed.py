"""Tutorial and notebook on a real cluster, as whoever reads them: with the long budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from cluster.client.client import Client
from tests.support.followed import follow, require_shown
from tests.support.notebooks import executed, printed
from tests.support.places import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cluster is stopped, whatever happens."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TACL_HOME", str(tmp_path / "home"))
    yield tmp_path
    for name in ("home", "story/home"):
        Client(tmp_path / name).down()


def test_the_tutorial(home: Path) -> None:
    follow("docs/tutorial.md")


def test_the_notebook(home: Path) -> None:
    story = ROOT / "examples/story.ipynb"
    shown, now = (printed(one) for one in (nbformat.read(story, 4), executed(story, home)))
    for before, after in zip(shown, now, strict=True):
        require_shown(before, after, story.name)
