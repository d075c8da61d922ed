"""What is measured of the verbs, without a cluster."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from docs import hooks
from jobs.benchmarks import verbs
from jobs.benchmarks.timing import Race
from tests.support.command_line import read


@pytest.mark.parametrize("words", [*verbs.READS, *verbs.COMPUTES], ids=" ".join)
def test_every_verb_is_one_of_the_command_line(words: verbs.Words) -> None:
    read([*words, "--home", "x"])


@pytest.mark.parametrize("words", verbs.LIFE, ids=" ".join)
def test_so_is_every_line_of_a_life(words: verbs.Words) -> None:
    read(["4321" if word == verbs.PORT else word for word in words])


def test_each_line_is_shown_once() -> None:
    known = [" ".join(words) for words in (*verbs.AWAY, *verbs.READS, *verbs.COMPUTES)]
    shown = [*known, *map(verbs.shown, verbs.LIFE)]
    assert len(set(shown)) == len(shown)
    assert {"evaluate ann", "evaluate ann (first)", "submit signs --data signs"} <= set(shown)


def test_every_verb_is_timed_or_says_why_not() -> None:
    """In exactly one of them. The benchmarks are one verb here."""
    timed = [list(words) for words in (*verbs.READS, *verbs.COMPUTES, *verbs.LIFE)]
    known = {name.removeprefix("tacl ") for name, _ in hooks.verbs()}
    known = {"bench" if name.startswith("bench ") else name for name in known}
    found = {
        name
        for name in known
        if any(words[: name.count(" ") + 1] == name.split() for words in timed)
    }
    assert found.isdisjoint(verbs.NOT_TIMED)
    assert found | verbs.NOT_TIMED.keys() == known
    assert all(verbs.NOT_TIMED.values())


def test_where_something_is_computed_nothing_is_missed() -> None:
    slow, quick, computing, begins = "status", "vectors", "query ann sign.png", "up"
    seconds = {slow: [1.1, 1.3, 9.0], quick: [0.5] * 3, computing: [3.0] * 3, begins: [9.0] * 3}
    found = verbs.times(Race(seconds))
    assert [one.missed for one in found] == [True, False, False, False]
    assert found[0].seconds == 1.3
    lines = verbs.markdown(verbs.VerbTimes(3, "a processor", found)).splitlines()
    assert lines[-1].startswith("Not timed: `watch`, ends with Ctrl-C; ")
    assert lines[-6:-2] == [
        "| `tacl status` | 1.30 | 3.95 | 1, missed |",
        "| `tacl vectors` | 0.50 | 0.00 | 1 |",
        "| `tacl query ann sign.png` | 3.00 | 0.00 | computes |",
        "| `tacl up` | 9.00 | 0.00 | computes |",
    ]


def test_a_verb_that_fails_has_no_time(tmp_path: Path) -> None:
    verbs._typed(("--version",), tmp_path, "")()
    with pytest.raises(RuntimeError, match="no home of TACL yet"):
        verbs._typed(("status", "--home", str(tmp_path)), tmp_path, "")()


def test_each_round_has_a_folder_and_a_home_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def done(command: list[str], **how: object) -> CompletedProcess[str]:
        asked.append(command[3:])
        return CompletedProcess(command, 0)

    monkeypatch.setattr(verbs.subprocess, "run", done)
    line = ("export-vector", verbs.TOKEN, "--out", verbs.NEW, "--home", verbs.HOME)
    run = verbs._typed(line, tmp_path, "1a2b")
    run()
    run()
    told = ["export-vector", "1a2b", "--out"]
    assert asked == [
        [*told, f"export-vector-{turn}", "--home", f"HOME-{turn}"] for turn in range(2)
    ]
