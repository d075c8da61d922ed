"""Files of tensors: what is no plain tensor, or may become any size, is refused."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tacl.errors import BadCheckpoint
from tacl.interchange.reading import read_tensors

ODD: dict[str, Tensor] = {
    "sparse": torch.eye(3).to_sparse(),
    "meta": torch.ones(3, device="meta"),
    "one number for many": torch.ones(1, dtype=torch.float16).expand(10**6, 10**6),
}


@pytest.mark.parametrize("case", ODD)
def test_tensors_that_are_not_plain_are_refused(case: str, tmp_path: Path) -> None:
    torch.save({"plain": torch.ones(2), "odd": ODD[case]}, tmp_path / "x.pt")
    with pytest.raises(BadCheckpoint, match=r"not whole, such as \['odd'\]"):
        read_tensors(tmp_path / "x.pt")


def test_weights_that_share_their_memory_are_plain(tmp_path: Path) -> None:
    one = torch.arange(6.0).view(2, 3)
    torch.save({"a": one, "b": one.T, "c": one[1]}, tmp_path / "x.pt")
    assert torch.equal(read_tensors(tmp_path / "x.pt")["c"], one[1])


def test_a_file_in_the_earlier_form_of_pytorch_is_read(tmp_path: Path) -> None:
    one = {"a": torch.arange(6.0)}
    torch.save(one, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    assert torch.equal(read_tensors(tmp_path / "x.pt")["a"], one["a"])


def copied(path: Path, how: int) -> Path:
    """The archive with its members compressed, or written as they are."""
    to = path.with_name("copy.pt")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w", how) as new:
        for member in old.namelist():
            new.writestr(member, old.read(member))
    return to


def test_a_compressed_file_is_not_unpacked(tmp_path: Path) -> None:
    torch.save({"zeros": torch.zeros(1000, 1000)}, tmp_path / "x.pt")
    assert read_tensors(copied(tmp_path / "x.pt", zipfile.ZIP_STORED))["zeros"].shape[0] == 1000
    small = copied(tmp_path / "x.pt", zipfile.ZIP_DEFLATED)
    assert small.stat().st_size < 10_000
    with pytest.raises(BadCheckpoint, match="is compressed"):
        read_tensors(small)


def test_members_that_are_the_same_bytes_are_not_unpacked(tmp_path: Path) -> None:
    """A file of one million bytes that says of itself that it has many."""
    torch.save({"zeros": torch.zeros(1000, 1000)}, tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt", "a") as file:
        file.writestr("another", b"")  # so that the list of the archive is written again
        (large,) = [one for one in file.filelist if one.file_size > 10**6]
        file.filelist += [large] * 9
    with pytest.raises(BadCheckpoint, match="is compressed"):
        read_tensors(tmp_path / "x.pt")


def archive(names: Iterable[str], data: bytes, how: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", how) as file:
        warnings.simplefilter("ignore")  # of names that are equal
        for name in names:
            file.writestr(zipfile.ZipInfo(name), data, how)
    return stream.getvalue()


def parts(data: bytes) -> tuple[bytes, bytes, int, bytes]:
    """Of an archive: its members, its list of them, that list's offset, and its end."""
    size, offset = struct.unpack("<LL", data[-10:-2])
    return data[:offset], data[offset : offset + size], offset, data[-22:]


def two_lists() -> bytes:
    """`zipfile` reads the list before the end, PyTorch the one at the offset that the end names."""
    body, listed, offset, end = parts(archive("ab", b"0" * 10**6, zipfile.ZIP_DEFLATED))
    other, shown, _, _ = parts(archive("ab", b""))
    moved = bytearray(shown)
    for at in (0, 47):
        (start,) = struct.unpack_from("<L", moved, at + 42)
        struct.pack_into("<L", moved, at + 42, start + offset - len(other))
    return body + listed + other + bytes(moved) + end


def two_records() -> bytes:
    """`zipfile` reads the record before the locator, PyTorch the one that the locator names."""
    body, listed, offset, end = parts(archive("ab", b""))
    record = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 2, 2, len(listed), offset)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, offset + len(listed), 1)
    far = struct.pack("<L", offset + len(listed) + len(record))
    again = record[:-8] + far + bytes(4)
    return body + listed + record + listed + again + locator + end[:16] + far + end[20:]


AMBIGUOUS: dict[str, Callable[[], bytes]] = {
    "two of a name": lambda: archive(("x/data/0", "x/data/0"), b"0"),
    "two but for case": lambda: archive(("x/data/0", "x/DATA/0"), b"0"),
    "a backslash": lambda: archive(("x/data\\0",), b"0"),
    "a name that ends early": lambda: archive(("x/data/0?0",), b"0").replace(b"?", b"\0"),
    "another name in front": lambda: archive(("x/data/0",), b"0").replace(b"/0", b"/1", 1),
    "two lists": two_lists,
    "two records": two_records,
    "a comment": lambda: archive("a", b"0")[:-2] + b"\1\0x",
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_an_archive_in_which_another_reader_finds_other_members(case: str, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(AMBIGUOUS[case]())
    with zipfile.ZipFile(tmp_path / "x.pt") as file:
        assert file.namelist()
    with pytest.raises(BadCheckpoint, match="save it anew|header .*differ"):
        read_tensors(tmp_path / "x.pt")


BROKEN = {
    "cut.safetensors": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "cut.pt": lambda path: path.write_bytes(b"PK\x03\x04 nothing"),
    "bytes.pt": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "list.pt": lambda path: torch.save([torch.ones(2)], path),
    "numbered.pt": lambda path: torch.save({0: torch.ones(2)}, path),
    "none.safetensors": lambda path: path.unlink(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_files_that_are_no_checkpoints(name: str, tmp_path: Path) -> None:
    save_file({"a": torch.ones(1000)}, tmp_path / name)
    BROKEN[name](tmp_path / name)
    with pytest.raises(BadCheckpoint, match=name.split(".")[0]):
        read_tensors(tmp_path / name)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="no weights"):
        read_tensors(tmp_path)
