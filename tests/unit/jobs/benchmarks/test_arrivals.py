"""What arrivals cost, from the runs of a registry."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.errors import exit_code
from jobs.benchmarks.arrivals import ArrivalTimes, arrivals, bench_arrivals, markdown, picture
from jobs.cli.main import app
from tacl.errors import BadConfig, StorageUnavailable
from tests.support.fakes import Scene


def test_what_is_accepted_after_a_vector_and_before_the_next_is_what_its_arrival_caused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    words = ["bench", "arrivals", "--home", str(scene.home.path)]
    told = CliRunner().invoke(app, words)
    assert "| 3 | signs |" in told.stdout
    assert "![" not in told.stdout  # of no picture
    monkeypatch.setenv("HOME", str(tmp_path))
    CliRunner().invoke(app, [*words, "--out=~/kept.md"])
    assert "![Seconds of each arrival](kept.png)" in (tmp_path / "kept.md").read_text()


def test_a_full_disk_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever command writes: its error names no file."""
    monkeypatch.setattr("jobs.benchmarks.arrivals.picture", lambda found, path: None)
    monkeypatch.setattr("jobs.benchmarks.arrivals.bench_arrivals", lambda home: [])
    monkeypatch.setattr("jobs.benchmarks.arrivals.markdown", lambda *_: "some text")
    words = ["bench", "arrivals", "--home", str(tmp_path), "--out", "/dev/full"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == exit_code(StorageUnavailable()), done.exception
    assert done.stderr == (
        "error: there is no room for what is written (No space left on device); free some, then "
        "repeat what you asked\n"
    )


def test_files_that_cannot_be_written_are_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is there and may not be changed, the plot beside the tables too."""
    kept, tables = tmp_path / "kept.md", tmp_path / "tables.md"
    for one in (kept, tables.with_suffix(".png")):
        one.touch()
    within = tmp_path / "no folder" / "kept.md"
    within.parent.touch()
    may_be_written = (tmp_path, within.parent)
    monkeypatch.setattr("os.access", lambda place, mode: mode == os.R_OK or place in may_be_written)
    for out, said in (
        (kept, "no file can be written at"),
        (tables, "no file can be written at"),
        (within, "no file can be written at"),
        (tmp_path / "new.png", "the plot is written at"),
    ):
        words = ["bench", "arrivals", "--home", str(tmp_path), "--out", str(out)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2, result.output
        assert said in " ".join(result.output.replace("│", "").split())


def test_what_an_arrival_costs_is_told_with_the_heads_and_without() -> None:
    seconds = {"measure": 1.0, "refresh": 2.0, "fit": 4.0}
    found = [ArrivalTimes(f"task{number}", 10.0, seconds) for number in range(4)]
    assert [(one.upkeep, one.all) for one in found] == [(3.0, 7.0)] * 4
    text = markdown(found, "cost.png")
    assert "Of all 4: 0.30, all 0.70; of the last 4 at some sizes: 0.30, all 0.70 at 4." in text
    head, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    assert head.endswith("| upkeep / training | all / training |")
    assert all(row.endswith("| 0.30 | 0.70 |") for row in rows)
