"""Tokens over HTTP: who may issue, replace and revoke whose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cluster.api.access import hashed
from cluster.client.client import Client
from cluster.client.http import Server
from cluster.domain.base import RequestContext
from tacl.errors import BadConfig, NotAllowed, NotAuthenticated, UnknownUser
from tests.support.api_scene import Local, scene


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[TestClient, Local]]:
    app, service = scene(tmp_path / "home", ann="submitter", eve="user", root="admin")
    with TestClient(app, raise_server_exceptions=False) as http:
        yield http, service


@pytest.fixture
def by(world: tuple[TestClient, Local]) -> Any:
    """The client of whoever holds a token."""
    return lambda token: Client(server=Server("http://test", token, world[0]))


def test_everybody_hears_who_they_are(world) -> None:
    for name, role in (("ann", "submitter"), ("eve", "user"), ("root", "admin")):
        found = world[0].get("/v1/me", headers={"authorization": f"Bearer token of {name}"})
        assert found.json() == {"user": name, "role": role}
    assert world[0].get("/v1/me").status_code == 401


def test_an_admin_issues_and_revokes(by) -> None:
    root = by("token of root")
    token = root.issue_token("bob", "submitter", days=1.0).token
    assert [one.role for one in by(token).tokens()] == ["submitter"]
    assert {one.user for one in root.tokens()} == {"ann", "bob", "eve", "root"}
    assert root.revoke_tokens("bob").revoked == 1
    with pytest.raises(NotAuthenticated):
        by(token).tokens()


def test_pages_of_usage_have_all_who_hold_tokens(by, monkeypatch) -> None:
    """So a list of both is read by pages of usage."""
    for module in ("tasks", "tokens"):
        monkeypatch.setattr(f"cluster.registry.{module}.PAGE", 2)
    root = by("token of root")
    pages = {after: [one.user for one in root.usage(after=after)] for after in ("", "eve")}
    assert pages == {"": ["ann", "eve"], "eve": ["root"]}
    for after, users in pages.items():
        assert [one.user for one in root.tokens(after=after)] == users


def test_nobody_else_issues_or_revokes(by) -> None:
    ann = by("token of ann")
    with pytest.raises(NotAllowed):
        ann.issue_token("ann", "admin")
    with pytest.raises(UnknownUser):
        ann.revoke_tokens("root")
    assert [one.user for one in ann.tokens()] == ["ann"]
    assert ann.revoke_tokens("ann").revoked == 1  # as after a theft


def test_a_token_is_replaced_by_whoever_holds_it(by) -> None:
    eve = by("token of eve")
    (old,) = eve.tokens()
    new = eve.rotate_token(old.token)
    assert (new.user, new.role) == ("eve", "user")
    assert len(by(new.token).tokens()) == 2


def test_nobody_takes_a_role_by_replacing(by, world) -> None:
    """Neither somebody else's nor a higher one of one's own."""
    eve, root = by("token of eve"), by("token of root")
    mine = hashed("eve as admin")
    world[1].coordinator.issue_token(RequestContext(), "eve", "admin", mine)
    with pytest.raises(NotAllowed):
        eve.rotate_token(mine[:8])
    (hers,) = by("token of ann").tokens()
    for unknown in (hers.token, "0" * 8):
        with pytest.raises(BadConfig, match="none of your tokens"):
            eve.rotate_token(unknown)
    assert root.rotate_token(hers.token).user == "ann"


def test_what_is_no_sha256_is_refused(world) -> None:
    sent = {"authorization": "Bearer token of root"}
    for body in ({"token_hash": "secret"}, {"token_hash": "a" * 64, "days": 0}, {}):
        assert world[0].post("/v1/users/bob/tokens", json=body, headers=sent).status_code == 422
