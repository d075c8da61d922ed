"""The tutorial does what it says and prints what it shows: real work, in this process, no Ray.

`test_blocks` samples it, which reads every command; `test_notebook` goes the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.cli import app
from tests.support.followed import Plainly, follow, require_shown


@pytest.mark.train
@pytest.mark.nightly
def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Plainly(tmp_path / "home")
    monkeypatch.setattr(app, "client", lambda home: client)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    follow("docs/tutorial.md")


@pytest.mark.parametrize("printed", ["land 74.0 %", "signs 84.0 %", "signs 74.0 %\nand", ""])
def test_what_was_not_printed_is_found(printed: str) -> None:
    require_shown("signs 74.0 %", "first\nsigns 73.0 %\nlast", "a page")
    with pytest.raises(AssertionError, match="a page"):
        require_shown("signs 74.0 %\nland", printed, "a page")


def test_a_difference_may_be_off_by_twice_as_much() -> None:
    require_shown("+land +0.03 0.90", "+land -0.05 0.86", "a page")
    for printed in ("+land -0.12 0.90", "+land +0.03 0.84"):
        with pytest.raises(AssertionError, match="a page"):
            require_shown("+land +0.03 0.90", printed, "a page")
