"""A small suite, and where it keeps what it computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.experiments.cache import Cells
from jobs.experiments.context import Bench, LoadedBase
from tests.support import small_suite


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="module")
def bench(place: Path) -> Bench:
    request = small_suite.request(place, "out", "addition", [])
    base = LoadedBase.of(request.suite)
    return Bench(request.suite, 0, request.data, Cells(place / "out" / ".cells"), base)
