"""Head statistics against loops over the rows; what adds up, and what a file must not hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from tacl.errors import BadRecipe, CorruptBlob, EmptySplit, LabelOutOfRange
from tacl.heads.expansion import IDENTITY, Expansion
from tacl.heads.statistics import (
    LEAST_ROWS,
    METADATA_KEY,
    HeadStatistics,
    measured,
    merged,
    symmetric,
    triangle,
)

D, C = 6, 3


def rows(seed: int, count: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """f, J tau and labels; every class has enough rows."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(C).repeat_interleave(LEAST_ROWS)
    more = torch.randint(C, (count,), generator=random)
    labels = torch.cat([labels, more])[torch.randperm(C * LEAST_ROWS + count, generator=random)]
    f = torch.randn(len(labels), D, generator=random) + 2 * labels[:, None]
    return f, 0.3 * torch.randn(len(labels), D, generator=random), labels


def of(seed: int, task: str = "a", expansion: Expansion = IDENTITY) -> HeadStatistics:
    return measured(task, "base", f"{task}@1", ("x", "y", "z"), *rows(seed), expansion)


def by_hand(z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Class sums and the scatter around class means, row by row."""
    sums, scatter = (
        torch.zeros(C, z.shape[1]).double(),
        torch.zeros(z.shape[1], z.shape[1]).double(),
    )
    for c in range(C):
        mine = [row.double() for row, label in zip(z, labels, strict=True) if label == c]
        mean = sum(mine, torch.zeros(z.shape[1]).double()) / len(mine)
        for row in mine:
            sums[c] += row
            scatter += torch.outer(row - mean, row - mean)
    return sums, scatter


@given(st.integers(0, 50), st.floats(-2, 3))
@settings(max_examples=25, deadline=None)
def test_a_coefficient_is_that_of_the_model(seed: int, coefficient: float) -> None:
    f, j, labels = rows(seed)
    found = of(seed)
    sums, scatter = by_hand(f.double() + coefficient * j.double(), labels)
    torch.testing.assert_close(found.sums_at(coefficient), sums, rtol=1e-5, atol=1e-4)
    whole = symmetric(found.scatter_at(coefficient), D)
    torch.testing.assert_close(whole, scatter, rtol=1e-4, atol=1e-3)
    assert found.counts_C.tolist() == [int((labels == c).sum()) for c in range(C)]


def test_an_expansion_is_measured_at_coefficient_one_and_refuses_others() -> None:
    f, j, labels = rows(3)
    expansion = Expansion(width=9, seed=4)
    found = of(3, expansion=expansion)
    random = torch.Generator().manual_seed(4)
    directions = torch.randn(D, 9, generator=random, dtype=torch.float64)
    z = f.double() + j.double()
    expanded = torch.stack([(row / row.norm() @ directions).clamp_min(0) for row in z])
    sums, scatter = by_hand(expanded, labels)
    torch.testing.assert_close(found.sums_at(1.0), sums, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(symmetric(found.scatter_at(1.0), 9), scatter, rtol=1e-4, atol=1e-4)
    with pytest.raises(BadRecipe, match="coefficient 1 alone"):
        found.sums_at(0.5)


@given(st.integers(0, 50), st.permutations(range(3)))
@settings(max_examples=20, deadline=None)
def test_parts_measured_apart_are_the_whole_in_any_order(seed: int, order: list[int]) -> None:
    places = [rows(seed + 100 * k) for k in range(3)]
    parts = [measured("a", "base", "a@1", ("x", "y", "z"), *place) for place in places]
    f, j, labels = (torch.cat(column) for column in zip(*places, strict=True))
    whole = measured("a", "base", "a@1", ("x", "y", "z"), f, j, labels)
    found = merged([parts[k] for k in order])
    assert found.digest == merged(parts).digest
    assert torch.equal(found.counts_C, whole.counts_C)
    torch.testing.assert_close(found.sums_KCD, whole.sums_KCD, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(found.scatter_KP, whole.scatter_KP, rtol=1e-4, atol=1e-3)


def test_only_parts_of_one_measurement_merge() -> None:
    with pytest.raises(ValueError, match="not of one measurement"):
        merged([of(0), of(0, task="b")])


def test_triangles_hold_symmetric_matrices() -> None:
    square = torch.randn(7, 7, generator=torch.Generator().manual_seed(0))
    both = square + square.T
    assert torch.equal(symmetric(triangle(both), 7), both)
    assert len(triangle(square)) == 28


def test_few_rows_of_a_class_are_refused() -> None:
    f, j, labels = rows(0)
    kept = (labels != 2) | (torch.cumsum(labels == 2, 0) < LEAST_ROWS)
    with pytest.raises(EmptySplit, match=r"\['z'\] have fewer than 5"):
        measured("a", "b", "v", ("x", "y", "z"), f[kept], j[kept], labels[kept])
    with pytest.raises(LabelOutOfRange):
        measured("a", "b", "v", ("x", "y"), f, j, labels)


def test_files_give_back_the_same_and_equal_files(tmp_path: Path) -> None:
    found = of(1, expansion=Expansion(8, 2))
    found.save(tmp_path / "one")
    loaded = HeadStatistics.load(tmp_path / "one")
    assert loaded.digest == found.digest
    assert (loaded.task, loaded.vector, loaded.classes) == ("a", "a@1", ("x", "y", "z"))
    assert loaded.expansion == Expansion(8, 2)
    loaded.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_digest_is_of_everything() -> None:
    first = of(1)
    others = [
        replace(first, task="b"),
        replace(first, base="c"),
        replace(first, vector="a@2"),
        replace(first, classes=("x", "z", "y")),
        replace(first, counts_C=first.counts_C + 1),
        replace(first, sums_KCD=first.sums_KCD * 2),
        replace(first, scatter_KP=first.scatter_KP * 2),
    ]
    assert len({one.digest for one in [first, *others]}) == 8


def written(path: Path, found: HeadStatistics, **changed: Tensor) -> Path:
    """A file that says of itself what `found` is, with other tensors in it and their digest."""
    found.save(path)
    with safe_open(path, framework="pt") as file:
        head = json.loads(file.metadata()[METADATA_KEY])
        tensors = {name: file.get_tensor(name) for name in file.keys()} | changed  # noqa: SIM118
    fields = {"counts": "counts_C", "sums": "sums_KCD", "scatter": "scatter_KP"}
    altered = replace(found, **{fields[name]: value for name, value in changed.items()})
    head["digest"] = altered.digest
    save_file(tensors, path, metadata={METADATA_KEY: json.dumps(head)})
    return path


def test_no_file_holds_what_no_statistics_can_be(tmp_path: Path) -> None:
    found = of(1)
    nan = found.scatter_KP.clone()
    nan[0, 3] = torch.nan
    for changed in (
        {"scatter": nan},
        {"scatter": found.scatter_KP[:, :-1].contiguous()},
        {"sums": found.sums_KCD[:1].contiguous()},
        {"sums": found.sums_KCD[:, :2].contiguous()},
        {"counts": found.counts_C[:2]},
        {"counts": torch.full_like(found.counts_C, LEAST_ROWS - 1)},
        {"counts": found.counts_C.double()},
    ):
        with pytest.raises(CorruptBlob, match="no whole head statistics"):
            HeadStatistics.load(written(tmp_path / "file", found, **changed))
    HeadStatistics.load(written(tmp_path / "file", found))  # as it was, it is read


def test_altered_and_cut_files_are_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    of(1).save(path)
    content = path.read_bytes()
    path.write_bytes(content[:-4] + bytes([1, 2, 3, 4]))
    with pytest.raises(CorruptBlob):
        HeadStatistics.load(path)
    path.write_bytes(content[:-40])
    with pytest.raises(CorruptBlob):
        HeadStatistics.load(path)
