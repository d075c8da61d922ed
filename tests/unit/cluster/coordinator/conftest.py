"""A coordinator without Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fakes import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)
