"""One contract, several back ends: what these fixtures give is tried on every one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import s3


@pytest.fixture(params=["sqlite", "postgres"])
def registry_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty registry."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'registry.sqlite'}"
    return request.getfixturevalue("postgres_server").new_database()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[s3.Server]:
    before = dict(os.environ)
    os.environ.update(s3.ENVIRONMENT)
    with s3.running() as server:
        yield server
    for name in s3.ENVIRONMENT:
        os.environ.pop(name)
        if name in before:
            os.environ[name] = before[name]


@pytest.fixture(params=["directory", "s3"])
def storage_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty place for files."""
    if request.param == "directory":
        return str(tmp_path / "storage")
    return request.getfixturevalue("s3_server").new_bucket()
