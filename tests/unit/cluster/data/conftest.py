"""Where ingested data go."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.storage.blobs import Blobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")
