"""The demo's story over the real coordinator in this process: what is told, printed and left."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cluster.client.client import Client
from cluster.domain.outcomes import Finished, Outcome, Raised
from cluster.domain.work import Refreshed, RefreshWork
from cluster.errors import exit_code
from cluster.runtime import processors
from jobs.cli import main
from jobs.console import own_cluster
from jobs.console.own_cluster import ENDINGS
from jobs.demo import run, story, tables
from jobs.demo.story import ArrivedTask, Chapter, Plan, Subtraction, Users
from tacl import embedded
from tacl.errors import HomeInUse
from tests.support.fakes import FakeProcess, calm, new_home, refreshed
from tests.support.instant import PICTURES, Guess, InProcess, Instant

PLAN = Plan(tasks=("digits", "shapes"), train_rows=60, test_rows=20)


FIGURES = {"own_change": 0.03, "interference_before": 0.4, "interference_after": 0.1}


class Telling(Instant):
    """Every refresh brings a new vector, and says how much better it is."""

    def poll(self, handle: FakeProcess) -> Outcome | None:
        outcome = super().poll(handle)
        if isinstance(outcome, Finished) and isinstance(outcome.result, Refreshed):
            return Finished(outcome.result.model_copy(update={"metrics": FIGURES}))
        return outcome


class Refusing(Instant):
    """No refresh is worth it."""

    def poll(self, handle: FakeProcess) -> Outcome | None:
        if not isinstance(handle.work, RefreshWork):
            return super().poll(handle)
        blobs = self.home.blobs()
        return Finished(refreshed(handle.work, blobs, calm, accepted=False))


class Failing(Instant):
    """Every refresh fails."""

    def poll(self, handle: FakeProcess) -> Outcome | None:
        failed = isinstance(handle.work, RefreshWork)
        return Raised("no rows") if failed else super().poll(handle)


def client_of(folder: Path, kind: type[Instant] = Telling) -> Client:
    launcher = kind(home=new_home(folder, PICTURES))
    return Client(folder, InProcess(folder, launcher), Guess())


def told(tmp_path: Path, kind: type[Instant]) -> tuple[list[Chapter], Client]:
    client = client_of(tmp_path / "home", kind)
    return list(story.story(client, tmp_path / "data", PLAN, lambda status: None)), client


def test_the_story(tmp_path: Path) -> None:
    chapters, client = told(tmp_path, Telling)
    first, second, users, subtraction = chapters
    assert isinstance(first, ArrivedTask)
    assert (first.task, list(first.sum.per_task), first.refreshes) == ("digits", ["digits"], ())
    assert first.unrefreshed is None
    assert isinstance(second, ArrivedTask)
    assert list(second.sum.per_task) == ["digits", "shapes"]  # in the order of arrival
    assert second.unrefreshed is not None
    assert list(second.unrefreshed.per_task) == ["digits", "shapes"]
    assert [(one.vector, one.version, one.own_change) for one in second.refreshes] == [
        *(("digits@v1", 2, 0.03), ("shapes@v1", 2, 0.03))  # nothing was met in an instant
    ]

    assert isinstance(users, Users)
    assert users.models == {"alice": ("+digits",), "bob": ("+digits", "+shapes")}
    assert [(one.user, one.task) for one in users.answers] == [
        *(("alice", "digits"), ("bob", "digits"), ("bob", "shapes"))
    ]
    assert users.answers[2].shown in embedded.classes("shapes")
    assert users.answers[0].ranked == (("a", 0.75), ("b", 0.25))
    assert isinstance(subtraction, Subtraction)
    assert (subtraction.task, subtraction.sum) == ("shapes", second.sum)

    versions = {one.user: one.terms for one in client.users()}
    assert versions["everyone"] == ("+digits@v2", "+shapes@v2")
    assert versions["subtracted"] == ("+digits@v2", "-shapes@v2")


def test_every_sum_is_compared_with_what_it_were_without_any_refresh(tmp_path: Path) -> None:
    names = ("digits", "shapes", "signs")
    plan = Plan(names, train_rows=60, test_rows=20, options={"steps": 59})  # a budget of 708 rows
    client = client_of(tmp_path / "home")
    arrivals = story.story(client, tmp_path / "data", plan, lambda status: None)
    last = [one for one in arrivals if isinstance(one, ArrivedTask)][-1]
    told = [(one.vector, one.version) for one in last.refreshes]
    assert told == [("signs@v1", 2)]  # not those told before, nor what waits for its budget
    versions = {one.user: one.terms for one in client.users()}
    assert versions["everyone"] == ("+digits@v2", "+shapes@v2", "+signs@v2")
    assert versions["unrefreshed"] == ("+digits@v1", "+shapes@v1", "+signs@v1")


@pytest.mark.parametrize(
    ("kind", "reason"), [(Refusing, "its own inputs suffered"), (Failing, "no rows")]
)
def test_a_vector_that_stays_is_told_with_the_reason(
    tmp_path: Path, kind: type[Instant], reason: str
) -> None:
    chapters, _ = told(tmp_path, kind)
    second = chapters[1]
    assert isinstance(second, ArrivedTask)
    assert second.unrefreshed is None  # nothing changed
    assert [one.vector for one in second.refreshes] == ["digits@v1", "shapes@v1"]
    assert all(one.version is None and reason in one.reason for one in second.refreshes)


def lines(*shown: object) -> list[list[str]]:
    console = Console(width=100, record=True, quiet=False, file=open(os.devnull, "w"))  # noqa: SIM115
    for one in shown:
        console.print(one)
    return [line.split() for line in console.export_text().splitlines()]


def test_tables(tmp_path: Path) -> None:
    found, _ = told(tmp_path, Telling)
    shown = lines(*map(tables.chapter, found))
    assert ["digits", "50.0", "90.0", "88.0"] in shown  # alone: nothing to refresh
    assert ["digits", "50.0", "90.0", "88.0", "88.0"] in shown
    assert ["mean", "50.0", "90.0", "88.0", "88.0"] in shown
    assert ["digits@v1", "->", "v2", "25%", "3%"] in shown
    assert ["bob", "+digits", "+shapes"] in shown
    assert any(
        line[:1] == ["alice"] and line[-5:] == ["wrong", "a", "0.75,", "b", "0.25"]
        for line in shown
    )
    assert ["shapes", "50.0", "88.0", "88.0"] in shown
    last = lines(tables.summary([one for one in found if isinstance(one, ArrivedTask)]))
    assert ["shapes", "88.0", "88.0", "88.0", "97.0", "70.0"] in last
    assert last[-1][-3:] == ["80.0;", "unknown", "60.0."]  # a classifier on the base
    arrived = next(one for one in found if isinstance(one, ArrivedTask))
    bare = replace(arrived, sum=arrived.sum.model_copy(update={"frozen_known": None}))
    assert lines(tables.summary([bare]))[-1][0] == arrived.task
    stays = lines(tables.chapter(told(tmp_path / "other", Failing)[0][1]))
    assert any(line[:2] == ["digits@v1", "stays:"] and "rows" in line for line in stays)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`tacl demo` on two tasks without Ray; what happened to its cluster and home."""
    happened: list[str] = []

    @contextmanager
    def cluster(home: Path, start: Callable[[Client], None]) -> Iterator[Client]:
        assert start == run._start
        happened.append("up")
        try:
            yield client_of(home / "inside")
        finally:
            happened.append(f"down {home}")

    monkeypatch.setattr(run, "own_cluster", cluster)
    monkeypatch.setattr(run, "Plan", lambda: PLAN)
    return happened


