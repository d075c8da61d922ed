"""Task vectors in files: every kind of block comes back, and damage is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from tacl.errors import CorruptBlob
from tacl.vectors.blocks import (
    GROUP,
    KINDS,
    Block,
    Dense,
    EightBit,
    FourBit,
    LowRank,
    Storage,
    as_rows,
)
from tacl.vectors.vector import TaskVector


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def vector() -> TaskVector:
    """One block of every kind, a vector and a convolution among them."""
    blocks: dict[str, Block] = {
        "encoder.layer.0.weight": Dense(noise(4, 6)),
        "ln:odd name": Dense(noise(3).bfloat16()),
        "conv.weight": LowRank.of(noise(5, 2, 3, 3), rank=2),
        "big.weight": EightBit.of(noise(7, 9)),
        "big.bias": EightBit.of(noise(7)),
        "wide.weight": FourBit.of(noise(3, 5, 27)),
    }
    return TaskVector("digits", "b" * 64, "linearized", blocks)


def test_every_kind_of_block_survives_a_file(tmp_path: Path) -> None:
    one = vector()
    one.save(tmp_path / "v")
    two = TaskVector.load(tmp_path / "v")
    assert (two.task, two.base, two.regime) == (one.task, one.base, one.regime)
    assert {n: b.kind for n, b in two.blocks.items()} == {n: b.kind for n, b in one.blocks.items()}
    before, after = one.to_params(), two.to_params()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert after["conv.weight"].shape == (5, 2, 3, 3)
    assert {v.dtype for v in after.values()} == {torch.float32}
    assert two.digest == one.digest


def test_equal_vectors_give_equal_files(tmp_path: Path) -> None:
    one = vector()
    backwards = TaskVector(one.task, one.base, one.regime, dict(reversed(list(one.blocks.items()))))
    one.save(tmp_path / "a")
    backwards.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert one.digest == backwards.digest


def test_the_digest_is_over_everything_that_is_said() -> None:
    one = vector()
    block = {"w": Dense(torch.ones(2))}
    variants = [
        one,
        TaskVector("other", one.base, one.regime, one.blocks),
        TaskVector(one.task, "c" * 64, one.regime, one.blocks),
        TaskVector(one.task, one.base, "ordinary", one.blocks),
        TaskVector(one.task, one.base, one.regime, block),
        TaskVector(one.task, one.base, one.regime, {"w": EightBit.of(torch.ones(2))}),
        TaskVector(one.task, one.base, one.regime, {"v": Dense(torch.ones(2))}),
    ]
    assert len({v.digest for v in variants}) == len(variants)


def test_of_params_takes_a_copy_out_of_the_graph() -> None:
    tau = {"w": torch.ones(2, requires_grad=True)}
    blocks = TaskVector.of_params("t", "b", "linearized", tau).to_params()
    assert not blocks["w"].requires_grad
    assert torch.equal(blocks["w"], torch.ones(2))


@given(st.integers(1, 200))
def test_a_truncated_file_is_noticed(missing: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "v"
        vector().save(path)
        path.write_bytes(path.read_bytes()[:-missing])
        with pytest.raises(CorruptBlob, match="not a complete task vector"):
            TaskVector.load(path)


def test_one_altered_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "v"
    vector().save(path)
    for place in (-1, -40, -300):
        raw = bytearray(path.read_bytes())
        raw[place] ^= 1
        (tmp_path / "altered").write_bytes(raw)
        with pytest.raises(CorruptBlob, match="altered"):
            TaskVector.load(tmp_path / "altered")


def test_an_altered_head_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "v"
    vector().save(path)
    path.write_bytes(path.read_bytes().replace(b"digits", b"letter"))
    with pytest.raises(CorruptBlob, match="digest"):
        TaskVector.load(path)


@pytest.mark.parametrize("name", ["base", "task"])
@pytest.mark.parametrize("value", [5, None, {"a": 1}])
def test_names_that_are_no_texts_are_refused(tmp_path: Path, name: str, value: object) -> None:
    """With the digest of just that."""
    odd = replace(vector(), **{name: value})  # type: ignore[arg-type]
    odd.save(tmp_path / "v")
    with pytest.raises(CorruptBlob, match="not a complete task vector"):
        TaskVector.load(tmp_path / "v")


@pytest.mark.parametrize(
    "metadata",
    [None, {"tacl": "{}"}, {"tacl": "no json"}, {"tacl": json.dumps({"format": 99})}],
)
def test_foreign_files_are_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file({"x": torch.zeros(2)}, tmp_path / "v", metadata=metadata)
    with pytest.raises(CorruptBlob, match="not a complete task vector"):
        TaskVector.load(tmp_path / "v")
    (tmp_path / "text").write_text("not tensors at all")
    with pytest.raises(CorruptBlob):
        TaskVector.load(tmp_path / "text")


def test_an_unknown_regime_is_refused() -> None:
    with pytest.raises(ValueError, match="sideways"):
        TaskVector("t", "b", "sideways", {})  # pyright: ignore[reportArgumentType]


@given(st.integers(0, 1000))
def test_quantisation_errs_by_at_most_half_a_step_per_row(seed: int) -> None:
    value = noise(5, 3, 2, seed=seed) * torch.tensor([1e-6, 1.0, 50.0, 0.0, 3.0]).view(5, 1, 1)
    error = (EightBit.of(value).dense() - value).abs()
    half_step = value.abs().amax((1, 2), keepdim=True) / 127 / 2
    assert (error <= half_step * 1.001).all()


@given(st.integers(0, 1000), st.sampled_from([(5, 64), (3, 130), (4, 3, 7), (2, 1), (9,)]))
def test_four_bits_err_by_at_most_half_a_step_per_group(seed: int, shape: tuple[int, ...]) -> None:
    value = noise(*shape, seed=seed) * 10.0 ** torch.randint(-6, 3, (shape[0],)).view(
        -1, *[1] * (len(shape) - 1)
    )
    block = FourBit.of(value)
    errors, values = (as_rows(x).split(GROUP, 1) for x in ((block.dense() - value).abs(), value))
    for error_OE, value_OE in zip(errors, values, strict=True):
        assert (error_OE <= value_OE.abs().amax(1, keepdim=True) / 7 / 2 * 1.001).all()


def test_an_entry_takes_half_a_byte_in_four_bits() -> None:
    vector = TaskVector("t", "b", "linearized", {"w": FourBit.of(noise(768, 3072))})
    assert vector.nbytes / (768 * 3072) == 0.5 + 4 / GROUP


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_the_rows_of_the_whole(kind: str) -> None:
    value = noise(7, 3, 50)
    makes: dict[str, Callable[[torch.Tensor], Block]] = {
        "dense": Dense,
        "low_rank": lambda x: LowRank.of(x, 2),
        "eight_bit": EightBit.of,
        "four_bit": FourBit.of,
    }
    block = makes[kind](value)
    pieces = list(block.pieces(3))
    assert [len(piece) for piece in pieces] == [3, 3, 1]
    torch.testing.assert_close(torch.cat(pieces), as_rows(block.dense()))


def test_smaller_storage_is_smaller_and_keeps_biases() -> None:
    tau = {"w": noise(64, 128), "b": noise(64)}
    whole = TaskVector.of_params("digits", "b" * 64, "linearized", tau)
    sizes, errors = [], []
    for storage in get_args(Storage):
        small = whole.stored(storage)
        sizes.append(small.nbytes)
        errors.append((small.to_params()["w"] - tau["w"]).norm() / tau["w"].norm())
        assert torch.equal(small.to_params()["b"], tau["b"])
    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)
    assert errors[0] == 0
    assert errors[-1] < 0.12


def test_low_rank_is_exact_at_full_rank_and_best_below() -> None:
    value = noise(6, 4)
    torch.testing.assert_close(LowRank.of(value, 4).dense(), value)
    singular = torch.linalg.svdvals(value)
    error = (LowRank.of(value, 2).dense() - value).norm()
    torch.testing.assert_close(error, singular[2:].norm())
