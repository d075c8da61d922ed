"""What decodes to far more than it is: refused by its header, in data sets as in questions."""

from __future__ import annotations

import io
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from PIL import Image, ImageFile

from cluster.api.limits import weighed
from cluster.data import amounts
from cluster.data.amounts import Amount
from cluster.data.ingest import ingest, ingest_samples, ingest_shots
from cluster.data.validation import checked_image
from cluster.storage.blobs import Blobs
from cluster.storage.samples import labelled_rows
from tacl.backbone import inputs
from tacl.errors import BadSample, TooLarge
from tests.support.data_files import grey_of_32_bits


def picture(width: int, height: int, kind: str = "PNG", **how) -> bytes:
    file = io.BytesIO()
    Image.new("1" if kind == "PNG" else "L", (width, height)).save(file, kind, **how)
    return file.getvalue()


def chunk(name: bytes, held: bytes = b"") -> bytes:
    return struct.pack(">I", len(held)) + name + held + struct.pack(">I", zlib.crc32(name + held))


def claims(width: int, height: int) -> dict[str, bytes]:
    """Small files of every format that say to be so large; none of them can be decoded."""
    png = bytearray(picture(8, 8))
    png[16:24] = struct.pack(">II", width, height)
    png[29:33] = struct.pack(">I", zlib.crc32(bytes(png[12:29])))
    gif = bytearray(picture(8, 8, "GIF"))
    gif[6:10] = struct.pack("<HH", width, height)
    bmp = bytearray(picture(8, 8, "BMP"))
    bmp[18:26] = struct.pack("<II", width, height)
    jpeg = bytearray(picture(8, 8, "JPEG"))
    frame = jpeg.index(b"\xff\xc0") + 5
    jpeg[frame : frame + 4] = struct.pack(">HH", height, width)
    tiff = bytearray(picture(8, 8, "TIFF"))
    entries = struct.unpack("<I", tiff[4:8])[0] + 2
    tiff[entries + 8 : entries + 12] = struct.pack("<I", width)
    tiff[entries + 20 : entries + 24] = struct.pack("<I", height)
    ppm = b"P5 %d %d 255\n" % (width, height)
    webp = bytearray(picture(8, 8, "WEBP", lossless=True))
    sides = (width - 1) | (height - 1) << 14 | struct.unpack("<I", webp[21:25])[0] & 0xF << 28
    webp[21:25] = struct.pack("<I", sides)
    found = {"PNG": png, "GIF": gif, "BMP": bmp, "JPEG": jpeg, "TIFF": tiff}
    return {name: bytes(raw) for name, raw in found.items()} | {"PPM": ppm, "WEBP": bytes(webp)}


def test_every_format_that_is_read_has_a_claim() -> None:
    assert set(claims(9, 9)) == set(amounts.FORMATS)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("kind", amounts.FORMATS)
@pytest.mark.parametrize("side", [6_400, 13_000, 16_000])
def test_a_small_file_of_many_pixels_is_refused_undecoded(
    kind: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = claims(side, side)[kind]
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("decoded"))
    for refuse in (lambda: checked_image(raw, "row 7"), lambda: weighed([raw])):
        with pytest.raises(TooLarge, match="pixels"):
            refuse()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_no_data_set_takes_a_picture_that_no_question_may_have(tmp_path: Path) -> None:
    """169 million pixels in some kilobytes, which trainings of others would decode again."""
    bombs = [picture(13_000, 13_000)] + [picture(8, 8)] * 23
    rows = Dataset.from_dict({"image": bombs, "label": [0, 1] * 12})
    blobs = Blobs(tmp_path)
    for read in (
        lambda: ingest(rows, blobs, "image"),
        lambda: ingest_samples(rows, blobs, "image"),
        lambda: ingest_shots(rows, blobs, "image", 2),
    ):
        with pytest.raises(TooLarge, match="169,000,000 pixels; at most 40,000,000; make"):
            read()
    assert not list(blobs.stored())


def test_many_pictures_are_too_much_together() -> None:
    large = picture(6_300, 6_300)
    assert weighed([large]) == Amount(pixels=39_690_000)
    with pytest.raises(TooLarge, match="input 1, with what came before it: 79,380,000 pixels"):
        weighed([large] * 64)
    with pytest.raises(TooLarge, match="characters"):
        weighed(["x" * 190_000] * 8)


def test_a_data_set_of_large_pictures_ends_at_what_its_bytes_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Dataset.from_dict({"image": [picture(1000, 1000)] * 24, "label": [0, 1] * 12})
    assert ingest(rows, Blobs(tmp_path / "enough"), "image").train.rows
    monkeypatch.setattr("cluster.data.labelled.of_data_set", lambda stored: Amount(23_000_000))
    with pytest.raises(TooLarge, match="row 23 .*with what came before"):
        ingest(rows, Blobs(tmp_path / "less"), "image")


