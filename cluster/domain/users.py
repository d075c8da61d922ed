"""Users: their roles and tokens."""

from __future__ import annotations

from typing import Literal

from cluster.domain.base import Reply

Role = Literal["user", "submitter", "admin"]
ROLES: tuple[Role, ...] = ("user", "submitter", "admin")  # each may do what those before it may
DAYS = 36500  # that a token is valid at most: later ends are beyond any calendar


class Holder(Reply):
    """The user of a token, and their role."""

    user: str
    role: Role


class IssuedToken(Holder):
    """A new token, which is not stored; `token` is None in the coordinator's own answer, as it
    knows only the hash."""

    token: str | None = None
    expires: float | None = None


class TokenStatus(Holder):
    """`token`: the first characters of its sha256."""

    created: float
    token: str
    expires: float | None = None
    used: float | None = None  # within an hour before its last use


class Usage(Reply):
    """What a user has of the cluster, and the most that a user over HTTP who is no admin may have:
    runs that wait or run, minutes that runs took within a day, and bytes of their tasks (rows,
    samples, vectors, heads), of their model, and of rows that the next is made from."""

    user: str
    queued: int
    queued_most: int
    ran: int
    ran_most: int
    stored: int
    stored_most: int


class RevokedTokens(Reply):
    user: str
    revoked: int
