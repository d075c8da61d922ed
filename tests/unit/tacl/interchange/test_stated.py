"""Which classes files say that they are of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tacl.errors import BadCheckpoint
from tacl.heads.head import Head
from tacl.interchange.checkpoint import classifier_rows
from tacl.interchange.stated import Stated, stated
from tacl.interchange.vector_file import VECTOR
from tacl.interchange.writing import HEADS, write_heads


def head(*classes: str) -> Head:
    return Head(torch.zeros(len(classes), 4), 1.0, classes)


def test_what_a_file_says(tmp_path: Path) -> None:
    assert stated(tmp_path, None) is None
    write_heads({"trees": head("ash", "birch")}, tmp_path)
    own = Stated(HEADS, 2, ("ash", "birch"), is_own=True)
    assert stated(tmp_path, 7) == stated(tmp_path / VECTOR, None) == own
    write_heads({"trees": head("ash", "\x1b[2J")}, tmp_path)
    assert stated(tmp_path, None) is None
    write_heads({"trees": head("ash", "birch"), "signs": head("stop", "go")}, tmp_path)
    labels = {"id2label": {"0": "stop", "1": "go"}}
    (tmp_path / "config.json").write_text(json.dumps(labels))
    assert stated(tmp_path, 2) == Stated("its classifier", 2, ("stop", "go"))
    assert stated(tmp_path, 3) == Stated("its classifier", 3)
    for damaged in (b"torn", b""):
        (tmp_path / HEADS).write_bytes(damaged)
        (tmp_path / "config.json").write_bytes(damaged)
        assert stated(tmp_path, 2) == Stated("its classifier", 2)


def test_the_classifier_of_a_checkpoint() -> None:
    for name in ("classifier.weight", "bert.score.weight", "head.fc.weight", "fc.weight"):
        assert classifier_rows({name: torch.ones(5, 3), "fc.bias": torch.ones(5)}) == 5
    assert classifier_rows({"pooler.dense.weight": torch.ones(5, 3)}) is None


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (("birch", "ash", "oak"), None),
        (("ash", "oak"), "the rows are of 2 (ash, oak): give the rows of its own task, if"),
        (("a", "b", "c"), "of 3 classes (ash, birch, oak), the rows are of 3 (a, b, c)"),
    ],
)
def test_what_may_be_the_same_task_is_said(classes: tuple[str, ...], said: str | None) -> None:
    own = Stated(HEADS, 3, ("ash", "birch", "oak"), is_own=True)
    told = own.differing(classes)
    assert (told is None) if said is None else (said in str(told))


def test_what_cannot_be_the_same_task_is_refused_of_a_vector() -> None:
    names = ("ash", "birch", "oak")
    with pytest.raises(BadCheckpoint, match="rows are of 2"):
        Stated(HEADS, 3, names, is_own=True).differing(("ash", "pine"))
    assert Stated("its classifier", 3, names).differing(("ash", "pine"))
    assert Stated("its classifier", 3).differing(("x", "y", "z")) is None
