"""What a process keeps is looked through once."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from cluster.runtime import heap


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    heap.keep()
    yield
    heap.release()


def test_a_full_collection_looks_at_nothing_twice() -> None:
    came = [[number] for number in range(5000)]
    gc.collect()
    assert gc.get_freeze_count() > 5000
    assert len(gc.get_objects()) < 5000, "the next one would look at them again"
    assert came[-1] == [4999]


def test_cycles_that_came_since_are_collected() -> None:
    gc.collect()
    before = gc.get_freeze_count()
    for _ in range(100):
        cycle: list[object] = []
        cycle.append(cycle)
    del cycle
    assert gc.collect() >= 100
    assert gc.get_freeze_count() < before + 100


def test_nothing_is_kept_any_more_after_it() -> None:
    heap.release()
    gc.collect()
    assert gc.get_freeze_count() == 0
    heap.keep()
