"""What arrivals cost, from the runs of a registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.benchmarks.arrivals import arrivals, bench_arrivals, markdown, picture
from tacl.errors import BadConfig
from tests.support.fakes import Scene


def test_what_is_accepted_after_a_vector_and_before_the_next_is_what_its_arrival_caused(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path / "home", tau=lambda task, on: 1.0 if task == on else 0.5)
    with pytest.raises(BadConfig, match="no task"):
        bench_arrivals(scene.home)
    for name in ("digits", "shapes", "signs"):
        scene.submit(name)
        scene.settle()
    registry = scene.coordinator._registry
    found = bench_arrivals(scene.home)
    assert [one.task for one in found] == ["digits", "shapes", "signs"]
    for kind in ("measure", "refresh"):
        runs = registry.runs(kinds=[kind])
        assert sum(one.runs[kind] for one in found) == len(runs) > 0
    trainings, (first, *_) = registry.runs(kinds=("train",)), registry.runs(kinds=("refresh",))
    again = arrivals([*trainings, first])
    assert [one.runs["refresh"] for one in again] == [0, 1, 0]  # digits', once shapes were there
    assert again[1].upkeep == pytest.approx((first.ended or 0) - (first.started or 0))
    assert again[0].training == pytest.approx(
        (trainings[0].ended or 0) - (trainings[0].started or 0)
    )
    picture(found, tmp_path / "cost.png")
    assert (tmp_path / "cost.png").stat().st_size > 1000
    assert "| 3 | signs |" in markdown(found, "cost.png")
