"""Files of vectors from elsewhere: bit for bit where they fit, refused before they are dense."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tacl.backbone import Backbone
from tacl.errors import BadCheckpoint, BaseMismatch
from tacl.interchange.vector_file import is_vector, vector_of_file
from tacl.vectors.blocks import Block, Dense, EightBit, FourBit, LowRank
from tacl.vectors.vector import TaskVector
from tests.support import toy

NAME = "encoder.0.weight"  # [16, 6]


@pytest.fixture(scope="module")
def base() -> Backbone:
    return toy.backbone(torch.float32)


def vector(base: Backbone, **blocks: Block) -> TaskVector:
    torch.manual_seed(1)
    return TaskVector(
        "news", base.digest, "linearized", blocks or {NAME: Dense(torch.randn(16, 6))}
    )


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8", "int4", "low-rank"])
def test_it_arrives_bit_for_bit(base: Backbone, tmp_path: Path, kind: Any) -> None:
    one = vector(base)
    if kind == "low-rank":
        one = replace(one, blocks={NAME: LowRank.of(one.to_params()[NAME], 2)})
    else:
        one = one.stored(kind)
    one.save(tmp_path / "vector.safetensors")
    for path in (tmp_path, tmp_path / "vector.safetensors"):
        assert is_vector(path)
        assert vector_of_file("news", base, path).vector.digest == one.digest
    renamed = vector_of_file("reports", base, tmp_path).vector
    assert (renamed.task, renamed.regime) == ("reports", "linearized")
    assert torch.equal(renamed.to_params()[NAME], one.to_params()[NAME])


HUGE = (1 << 20, 1 << 20)  # four terabytes, if somebody makes it dense
THIN, FLAT = torch.zeros(1 << 20, 1), torch.zeros(1, 1 << 20)


@pytest.mark.parametrize(
    "block",
    [
        LowRank(THIN, FLAT, HUGE),
        LowRank(THIN, FLAT, (16, 6)),
        LowRank(torch.zeros(16, 2), torch.tensor(1.0), (16, 6)),
        LowRank(torch.zeros(16, 2), torch.zeros(3, 6), (16, 6)),
        Dense(torch.zeros(6, 16)),
        Dense(torch.full((16, 6), float("nan"))),
        Dense(torch.zeros(16, 6, dtype=torch.complex64)),
        EightBit(torch.zeros(16, 6, dtype=torch.int8), torch.zeros(1), (16, 6)),
        EightBit(torch.zeros(16, 6, dtype=torch.int64), torch.zeros(16), (16, 6)),
        EightBit(torch.ones(16, 6, dtype=torch.int8), torch.full((16,), float("inf")), (16, 6)),
        FourBit(torch.zeros(16, 64, dtype=torch.uint8), torch.zeros(16, 2), (16, 6)),
    ],
    ids=lambda block: f"{block.kind}",
)
def test_a_block_that_does_not_fit_is_refused(base: Backbone, tmp_path: Path, block: Block) -> None:
    vector(base, **{NAME: block}).save(tmp_path / "vector.safetensors")
    with pytest.raises(BadCheckpoint, match=r"encoder.0.weight"):
        vector_of_file("news", base, tmp_path)


def test_blocks_of_nothing_and_other_bases_are_refused(base: Backbone, tmp_path: Path) -> None:
    file = tmp_path / "vector.safetensors"
    vector(base, other=Dense(torch.zeros(2))).save(file)
    with pytest.raises(BadCheckpoint, match="changes 'other'"):
        vector_of_file("news", base, file)
    replace(vector(base), base="0" * 64).save(file)
    with pytest.raises(BaseMismatch, match="000000000000"):
        vector_of_file("news", base, file)


HEAD = {"format": 1, "task": "t", "base": "b", "regime": "linearized", "digest": "d"}


@pytest.mark.parametrize(
    "head",
    [
        "[]",
        "[" * 100_000,
        "{}",
        json.dumps({**HEAD, "blocks": []}),
        json.dumps({**HEAD, "blocks": {NAME: {"kind": [], "shape": [16, 6]}}}),
        json.dumps({**HEAD, "blocks": {NAME: {"kind": "dense", "shape": 6}}}),
        json.dumps({**HEAD, "blocks": {"absent": {"kind": "dense", "shape": []}}}),
        json.dumps({**HEAD, "blocks": {}}),
        json.dumps({key: HEAD[key] for key in HEAD if key != "digest"} | {"blocks": {}}),
    ],
    ids=range(9),
)
def test_a_head_of_nonsense_is_refused(base: Backbone, tmp_path: Path, head: str) -> None:
    file = tmp_path / "vector.safetensors"
    save_file({f"value:{NAME}": torch.zeros(16, 6)}, file, metadata={"tacl": head})
    with pytest.raises(BadCheckpoint, match="vector"):
        vector_of_file("news", base, file)


def test_other_files_are_no_vectors(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    assert not any(is_vector(path) for path in (tmp_path, *tmp_path.iterdir()))
    assert not is_vector(tmp_path / "absent.safetensors")
