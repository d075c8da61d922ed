"""Good files with random harm: taken, or refused as bad data; no crash, no file of the machine
read, no more memory than is allowed.

The files are read in a process of its own with bounded memory, as those of strangers are. Pictures
in tables name a file that belongs to somebody else, which nobody opens.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import multiprocessing
import random
import resource
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from cluster.api.limits import weighed
from cluster.data.ingest import ingest
from cluster.data.validation import checked_image
from cluster.domain.base import Modality
from cluster.storage.blobs import Blobs
from tacl.errors import TaclError
from tests.support.budget import budget, seconds
from tests.support.opened import watched

PICTURES = budget(1000, nightly=10_000)
FILES = budget(50, nightly=10_000)
MEMORY = 3 << 30
INTERESTING = (b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80", b'"', b"\n")


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    frames = [Image.new("RGB", (31, 17), (n * 60, 7, 90)) for n in range(3)]
    several = {"save_all": True, "append_images": frames[1:]} if kind in ("GIF", "TIFF") else {}
    frames[0].save(file, kind, **several)
    return file.getvalue()


ODD = (
    None,
    "",
    "\x00",
    "\ud800",
    "9" * 400,
    "x" * 300_000,
    float("nan"),
    float("inf"),
    -1,
    1 << 62,
)
ODD = (
    *ODD,
    True,
    [],
    {},
    [[[[]]]],
    {"bytes": None},
    {"path": "/dev/zero"},
    b"\x89PNG",
    "/etc/passwd",
)


def table(kind: str, secret: Path, chance: random.Random) -> bytes:
    """Rows of which some have odd values; those of pictures also name a file."""
    rows: list[dict[str, Any]] = [{"text": f"text {n}", "label": n % 2} for n in range(24)]
    if kind.startswith("pictures"):
        rows = [
            {"image": {"bytes": picture("PNG"), "path": None}, "label": n % 2} for n in range(24)
        ]
        for _ in range(chance.choice((0, 0, 0, 2))):
            chance.choice(rows)["image"] = {"bytes": None, "path": str(secret)}
    for _ in range(chance.choice((0, 0, 1, 3))):
        row = chance.choice(rows)
        row[chance.choice([*row, "more"])] = chance.choice(ODD)
    if chance.random() < 0.2:
        rows = [
            {key: chance.choice(ODD) if key == "label" else v for key, v in row.items()}
            for row in rows
        ]
    return written(kind.rpartition(".")[2], rows)


def written(kind: str, rows: list[dict[str, Any]]) -> bytes:
    if kind == "parquet":
        with suppress(pa.ArrowException, OverflowError, UnicodeError):  # no one type holds them all
            pq.write_table(pa.Table.from_pylist(rows), file := io.BytesIO(), compression="zstd")
            return file.getvalue()
        return b"PAR1"
    if kind == "csv":
        lines = [["text", "label"], *([row.get("text"), row.get("label")] for row in rows)]
        csv.writer(file := io.StringIO()).writerows(lines)
        return file.getvalue().encode(errors="surrogatepass")
    return "\n".join(json.dumps(row, default=_base64) for row in rows).encode()


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def harmed(raw: bytes, chance: random.Random) -> bytes:
    """Some bytes changed where they are; sometimes more or fewer of them."""
    found = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        start, length = chance.randrange(len(found)), chance.randint(1, 12)
        part = [
            bytes(chance.randrange(256) for _ in range(length)),
            chance.choice(INTERESTING),
            bytes(found[start : start + length] * chance.randint(0, 50)),
            b"",
        ]
        chosen = chance.choice(part)
        kept = len(chosen) if chance.random() < 0.7 else length
        found[start : start + kept] = chosen
        if not found:
            return b""
    return bytes(found[: chance.randrange(len(found))] if chance.random() < 0.1 else found)


def fuzz(kind: str, times: int, folder: Path, secret: Path) -> None:
    """Exits with 1 and a trace at anything but an answer or a refusal."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    chance, refused = random.Random(kind), 0
    modality: Modality = "image" if kind.startswith("pictures") else "text"
    good = picture(kind) if kind.isupper() else b""
    for number in range(times):
        try:
            if kind.isupper():
                weighed([checked_image(harmed(good, chance), "row 0")])
                continue
            data = folder / f"{number}.{kind.rpartition('.')[2]}"
            raw = table(kind, secret, chance)
            data.write_bytes(harmed(raw, chance) if chance.random() < 0.5 else raw)
            ingest(data, Blobs(folder / "blobs"), modality)
        except TaclError:
            refused += 1
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{kind}: {times} files, {refused} refused, {most} MiB at the most", flush=True)


PICTURE_KINDS = ("PNG", "WEBP", "GIF", "TIFF", "JPEG")
FILE_KINDS = ("parquet", "csv", "jsonl", "pictures.parquet", "pictures.jsonl")


@pytest.mark.timeout(seconds(300))
@pytest.mark.parametrize("kind", [*PICTURE_KINDS, *FILE_KINDS])
def test_harmed_files_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    times = PICTURES if kind.isupper() else FILES
    secret = tmp_path / "secret.png"
    secret.write_bytes(picture("PNG"))
    (folder := tmp_path / "sent").mkdir()
    clean = multiprocessing.get_context("forkserver")  # this process may have threads of Arrow
    clean.set_forkserver_preload([__name__])
    reader = clean.Process(target=fuzz, args=(kind, times, folder, secret))
    with watched(secret) as opened:
        reader.start()
        reader.join()
        assert not opened()
        secret.read_bytes()
        assert opened()
    assert reader.exitcode == 0
    suffix = kind.rpartition(".")[2]
    assert not [path for path in folder.iterdir() if path.suffix not in (f".{suffix}", "")]
