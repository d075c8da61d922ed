"""What is kept of what was read: a model of it in a few lines, and the rule of how much."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.serving import memory
from cluster.serving.residency import Residency
from tests.support.budget import budget

NAMES = "abcdefgh"
BATCHES = st.lists(st.lists(st.sampled_from(NAMES), max_size=6), max_size=20)


def size_of(value: str) -> int:
    return 3 + 4 * NAMES.index(value[0])


@settings(max_examples=budget(500))
@given(batches=BATCHES, most=st.integers(0, 120))
def test_what_was_used_last_is_kept_within_the_bytes(batches: list[list[str]], most: int) -> None:
    """More only where one batch alone needs more, and then for as long as that lasts."""
    kept, expected = Residency(most), OrderedDict[str, int]()
    hits = misses = 0
    for batch in batches:
        used = set[str]()
        with kept.batch():
            for name in batch:
                read: list[str] = []
                value = kept.get(name, lambda name: (read.append(name), name * 2)[1], size_of)  # noqa: B023
                assert value == name * 2
                assert (not read) == (name in expected)
                hits += name in expected and name not in used
                misses += name not in expected
                expected[name] = size_of(name)
                if name not in used:
                    expected.move_to_end(name)
                used.add(name)
                _forget(expected, most, used)
                assert [one[0] for one in kept.values()] == list(expected)
                assert kept.bytes <= max(most, sum(map(size_of, used)))
        _forget(expected, most, set())
        assert [one[0] for one in kept.values()] == list(expected)
        assert kept.bytes == sum(expected.values()) <= most
    assert (kept.hits, kept.misses) == (hits, misses)


def _forget(expected: OrderedDict[str, int], most: int, used: set[str]) -> None:
    for name in [name for name in expected if name not in used]:
        if sum(expected.values()) > most:
            del expected[name]


def test_what_cannot_be_read_takes_no_place() -> None:
    kept = Residency(10)

    def damaged(_: str) -> str:
        raise ValueError("damaged")

    with kept.batch():
        kept.get("a", lambda _: "a", lambda value: 10)
        with pytest.raises(ValueError, match="damaged"):
            kept.get("b", damaged, lambda value: 10)
        assert kept.get("b", lambda _: "b", lambda value: 10) == "b"
    assert (kept.values(), kept.bytes, kept.misses) == (["b"], 10, 3)


def test_the_share_is_of_what_the_container_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = tmp_path / "second", tmp_path / "first"
    groups = [(tmp_path, place.name, "used", "caches") for place in places]
    monkeypatch.setattr("cluster.runtime.memory.GROUPS", groups)
    whole = psutil.virtual_memory().total
    assert memory.limit() == whole
    places[0].write_text("max\n")
    assert memory.limit() == whole
    places[1].write_text("4096000\n")
    assert memory.limit() == 4096000
    cpu = torch.device("cpu")
    assert memory.share(cpu, 1) == 2 * memory.share(cpu, 2) == 4096000 // memory.OF_MEMORY
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (9000, 10**9))
    assert memory.share(torch.device("cuda"), 3) == 9000 // memory.OF_GPU // 3
