"""What is shown to whoever follows the work of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from cluster.client.client import Client
from cluster.domain.reports import UserModel
from cluster.domain.status import ClusterStatus
from cluster.errors import exit_code
from cluster.reading import reports
from cluster.registry import compositions
from jobs import console
from jobs.cli.verbs.tasks import AGAIN
from jobs.console import tables
from tacl.errors import BadConfig, UnknownTask
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


def test_who_watches_asks_for_all_models_where_something_is_new(
    tacl: Tacl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum is composed meanwhile: of the status that is nothing new."""
    for task in ("faces", "signs"):
        ok(tacl("submit", task, "--data", "data.csv", "--refresh", "never", "--again"))
    ok(tacl("wait"))
    seen, asked, shown = list[str](), list[int](), list[list[str]]()
    status, users = Client.status, Client.users

    def noting_status(client: Client, *names: str) -> ClusterStatus:
        found = status(client, *names)
        seen.append(found.version)
        return found

    def noting_users(client: Client, after: str) -> Sequence[UserModel]:
        asked.append(len(seen) - 1)
        return users(client, after=after)

    def watch(look: Callable[[], console.tables.Overview]) -> None:
        for number in range(3 * AGAIN):
            if number == 2:
                ok(tacl("compose", "ann", "+faces"))
            if number == AGAIN + 5:
                ok(tacl("submit", "digits", "--data", "data.csv", "--again"))
            shown.append([one.user for one in look().users])

    monkeypatch.setattr(Client, "status", noting_status)
    monkeypatch.setattr(Client, "users", noting_users)
    monkeypatch.setattr(console.live, "watch", watch)
    ok(tacl("watch"))
    looks = zip(["", *seen], seen, strict=False)
    new = {number for number, (before, now) in enumerate(looks) if before != now}
    assert {0, AGAIN + 5} <= new <= {*asked}
    between = [later - before for before, later in pairwise(asked) if later not in new]
    assert between
    assert {*between} == {AGAIN}
    assert shown[1] == []
    assert shown[AGAIN] == shown[-1] == ["ann"]
    asked.clear()
    monkeypatch.setattr(console.live, "watch", lambda look: [look() for _ in range(2 * AGAIN)])
    ok(tacl("watch", "faces"))
    assert asked == []


def test_status_tells_of_a_page_of_users_and_who_comes_next(
    tacl: Tacl, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reports, compositions, tables):
        monkeypatch.setattr(module, "PAGE", 2)
    ok(tacl("submit", "faces", "--data", "data.csv"))
    ok(tacl("wait"))
    users = ["ann", "bob", "cid", "dan", "eve", "fay"]
    for user in users:
        ok(tacl("compose", user, "+faces"))
    after, asked, real = "", list[str](), Client.users

    def noting(client: Client, whose: str | None = None, after: str = "") -> Sequence[UserModel]:
        asked.append(after)
        return real(client, whose, after)

    monkeypatch.setattr(Client, "users", noting)
    for page in (["ann", "bob"], ["cid", "dan"], ["eve", "fay"]):
        found = json.loads(tacl("status", "--after", after, "--json").stdout)
        assert [one["user"] for one in found["users"]] == page
        said = f"tacl status --after {page[-1]}"
        assert (said in ok(tacl("status", "--after", after))) == (page[-1] != "fay")
        after = page[-1]
    after_each = ("", "bob"), ("bob", "dan"), ("dan", "fay")
    assert asked == [one for both in after_each for _ in range(2) for one in both]
    assert tacl("status", "faces", "--after", "bob").exit_code == exit_code(BadConfig(""))


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


def test_who_followed_a_training_is_told_where_to_hear_what_it_was_worth(tacl: Tacl) -> None:
    """It ends before heads are fitted."""
    followed = ok(tacl("submit", "faces", "--data", "data.csv", "--watch"))
    assert followed.splitlines()[-1] == (
        "faces: what a vector adds to the frozen base is known when its head is fitted: tacl wait"
    )
    waited = ok(tacl("wait"))
    assert {"fitted", "frozen"} <= set(waited.split())
    for flags in (("--share", "none"), ("--heads", "trained")):
        name = flags[-1]
        followed = ok(tacl("submit", name, "--data", "data.csv", "--again", "--watch", *flags))
        assert "tacl wait" not in followed


def names_in(found: console.tables.Overview) -> list[str]:
    return [one.name for one in found.tasks]
