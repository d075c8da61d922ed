"""Rows of other tasks: what is read and prepared of them, and how much of it stays in memory."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from cluster.learner import prepared
from cluster.learner.prepared import Prepared, SpillBuffer
from cluster.runtime import memory
from tacl.errors import StorageUnavailable

RAWS = ["ab", "cde", "", "f"]


@pytest.fixture(autouse=True)
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the one that tests write on may be."""
    monkeypatch.setattr(prepared, "SPARE", 0)


class Counted:
    """Prepares texts, and says which."""

    def __init__(self) -> None:
        self.asked: list[bytes | str] = []
        self.read = 0
        self.dtype = torch.int8

    def raws(self) -> list[bytes | str]:
        self.read += 1
        return [*RAWS]

    def __call__(self, raw: bytes | str) -> torch.Tensor:
        self.asked.append(raw)
        return torch.tensor([len(raw)], dtype=self.dtype)


def test_rows_are_read_when_one_is_asked_for_and_prepared_one_by_one() -> None:
    counted = Counted()
    rows = Prepared(counted.raws, counted, SpillBuffer(Path()))
    assert counted.read == 0
    assert len(rows) == 4
    assert not counted.asked
    assert rows[1].item() == 3
    assert counted.asked == ["cde"]
    assert [row.item() for row in rows[2:]] == [0, 1]
    assert [row.item() for row in rows] == [2, 3, 0, 1]
    assert rows[-1].item() == 1
    assert counted.read == 1
    with pytest.raises(IndexError):
        rows[4]


def test_large_originals_are_prepared_together_and_kept_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prepared, "LARGE", 5)
    counted = Counted()
    spill = SpillBuffer(Path())
    rows = Prepared(counted.raws, counted, spill)
    assert len(rows) == 4
    assert [row.item() for row in (*rows, *rows)] == [2, 3, 0, 1] * 2
    assert counted.asked == RAWS
    assert [*spill._held.values()] == [b"\2", b"\3", b"\0", b"\1"]
    assert counted.read == 1


def test_large_originals_that_would_take_more_are_prepared_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prepared, "LARGE", 5)
    counted = Counted()
    counted.dtype = torch.int64
    rows = Prepared(counted.raws, counted, SpillBuffer(Path()))
    assert rows[1].item() == 3
    assert counted.asked == ["ab", "cde"]  # the first says how much they take


TASKS, ROWS = 4, 20
MB = 1 << 20


