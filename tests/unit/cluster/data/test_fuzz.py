"""Good files with random harm: taken, or refused as bad data; no crash, no other process's memory.

The files are read in a process of its own with bounded memory, as those of strangers are.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import random
import resource
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from cluster.api.limits import weighed
from cluster.data.ingest import ingest
from cluster.data.validation import checked_image
from cluster.storage.blobs import Blobs
from tacl.errors import TaclError
from tests.support.budget import budget

PICTURES = budget(1000, nightly=10_000)
FILES = budget(50, nightly=2_000)
MEMORY = 3 << 30
INTERESTING = (b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80", b'"', b"\n")


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    frames = [Image.new("RGB", (31, 17), (n * 60, 7, 90)) for n in range(3)]
    several = {"save_all": True, "append_images": frames[1:]} if kind in ("GIF", "TIFF") else {}
    frames[0].save(file, kind, **several)
    return file.getvalue()


def rows(kind: str) -> bytes:
    given = [{"text": f"a text, number {n}", "label": n % 2} for n in range(24)]
    if kind == "parquet":
        file = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(given), file, compression="zstd")
        return file.getvalue()
    if kind == "csv":
        return b"text,label\n" + b"".join(b'"a text, %d",%d\n' % (n, n % 2) for n in range(24))
    return "\n".join(map(json.dumps, given)).encode()


def harmed(raw: bytes, chance: random.Random) -> bytes:
    found = bytearray(raw)
    for _ in range(chance.randint(1, 6)):
        start, length = chance.randrange(len(found)), chance.randint(0, 12)
        part = [
            bytes(chance.randrange(256) for _ in range(length)),
            chance.choice(INTERESTING),
            bytes(found[start : start + length] * chance.randint(0, 50)),
            b"",
        ]
        found[start : start + length] = chance.choice(part)
        if not found:
            return b""
    return bytes(found[: chance.randrange(len(found))] if chance.random() < 0.1 else found)


def fuzz(kind: str, times: int, folder: Path) -> None:
    """Exits with 1 and a trace at anything but an answer or a refusal."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    chance = random.Random(kind)
    for number in range(times):
        try:
            if kind.isupper():
                raw = harmed(picture(kind), chance)
                weighed([checked_image(raw, "row 0")])
            else:
                (data := folder / f"{number}.{kind}").write_bytes(harmed(rows(kind), chance))
                ingest(data, Blobs(folder / "blobs"), "text")
        except TaclError:
            continue


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "TIFF", "JPEG", "parquet", "csv", "jsonl"])
def test_harmed_files_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    times = PICTURES if kind.isupper() else FILES
    clean = multiprocessing.get_context("forkserver")  # this process may have threads of Arrow
    clean.set_forkserver_preload([__name__])
    reader = clean.Process(target=fuzz, args=(kind, times, tmp_path))
    reader.start()
    reader.join()
    assert reader.exitcode == 0
    assert not [path for path in tmp_path.iterdir() if path.suffix not in (f".{kind}", "")]
