"""Data sets in the formats of users, and rows as they are stored."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from PIL import Image

from cluster.domain.base import BlobRef
from cluster.storage.blobs import Blobs
from tacl.embedded import parquet


def stored(tmp_path: Path) -> list[Path]:
    return [p for p in (tmp_path / "blobs").rglob("*") if p.is_file()]


def rows(blobs: Blobs, ref: BlobRef) -> list[dict]:
    found = pq.read_table(io.BytesIO(blobs.read(ref.digest))).to_pylist()
    assert len(found) == ref.rows
    return found


def csv(path: Path, n: int = 40, header: str = "text,label", labels: str = "ab") -> Path:
    lines = [header, *(f"sentence number {i},{labels[i % len(labels)]}" for i in range(n))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def png(shade: int, size: int = 8) -> bytes:
    return parquet.png(np.full((size, size, 3), (shade % 256, 7, 90), np.uint8))


def grey_of_32_bits() -> dict[str, bytes]:
    """Pictures whose numbers do not say which one is white."""
    grey = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    whole, floats = io.BytesIO(), io.BytesIO()
    Image.fromarray((grey * 65_535).astype(np.int32)).save(whole, "TIFF")
    Image.fromarray(grey).save(floats, "TIFF")
    pfm = b"Pf\n8 8\n-1.0\n" + grey.tobytes()
    return {"int": whole.getvalue(), "float": floats.getvalue(), "PFM": pfm}


def image_folder(folder: Path, classes: str = "ab", n: int = 12, suffix: str = "png") -> Path:
    for i, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for j in range(n):
            picture = Image.new("RGB", (8, 8), (i * 100, j, 0))
            picture.save(folder / name / f"{j:02}.{suffix}")
    return folder


def hub_splits(test: list[int], validation: list[int], numbered: bool = True) -> DatasetDict:
    """Splits as on a hub, with the given class numbers in the held-out ones."""
    label = ClassLabel(names=["a", "b"]) if numbered else Value("int64")
    features = Features({"text": Value("string"), "label": label})
    splits = {"train": [0, 1] * 50, "validation": validation, "test": test}
    return DatasetDict(
        {
            name: Dataset.from_dict(
                {"text": [f"{name} {i}" for i in range(len(labels))], "label": labels}, features
            )
            for name, labels in splits.items()
        }
    )
