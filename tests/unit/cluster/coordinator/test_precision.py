"""The number format of a training is decided when it is accepted, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.domain.work import TrainWork
from cluster.scheduler.state import Node
from cluster.storage.home import write
from tacl.training.config import Precision
from tests.support.fakes import Scene


def scene_with(path: Path, precision: Precision) -> Scene:
    scene = Scene(path, Node(2, 1))
    settings = scene.home.founded().model_copy(update={"precision": precision})
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
    scene = scene_with(tmp_path, precision)
    scene.submit("digits", **asked)
    (work,) = scene.running()
    assert isinstance(work, TrainWork)
    assert work.submission.options.precision == expected
