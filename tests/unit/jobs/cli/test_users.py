"""tacl users, tacl serve: tokens that are printed once, and access that is off only on loopback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cluster.api.access import hashed
from cluster.client.client import Client
from cluster.domain.base import PAGE, RequestContext
from cluster.domain.operations import Served
from cluster.domain.users import Holder
from cluster.errors import exit_code
from cluster.storage.home import Home
from jobs.cli import app, main
from jobs.cli.verbs import users
from tacl.errors import BadConfig, BadName, NotAuthenticated, UnknownUser
from tests.support.fakes import asks, new_home, submission
from tests.support.instant import InProcess, Instant


@pytest.fixture
def coordinator(tmp_path: Path) -> InProcess:
    return InProcess(tmp_path / "home", Instant(home=new_home(tmp_path / "home")))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main.app, arguments)


@pytest.fixture(autouse=True)
def _client(tmp_path: Path, coordinator: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(tmp_path / "home", coordinator)
    monkeypatch.setattr(app, "client", lambda home: client)


def test_a_user_misspelt_is_told_of_who_has_a_token() -> None:
    run("users", "issue", "alice")
    assert "alcie has no token (did you mean alice?)" in run("users", "revoke", "alcie").stderr


def test_issue_list_revoke(coordinator: InProcess, tmp_path: Path) -> None:
    token = run("users", "issue", "alice", "--role", "submitter").stdout.strip()
    second = json.loads(run("users", "issue", "alice", "--json").stdout)["token"]
    assert len({token, second}) == 2
    assert coordinator.holder(hashed(token)) == Holder(user="alice", role="submitter")
    assert coordinator.holder(hashed(second)).role == "user"
    table = run("users", "list").stdout
    assert "alice" in table
    assert "submitter" in table
    assert token not in table
    assert "never" not in table  # a token ends
    assert "0 of 32" in table
    shown = hashed(second)[:8]
    third = run("users", "rotate", shown).stdout.strip()
    assert coordinator.holder(hashed(third)).role == "user"
    kept = b"".join(path.read_bytes() for path in (tmp_path / "home").glob("registry.sqlite*"))
    assert token.encode() not in kept  # nowhere
    assert "3 tokens of alice revoked" in run("users", "revoke", "alice").stdout
    for one in (token, second):
        with pytest.raises(NotAuthenticated):
            coordinator.holder(hashed(one))
    assert "no tokens" in run("users", "list").stdout


def test_a_list_of_one_user(coordinator: InProcess) -> None:
    for name in ("alice", "bob"):
        run("users", "issue", name)
    found = json.loads(run("users", "list", "bob", "--json").stdout)
    assert [one["user"] for part in found.values() for one in part] == ["bob", "bob"]
    both = run("users", "list", "bob", "--after", "alice")
    assert both.exit_code == exit_code(BadConfig("x"))


def test_a_list_goes_on_behind_its_last_line_and_misses_nobody(
    coordinator: InProcess, tmp_path: Path
) -> None:
    """Of the first fifty some hold no token: those whom tokens would tell of beyond are on the next
    page."""
    for number in range(10):
        task = submission(Home(tmp_path / "home"), f"task{number}", owner=f"a{number}")
        coordinator.submit(RequestContext(), task)
    for number in range(PAGE):
        coordinator.issue_token(asks(f"{number}"), f"b{number:02}", "user", hashed(f"{number}"))
    pages, after = [], ""
    while (page := json.loads(run("users", "list", "--after", after, "--json").stdout))["usage"]:
        pages.append(page)
        after = page["tokens"][-1]["user"]
    assert [len(page["usage"]) for page in pages] == [PAGE, 10]
    assert [one["user"] for page in pages for one in page["tokens"]] == [
        f"b{number:02}" for number in range(PAGE)
    ]
    end = run("users", "list", "--after", after).stdout
    assert end == f"no tokens after {after}\n"


def test_what_is_refused() -> None:
    assert run("users", "issue", "a b").exit_code == exit_code(BadName("x"))
    king = run("users", "issue", "ann", "--role", "king")
    assert king.exit_code == 2
    assert "submitter" in king.output
    assert run("users", "revoke", "nobody").exit_code == exit_code(UnknownUser("x"))
    for days in ("3000000", "inf"):  # which no calendar has, and no list could tell
        forever = run("users", "issue", "ann", "--days", days)
        assert forever.exit_code == exit_code(BadConfig("x"))
        assert "at most 36500 days" in forever.stderr
    assert "no tokens" in run("users", "list").stdout


def test_access_is_off_only_on_loopback() -> None:
    refused = run("serve", "--host", "0.0.0.0", "--no-access")
    assert refused.exit_code == exit_code(BadConfig("x"))


def test_an_interface_without_a_name_is_not_all_of_them() -> None:
    refused = run("serve", "--host", "")
    assert refused.exit_code == exit_code(BadConfig("x"))
    assert "no interface is named" in refused.stderr


def test_that_access_is_off_is_said() -> None:
    said = users._serving(Served(url="http://127.0.0.1:8300", open_to_all=True))
    assert "ACCESS CONTROL IS OFF" in said
    assert "ACCESS CONTROL IS OFF" not in users._serving(Served(url="x", open_to_all=False))
