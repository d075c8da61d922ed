"""Embedded pictures as data sets on disk: Parquet files in the layout of Hugging Face datasets."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tacl.embedded.catalogue import classes, generate

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
TEST_SEED = 1 << 20  # added to the seed for the test split, so that it shares no row with train


def png(pixels: np.ndarray) -> bytes:
    """uint8 [H, W, 3] as the bytes of a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def features(names: Sequence[str] | None) -> dict[str, Any]:
    """The column types as in Hugging Face datasets; without names, there is no label column."""
    image = {"image": {"_type": "Image"}}
    return image | ({"label": {"names": list(names), "_type": "ClassLabel"}} if names else {})


def write_table(
    path: Path, images: np.ndarray, labels: np.ndarray | None, names: Sequence[str] | None
) -> None:
    """Writes a Parquet file of images uint8 [N, H, W, 3] and, if given, labels int64 [N]."""
    rows = [{"bytes": png(image), "path": f"{row:06d}.png"} for row, image in enumerate(images)]
    columns = {"image": pa.array(rows, IMAGE)}
    if labels is not None:
        columns["label"] = pa.array(labels, pa.int64())
    about = {"info": {"features": features(names)}}
    table = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps(about)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def write_parquet(task: str, folder: Path, train_rows: int, test_rows: int, seed: int) -> None:
    """Writes a task to `folder`/data/{train,test}-00000-of-00001.parquet, for load_dataset."""
    for split, rows, first in (("train", train_rows, seed), ("test", test_rows, seed + TEST_SEED)):
        images, labels = generate(task, rows, first)
        write_table(shard(folder, split), images, labels, classes(task))


def write_images(images: np.ndarray, folder: Path) -> None:
    """Writes unlabelled images, such as the generic shard, as a data set with one split."""
    write_table(shard(folder, "train"), images, None, None)


def shard(folder: Path, split: str) -> Path:
    return Path(folder) / "data" / f"{split}-00000-of-00001.parquet"
