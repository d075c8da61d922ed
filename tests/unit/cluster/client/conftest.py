"""Data of a task for clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.data_files import csv


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return csv(tmp_path / "data.csv")
