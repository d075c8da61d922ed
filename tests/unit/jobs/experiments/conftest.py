"""A small suite, and where it keeps what it computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.experiments.cache import Cells
from jobs.experiments.context import Experiment, LoadedBase
from tacl.compose import learning
from tests.support import small_suite


@pytest.fixture(scope="module", autouse=True)
def learning_from_few_rows_ends_soon() -> Iterator[None]:
    """After ten steps instead of a hundred: what so many learn is seen in tacl/compose."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "LEAST_BATCHES", 1)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="module")
def experiment(place: Path) -> Experiment:
    request = small_suite.request(place, "out", "addition", [])
    base = LoadedBase.of(request.suite)
    return Experiment(request.suite, 0, request.data, Cells(place / "out" / ".cells"), base)
