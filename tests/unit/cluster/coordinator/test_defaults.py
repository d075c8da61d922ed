"""What depends on the home, number format and lambda, is decided when a training is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.domain.work import TrainWork
from cluster.scheduler.state import Node
from cluster.storage.home import write
from tacl.spec import HeadKind
from tacl.training.config import Precision
from tests.support.fakes import Scene


def scene_with(path: Path, **settings_of_home: object) -> Scene:
    scene = Scene(path, Node(2, 1))
    settings = scene.home.founded().model_copy(update=settings_of_home)
    write(scene.home.settings_file, settings)
    scene.restart()
    return scene


@pytest.mark.parametrize(
    ("precision", "asked", "expected"),
    [
        ("bfloat16", {}, "bfloat16"),
        ("float32", {}, "float32"),
        ("bfloat16", {"precision": "float32"}, "float32"),
        ("float32", {"precision": "bfloat16"}, "bfloat16"),
        ("bfloat16", {"gpus_per_worker": 1}, "float32"),  # what a CPU is faster with
    ],
)
def test_it_is_what_is_asked_for_or_what_the_home_is_faster_with(
    tmp_path: Path, precision: Precision, asked: dict[str, Any], expected: str
) -> None:
    scene = scene_with(tmp_path, precision=precision)
    scene.submit("digits", **asked)
    (work,) = scene.running()
    assert isinstance(work, TrainWork)
    assert work.submission.options.precision == expected


@pytest.mark.parametrize(
    ("head_kind", "asked", "expected"),
    [
        ("text", {}, 3.0),
        ("prototype", {}, 1.0),
        ("prototype", {"strength": 3.0}, 3.0),
        ("text", {"strength": 0.0}, 0.0),
    ],
)
def test_lambda_is_what_is_asked_for_or_what_suits_the_heads_of_the_base(
    tmp_path: Path, head_kind: HeadKind, asked: dict[str, Any], expected: float
) -> None:
    base = Scene(tmp_path / "base", Node(2, 1)).home.founded().base
    scene = scene_with(tmp_path / "home", base=base.model_copy(update={"head_kind": head_kind}))
    scene.submit("digits", **asked)
    (work,) = scene.running()
    assert isinstance(work, TrainWork)
    assert work.submission.options.strength == expected
