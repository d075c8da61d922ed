"""What is shown to whoever follows the work of a cluster."""

from __future__ import annotations

import json

import pytest

from cluster.errors import exit_code
from jobs import console
from tacl.errors import UnknownTask
from tests.support.command_line import Tacl, ok


def test_watch_shows_what_changes(tacl: Tacl, monkeypatch: pytest.MonkeyPatch) -> None:
    ok(tacl("submit", "faces", "--data", "data.csv", "--refresh", "never"))
    looks = iter(range(3))

    def sleep(seconds: float) -> None:
        if next(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("jobs.console.live.time.sleep", sleep)
    ended = tacl("watch")
    assert ended.exit_code == 130
    assert "measuring 1 pair of vector and task: done" in ended.stdout


def test_who_follows_a_task_is_shown_no_others(tacl: Tacl, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("--data", "data.csv", "--refresh", "never", "--again")
    ok(tacl("submit", "faces", *given))
    followed = tacl("submit", "digits", *given, "--watch")
    assert "digits" in ok(followed)
    ended = tacl("wait", "digits")
    for told in (followed, ended):
        assert not [word for word in ("faces", "measuring") if word in told.output]
    for verb in ("wait", "status"):
        assert "faces" in tacl(verb).output
        assert "faces" not in ok(tacl(verb, "digits"))
        assert len(json.loads(tacl(verb, "digits", "--json").stdout)["tasks"]) == 1
        assert tacl(verb, "digit").exit_code == exit_code(UnknownTask(""))
    views = list[list[str]]()
    monkeypatch.setattr(console.live, "watch", lambda look: views.append(names_in(look())))
    ok(tacl("watch"))
    ok(tacl("watch", "digits"))
    assert views == [["faces", "digits"], ["digits"]]
    assert tacl("watch", "digit").exit_code == exit_code(UnknownTask(""))


def names_in(found: console.tables.Overview) -> list[str]:
    return [one.name for one in found.tasks]