def test_json_is_one_document(small: list[str]) -> None:
    result = CliRunner().invoke(main.app, ["demo", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [one["task"] for one in document["arrivals"]] == ["digits", "shapes"]
    assert document["arrivals"][1]["refreshes"][0]["version"] == 2
    assert document["users"][0]["models"]["alice"] == ["+digits"]
    assert document["subtractions"][0]["task"] == "shapes"
    assert document["seconds"] > 0
    assert document.keys() == {field.name for field in fields(run.ToldStory)}
    assert "digits has arrived" in result.stderr  # and a person sees how it goes
    home = small[1].removeprefix("down ")
    assert not Path(home).exists()


def test_keep(small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "kept"
    result = CliRunner().invoke(main.app, ["demo", "--keep", str(home)])
    assert result.exit_code == 0, result.output
    assert small == ["up", f"down {home}"]
    assert (home / "inside" / "registry.sqlite").is_file()
    assert str(home) in result.stdout.replace("\n", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    for same in (str(home), "~/kept"):  # which no shell puts in after a =
        again = CliRunner().invoke(main.app, ["demo", f"--keep={same}"])
        assert again.exit_code == exit_code(HomeInUse(""))
    assert len(small) == 2


def test_quick_is_the_same_story_of_two_tasks(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[dict[str, Any]] = []
    submit = Client.submit

    def noting(self: Client, name: str, data: Path, **options: Any) -> Any:
        submitted.append({"name": name, **options})
        return submit(self, name, data, **options)

    monkeypatch.setattr(Client, "submit", noting)
    result = CliRunner().invoke(main.app, ["demo", "--quick", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [one["task"] for one in document["arrivals"]] == ["signs", "land"]
    assert len(document["subtractions"]) == 1
    assert [(one["name"], one["steps"]) for one in submitted] == [("signs", 40), ("land", 40)]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_end_by_a_signal_is_tidy(
    small: list[str], monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    def interrupted(*_: object) -> Iterator[Chapter]:
        os.kill(os.getpid(), number)
        yield from ()

    monkeypatch.setattr(run, "story", interrupted)
    before = {one: signal.signal(one, signal.SIG_DFL) for one in ENDINGS}  # none is ignored
    try:
        result = CliRunner().invoke(main.app, ["demo"])
        assert [signal.getsignal(one) for one in ENDINGS] == [signal.SIG_DFL] * len(before)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert result.exit_code == code
    assert small[0] == "up"
    assert not Path(small[1].removeprefix("down ")).exists()


def test_a_terminal_that_closes_does_not_end_what_was_started_with_nohup(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hung_up(*_: object) -> Iterator[Chapter]:
        os.kill(os.getpid(), signal.SIGHUP)
        raise KeyboardInterrupt("reached")
        yield from ()

    monkeypatch.setattr(run, "story", hung_up)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt, match="reached"):
            run.run()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_its_cluster_takes_no_more_than_a_container_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    client = SimpleNamespace(
        up=lambda base, cpus, progress: asked.append(cpus),
        cluster=lambda: None,
        down=lambda: asked.append(0),
    )
    monkeypatch.setattr(own_cluster, "Client", lambda home: client)
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    monkeypatch.setattr(processors, "QUOTAS", ((tmp_path / "cpu.max",),))
    with own_cluster.own_cluster(tmp_path, run._start):
        assert asked == [1]
    assert asked == [1, 0]
