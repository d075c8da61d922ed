"""A registry of a new home."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.registry import Registry
from tests.support.registry_scene import BASE, GENERIC_BLOB


@pytest.fixture
def registry(registry_url: str) -> Iterator[Registry]:
    registry = Registry(registry_url)
    registry.founded(BASE, GENERIC_BLOB)
    yield registry
    registry.close()
