"""What a process keeps is looked through once."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from cluster.runtime import gc_tuning
from cluster.runtime.gc_tuning import GcTuning


@pytest.fixture(autouse=True)
def kept() -> Iterator[GcTuning]:
    found = GcTuning()
    yield found
    found.release()


def cycles(number: int) -> list[list[object]]:
    found = [list[object]() for _ in range(number)]
    for one in found:
        one.append(one)
    return found


def test_a_full_collection_looks_at_nothing_twice() -> None:
    came = [[number] for number in range(5000)]
    gc.collect()
    assert gc.get_freeze_count() > 5000
    assert len(gc.get_objects()) < 5000, "the next one would look at them again"
    assert came[-1] == [4999]


def test_cycles_that_came_since_are_collected() -> None:
    gc.collect()
    cycles(100)
    assert gc.collect() >= 100


def test_cycles_that_were_in_use_are_collected_within_a_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_use = cycles(100)
    gc.collect()
    del in_use
    assert gc.collect() < 100
    monkeypatch.setattr(gc_tuning, "DAY", 0.0)
    gc.collect()
    monkeypatch.undo()
    assert gc.collect() >= 100
    assert len(gc.get_objects()) < 5000, "what is left is frozen again"


def test_nothing_is_kept_any_more_after_it() -> None:
    before = gc.get_threshold()
    other = GcTuning()
    other.release()
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before
