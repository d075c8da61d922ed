"""The bench of the registry, on a home that is filled in a second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.coordinator.core import Coordinator
from cluster.registry import Registry
from jobs.benchmarks import registry as bench
from jobs.benchmarks import scale, stream
from jobs.benchmarks.fleet import IdleLauncher
from jobs.benchmarks.population import BEFORE, Size, made_up
from jobs.cli.main import app
from tacl.errors import BadConfig

SMALL = Size(tasks=12, versions=3, compositions=30, rows=40, private=2)


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def test_a_filled_home_is_one_that_the_coordinator_could_have_made(tmp_path: Path) -> None:
    population = made_up(tmp_path / "home", SMALL)
    coordinator = Coordinator(population.home.path, IdleLauncher())
    status = coordinator.status(bench.NOBODY)
    assert status.work == ()  # every pair is measured, nothing is owed
    assert status.trouble is None
    told, made = coordinator.composition(bench.NOBODY, "user7"), population.composition(7)
    assert [str(term) for term in told.terms] == [str(term) for term in made.terms]
    assert told.digest == made.digest
    assert told.terms[0].vector.head_blob != made.terms[0].vector.head_blob  # it is fitted
    assert len(coordinator._registry.fits()) == len(BEFORE) + 3
    assert {one.version for one in coordinator.vectors(bench.NOBODY, "task3")} == {1, 2, 3}
    assert coordinator.users(bench.NOBODY)[0].outdated == ()
    coordinator.tick()
    assert coordinator.status(bench.NOBODY).trouble is None
    coordinator.close()


def test_a_registry_that_holds_tasks_is_not_filled_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/one.sqlite"
    made_up(tmp_path / "first", SMALL, registry=url)
    with pytest.raises(BadConfig, match="holds 12 tasks already: give an empty one"):
        made_up(tmp_path / "second", SMALL, registry=url)
    registry = Registry(url)
    assert registry.task("task3").name == "task3"
    registry.close()


def test_every_call_of_a_home_is_held_against_its_goals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    larger = Size(tasks=16, versions=3, compositions=60, rows=16, told=6, private=2)
    monkeypatch.setattr(scale, "SIZES", {"1,000": SMALL, "10,000": larger})
    monkeypatch.setattr(stream, "AT", (4, 60))
    out = tmp_path / "scale.md"
    done = CliRunner().invoke(
        app, ["bench", "scale", "--tasks", "10,000", "--rounds", "20", "--json", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    rows = {one["what"]: one for one in json.loads(done.stdout)["rows"]}
    assert all(one["missed"] == (one["measured"] > one["goal"]) for one in rows.values())
    for what in (
        "user: compose, at 1,000 tasks, CPU ms at p99",
        "start at 10,000 tasks, CPU seconds",
        "a server's process opens the registry at 1,000 tasks, CPU seconds",
        "upkeep of an arrival at 4 tasks, trainings",
    ):
        assert rows[what]["measured"] > 0
    assert not rows["upkeep of an arrival at 60 tasks, trainings"]["missed"]
    assert "learner: lease, larger / smaller, of the medians" in rows
    text = out.read_text()
    assert "| user | compose |" in text
    for what in ("a champion moves", "a fit ends, the next begins", "status after it", "gc"):
        assert f"| {what} |" in text
    (few,) = (line for line in text.splitlines() if line.startswith("| 4 |"))
    assert "" not in (cell.strip() for cell in few.split("|")[1:-1])
    assert out.with_suffix(".png").stat().st_size > 1000


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.SIZES, "tenth", SMALL)
    out = tmp_path / "registry.md"
    command = ["bench", "registry", "--rounds", "20", "--json", "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    measured = {one["what"]: one for one in found["times"]}
    assert {row.name: row.goal for row in bench.ROWS.values()} == {
        what: one["goal"] for what, one in measured.items()
    }
    assert all(0 < one["median"] <= one["p99"] for one in measured.values())
    lines = out.read_text().splitlines()
    assert "- tenth: 12 tasks, 36 vector versions, 30 compositions, 480 samples" in lines
    assert [line for line in lines if line.startswith("| composition lookup | 5 | ")]
    refused = CliRunner().invoke(app, ["bench", "registry", "--size", "both", "--url", "sqlite://"])
    assert refused.exit_code == 43