def test_texts_of_a_data_set_are_bounded_as_those_of_questions(tmp_path: Path) -> None:
    texts = ["x" * 200_001] + [f"text {row}" for row in range(23)]
    rows = Dataset.from_dict({"text": texts, "label": [0, 1] * 12})
    with pytest.raises(TooLarge, match="200,001 characters"):
        ingest(rows, Blobs(tmp_path), "text")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_rows_that_are_too_large_are_left_out_where_bad_rows_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not once the rows together are too large."""
    large: dict[str, Any] = {"text": "x" * 200_001, "image": picture(13_000, 13_000)}
    small: dict[str, list[Any]] = {
        "text": [f"text {row}" for row in range(24)],
        "image": [picture(8, 8 + row) for row in range(24)],
    }
    for modality in ("text", "image"):
        values = [large[modality], *small[modality]]
        rows = Dataset.from_dict({modality: values, "label": [0, 1] * 12 + [0]})
        found = ingest(rows, Blobs(tmp_path / modality), modality, skip_bad=True)
        (left_out,) = (note for note in found.notes if note.startswith("left out: "))
        assert left_out.startswith("left out: row 0 of split train")
        raws, _ = labelled_rows(Blobs(tmp_path / modality), found.train)
        assert set(raws) < set(small[modality])
    monkeypatch.setattr("cluster.data.labelled.of_data_set", lambda stored: Amount(640))
    with pytest.raises(TooLarge, match="with what came before"):
        ingest(rows, Blobs(tmp_path), "image", skip_bad=True)


def test_a_picture_of_endless_parts_keeps_nobody_busy() -> None:
    png = picture(8, 8)
    jpeg = picture(8, 8, "JPEG")
    gif = picture(8, 8, "GIF")
    table = 13 + 3 * 2 ** ((gif[10] & 7) + 1)
    endless = [
        png[:33] + chunk(b"tEXt", b"a\0b") * 600_000 + png[33:],
        png[:33] + chunk(b"IDAT") * 600_000 + png[33:],
        jpeg[:2] + b"\xff\xe5\x00\x02" * 2_000_000 + jpeg[2:],
        gif[:table] + b"\x21\xfe\x01a\x00" * 2_000_000 + gif[table:],
    ]
    for raw in endless:
        assert min(_refused_in(raw) for _ in range(3)) < 0.5  # a garbage collection is no picture's


def _refused_in(raw: bytes) -> float:
    """CPU seconds of this thread."""
    started = time.thread_time()
    with pytest.raises(BadSample, match="too many parts"):
        checked_image(raw, "row 0")
    return time.thread_time() - started


def test_a_jpeg_of_endless_scans_is_refused() -> None:
    jpeg = picture(64, 64, "JPEG", progressive=True)
    last = jpeg.rindex(b"\xff\xda")
    assert checked_image(jpeg, "row 0")
    with pytest.raises(TooLarge, match="scans"):
        checked_image(jpeg[:last] + jpeg[last:-2] * 5000 + jpeg[-2:], "row 0")


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "TIFF"])
def test_of_an_animation_only_the_first_picture_counts(kind: str) -> None:
    file = io.BytesIO()
    frames = [Image.new("RGB", (100, 100), (n, 7, 7)) for n in range(200)]
    frames[0].save(file, kind, save_all=True, append_images=frames[1:])
    assert weighed([checked_image(file.getvalue(), "row 0")]) == Amount(pixels=10_000)


def test_no_other_format_is_given_to_its_decoder() -> None:
    """Pillow gives EPS to ghostscript, and knows some thirty more."""
    for kind in ("EPS", "ICO", "PDF", "PCX", "TGA"):
        file = io.BytesIO()
        Image.new("RGB", (8, 8)).save(file, kind)
        with pytest.raises(BadSample, match="JPEG, PNG"):
            checked_image(file.getvalue(), "row 0")


def test_grey_whose_white_is_unknown_is_no_row_and_no_question() -> None:
    for raw in grey_of_32_bits().values():
        for refuse in (lambda raw=raw: checked_image(raw, "row 7"), lambda raw=raw: weighed([raw])):
            with pytest.raises(BadSample, match=r"(row 7|input 0): .* 8 or 16 bits"):
                refuse()
    for kind in amounts.GREY_16:
        file = io.BytesIO()
        Image.fromarray(np.full((8, 8), 9_000, np.uint16)).save(file, kind)
        assert weighed([checked_image(file.getvalue(), "row 7")]) == Amount(pixels=64)
    assert amounts.GREY_16 == inputs.GREY_16