def pictures(task: int) -> list[bytes]:
    """Half a megabyte each."""
    return [random.Random(f"{task} {row}").randbytes(MB // 2) for row in range(ROWS)]


class Decoder:
    """Makes a megabyte of a picture, and counts."""

    asked = 0

    def __call__(self, raw: bytes | str) -> torch.Tensor:
        assert isinstance(raw, bytes)
        self.asked += 1
        return torch.full((2, MB // 2), raw[0], dtype=torch.uint8)


def decoded(items: Sequence[torch.Tensor]) -> list[bytes]:
    assert {item.shape for item in items} == {(2, MB // 2)}
    assert all(item.is_contiguous() for item in items)
    return [item.numpy().tobytes() for item in items]


def test_what_stays_in_memory_of_pictures_of_many_tasks_is_bounded(tmp_path: Path) -> None:
    decoder, spill = Decoder(), SpillBuffer(tmp_path, room=3 * MB)
    tasks = [Prepared(lambda t=t: pictures(t), decoder, spill) for t in range(TASKS)]
    tracemalloc.start()
    first_bytes = [[item[0, 0].item() for item in items] for items in (*tasks, *tasks)]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 4 * MB
    assert first_bytes == [[raw[0] for raw in pictures(task)] for task in range(TASKS)] * 2
    assert decoder.asked == TASKS * ROWS
    assert not [*tmp_path.iterdir()]


def test_texts_are_the_same_wherever_they_lie_and_bounded(tmp_path: Path) -> None:
    texts = [f"é{number}" * 1000 * (number > 0) for number in range(ROWS)]
    spill = SpillBuffer(tmp_path, room=3000)
    items = Prepared(lambda: [*texts], lambda raw: torch.tensor([*map(ord, str(raw))]), spill)
    expected = [[*map(ord, text)] for text in texts]
    assert [item.tolist() for item in items] == [item.tolist() for item in items] == expected
    assert sum(map(len, spill._held.values())) < 3000


def test_a_short_text_that_lies_in_the_file_takes_a_number_of_the_memory(tmp_path: Path) -> None:
    many, spill = 5000, SpillBuffer(tmp_path, room=0)
    items = Prepared(lambda: ["some words"] * many, lambda raw: torch.ones(20), spill)
    tracemalloc.start()
    for _ in items:
        pass
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 20 * many


def test_a_short_text_counts_as_what_it_takes_of_the_memory(tmp_path: Path) -> None:
    spill = SpillBuffer(tmp_path, room=MB)
    tracemalloc.start()
    for number in range(20_000):
        spill.put(b"%d" % number)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert MB / 2 < held < 1.5 * MB


def test_what_is_prepared_takes_the_room_of_its_original(tmp_path: Path) -> None:
    spill = SpillBuffer(tmp_path, room=5 * MB // 2 + 3 * prepared.BESIDE)  # two and one original
    items = Prepared(lambda: pictures(0)[:2], Decoder(), spill)
    assert [item[0, 0].item() for item in items] == [raw[0] for raw in pictures(0)[:2]]
    assert sum(map(len, spill._held.values())) == 2 * MB  # else one had gone to the file


def test_rows_that_nobody_can_ask_for_leave_their_room(tmp_path: Path) -> None:
    spill = SpillBuffer(tmp_path, room=2 * MB)
    items = Prepared(lambda: pictures(0), Decoder(), spill)
    assert items[-1][0, 0].item() == pictures(0)[-1][0]
    del items
    assert not spill._held
    assert spill._room == 2 * MB
    assert Prepared(lambda: pictures(0), Decoder(), spill)[0].shape == (2, MB // 2)


@pytest.mark.parametrize("room", [0, 3 * MB, 100 * MB])
@pytest.mark.parametrize("large", [MB, 100 * MB])
def test_rows_are_the_same_wherever_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, large: int
) -> None:
    monkeypatch.setattr(prepared, "LARGE", large)
    items = Prepared(lambda: pictures(0), Decoder(), SpillBuffer(tmp_path, room))
    expected = decoded([*map(Decoder(), pictures(0))])
    assert decoded(items) == decoded(items[:]) == expected


def test_where_no_file_can_be_written_rows_stay_in_memory(tmp_path: Path) -> None:
    (tmp_path / "no folder").touch()
    spill = SpillBuffer(tmp_path / "no folder", room=0)
    assert [spill.get(spill.put(row)) for row in (b"one", b"", b"three")] == [b"one", b"", b"three"]


def test_what_is_left_of_a_disk_is_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spill = SpillBuffer(tmp_path, room=0)
    first = spill.put(b"one")
    monkeypatch.setattr(prepared, "SPARE", 1 << 60)
    places = [spill.put(row) for row in (b"two", b"three")]
    assert [*map(spill.get, [first, *places])] == [b"one", b"two", b"three"]
    assert [*spill._held.values()] == [b"two", b"three"]
    assert len(caplog.records) == 1


def test_where_neither_disk_nor_memory_has_room_it_is_said_and_nothing_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = SpillBuffer(tmp_path, room=0)
    monkeypatch.setattr(prepared, "SPARE", 1 << 60)
    first = spill.put(b"one")
    monkeypatch.setattr(memory, "free", lambda: memory.limit() // 20)
    with pytest.raises(StorageUnavailable, match=r"nearly full.*little memory left\. Free"):
        spill.put(b"two")
    assert [*spill._held] == [first]


def test_rows_go_to_a_disk_again_that_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = SpillBuffer(tmp_path, room=0)
    with monkeypatch.context() as full:
        full.setattr(prepared, "SPARE", 1 << 60)
        first = spill.put(b"one")
    second = spill.put(b"two")
    assert [*spill._held] == [first]
    assert [*map(spill.get, (first, second))] == [b"one", b"two"]


@pytest.mark.parametrize("found", [OSError(5, "Input/output error"), b"", b"1234"])
def test_a_row_that_a_disk_does_not_give_may_be_had_by_another_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: OSError | bytes
) -> None:
    spill = SpillBuffer(tmp_path, room=0)
    place = spill.put(b"one")

    def pread(*_: int) -> bytes:
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(StorageUnavailable):
        spill.get(place)


def test_a_row_that_a_disk_gives_as_another_is_none(tmp_path: Path) -> None:
    spill = SpillBuffer(tmp_path, room=0)
    rows = [spill.put(row) for row in (b"one", b"", b"three")]
    assert [*map(spill.get, rows)] == [b"one", b"", b"three"]
    os.pwrite(spill._file.fileno(), b"tree", rows[2] + prepared.HEADER.size)
    assert spill.get(rows[0]) == b"one"
    with pytest.raises(StorageUnavailable):
        spill.get(rows[2])


def test_no_more_is_read_than_was_written_whatever_a_disk_gives_as_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is taken for all that is asked for: 4 GB for a header of ones."""
    spill, read, asked = SpillBuffer(tmp_path, room=0), os.pread, list[int]()
    place = spill.put(b"one")

    def pread(file: int, size: int, offset: int) -> bytes:
        asked.append(size)
        return read(file, min(size, 100), offset)

    monkeypatch.setattr(os, "pread", pread)
    os.pwrite(spill._file.fileno(), b"\xff" * 4, place)
    with pytest.raises(StorageUnavailable, match="not what was written"):
        spill.get(place)
    assert max(asked) <= prepared.HEADER.size + len(b"one")


def test_a_row_that_could_not_be_prepared_can_be_asked_for_again(tmp_path: Path) -> None:
    failing = [True]

    def prepare(raw: str | bytes) -> torch.Tensor:
        if failing.pop() if failing else False:
            raise OSError("the disk is away")
        return torch.tensor([len(raw)])

    rows = Prepared(lambda: ["three"], prepare, SpillBuffer(tmp_path))
    with pytest.raises(OSError, match="away"):
        rows[0]
    assert rows[0].tolist() == [5]


def test_zeros_that_a_disk_gives_are_no_row_nor_is_another_row(tmp_path: Path) -> None:
    """As after a write that it lost, or put elsewhere."""
    spill = SpillBuffer(tmp_path, room=0)
    first, second, third = (spill.put(row) for row in (b"one", b"two", b"three"))
    file, size = spill._file.fileno(), second - first
    os.pwrite(file, bytes(size), first)
    os.pwrite(file, os.pread(file, 100, third), second)
    for place in (first, second):
        with pytest.raises(StorageUnavailable, match="not what was written"):
            spill.get(place)
