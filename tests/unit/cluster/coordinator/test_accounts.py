"""Tokens end, are replaced and are revoked; when each was last used is known."""

from __future__ import annotations

import pytest

from cluster.coordinator import accounts
from cluster.coordinator.accounts import DAY, replaced
from cluster.domain.base import RequestContext
from cluster.domain.users import Holder
from cluster.reading.tokens import OVERLAP, ended, held_by
from cluster.registry.tokens import TokenRecord
from tacl.errors import BadConfig, NameTaken, NotAuthenticated, StorageUnavailable, TooMany
from tests.support.fakes import ADMIN, Scene, asks

OLD, NEW = "a" * 64, "b" * 64


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1e9
        monkeypatch.setattr(accounts.time, "time", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_token_is_somebodys_until_it_ends() -> None:
    token = TokenRecord(OLD, "ann", "user", created=0.0, expires=10.0)
    assert held_by(token, 9.9) == Holder(user="ann", role="user")
    assert ended(token, 10.0)
    for one in (held_by(token, 10.0), held_by(None, 0.0)):
        assert isinstance(one, NotAuthenticated)
    assert not ended(TokenRecord(OLD, "ann", "user", 0.0), 1e12)


def test_a_successor_lives_as_long() -> None:
    assert replaced(TokenRecord(OLD, "ann", "admin", 5.0, 25.0), NEW, 100.0) == TokenRecord(
        NEW, "ann", "admin", 100.0, 120.0
    )
    assert replaced(TokenRecord(OLD, "ann", "user", 5.0), NEW, 100.0).expires is None


def test_it_ends(scene: Scene, clock: Clock) -> None:
    call = scene.coordinator
    assert call.issue_token(asks("i"), "ann", "user", OLD, 2.0).expires == clock.now + 2 * DAY
    assert call.issue_token(asks("i"), "ann", "user", OLD, 2.0).expires == clock.now + 2 * DAY
    clock.now += 2 * DAY - 1
    assert call.holder(OLD).user == "ann"
    clock.now += 1
    with pytest.raises(NotAuthenticated, match="has ended"):
        call.holder(OLD)
    with pytest.raises(BadConfig, match="0 tokens"):  # it does not come to life again
        call.rotate_token(asks("r"), OLD, NEW)
    with pytest.raises(NameTaken, match="known already"):
        call.issue_token(asks("again"), "bob", "admin", OLD)


@pytest.mark.parametrize("days", [0.0, -1.0, 36501.0, float("inf"), float("nan")])
def test_it_ends_on_a_day_of_the_calendar(days: float, scene: Scene) -> None:
    with pytest.raises(BadConfig, match="at most 36500 days"):
        scene.coordinator.issue_token(asks("i"), "ann", "user", OLD, days)


def test_rotated_both_hold_for_an_hour(scene: Scene, clock: Clock) -> None:
    call = scene.coordinator
    call.issue_token(asks("i"), "ann", "submitter", OLD, 2.0)
    clock.now += DAY
    for _ in range(2):  # the answer was lost, and it is asked again
        new = call.rotate_token(asks("r"), OLD[:8], NEW)
    assert (new.user, new.role, new.expires) == ("ann", "submitter", clock.now + 2 * DAY)
    clock.now += OVERLAP - 1
    assert call.holder(OLD) == call.holder(NEW)
    clock.now += 1
    with pytest.raises(NotAuthenticated):
        call.holder(OLD)
    assert call.holder(NEW).role == "submitter"
    for few in ("", "b", "b" * 7):
        with pytest.raises(BadConfig):
            call.rotate_token(asks(f"few {few}"), few, "c" * 64)


@pytest.mark.parametrize("days", [None, 2.0])
def test_what_is_rotated_once_more_beside_its_successor_has_one_of_the_same_life(
    scene: Scene, clock: Clock, days: float | None
) -> None:
    """As by another machine that has the same token."""
    call, life = scene.coordinator, days and days * DAY
    call.issue_token(asks("i"), "ann", "user", OLD, days)
    for number, token in enumerate([OLD, OLD, NEW, OLD]):
        clock.now += 60
        successor = NEW if number == 0 else f"{number}" * 64
        new = call.rotate_token(asks(f"r{number}"), token[:8], successor)
        assert new.expires == (life and clock.now + life)


def test_rotation_makes_no_tokens_without_end(
    scene: Scene, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old ones live on for an hour, and are forgotten after it."""
    monkeypatch.setattr(accounts, "TOKENS", 3)
    call, tokens = scene.coordinator, [f"{digit}" * 64 for digit in "0123456789abcdef"]
    call.issue_token(asks("i"), "ann", "user", tokens[0])
    person = RequestContext(user="ann", limited=True)

    def rotate(number: int, who: RequestContext) -> None:
        context = who.model_copy(update={"request_id": f"rotate {number}"})
        call.rotate_token(context, tokens[number][:8], tokens[number + 1])

    rotate(0, person)
    rotate(1, person)
    with pytest.raises(TooMany, match="ann has 3 tokens"):
        rotate(2, person)
    rotate(2, ADMIN)
    clock.now += OVERLAP
    rotate(3, person)
    assert len(call.tokens("ann")) == 2


def test_nobody_replaces_anothers_token_that_begins_as_one_of_theirs_did(
    scene: Scene, clock: Clock
) -> None:
    """Whoever replaces a token chooses how the new one's hash begins: also as an admin's."""
    call, eve = scene.coordinator, RequestContext(user="eve", limited=True)
    call.issue_token(asks("root"), "root", "admin", "a" * 64)
    call.issue_token(asks("eve"), "eve", "user", "e" * 64, 1.0)
    call.rotate_token(eve, "e" * 8, "a" * 8 + "e" * 56)
    clock.now += DAY  # that has ended, and is listed as hers until she replaces another one
    with pytest.raises(BadConfig, match="0 of your tokens"):
        call.rotate_token(eve.model_copy(update={"request_id": "root's"}), "a" * 8, "c" * 64)
    assert [one.user for one in call.tokens() if one.role == "admin"] == ["root"]


def test_who_replaces_a_token_is_not_kept_from_it_by_anothers_that_begins_so(scene: Scene) -> None:
    call, ann = scene.coordinator, RequestContext(user="ann", limited=True)
    for number, user in enumerate(("ann", "eve")):
        call.issue_token(asks(user), user, "user", "a" * 8 + f"{number}" * 56)
    assert call.rotate_token(ann, "a" * 8, "c" * 64).user == "ann"
    with pytest.raises(BadConfig, match="2 tokens begin with"):
        call.rotate_token(asks("whose"), "a" * 8, "d" * 64)


def test_its_last_use_is_noted_once_an_hour(
    scene: Scene, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = scene.coordinator
    call.issue_token(asks("i"), "ann", "user", OLD)
    assert call.tokens()[0].used is None
    first = clock.now
    for after in (0, 10, OVERLAP):
        clock.now = first + after
        call.holder(OLD)
    assert call.tokens()[0].used == first
    clock.now += 1
    call.holder(OLD)
    assert call.tokens()[0].used == clock.now

    def full(*_: object) -> None:
        raise StorageUnavailable("the disk is full")

    monkeypatch.setattr(call._registry, "used", full)
    clock.now += 2 * OVERLAP
    assert call.holder(OLD).user == "ann"  # who asks is known all the same
    assert "disk is full" in (call.status(ADMIN).trouble or "")


def test_a_repeated_revocation_is_answered_the_same(scene: Scene) -> None:
    call = scene.coordinator
    call.issue_token(asks("i"), "ann", "user", OLD)
    assert [call.revoke_tokens(asks("v"), "ann").revoked for _ in "ab"] == [1, 1]
    assert call.tokens() == []
