"""Whose a token is, while it is valid."""

from __future__ import annotations

from cluster.domain.users import Holder, TokenStatus
from cluster.registry import TokenRecord
from tacl.errors import NotAuthenticated

OVERLAP = 3600.0  # seconds that a token lives beside its successor, and between records of use
SHOWN = 8  # first characters of a token's hash


def ended(token: TokenRecord, now: float) -> bool:
    return token.expires is not None and token.expires <= now


def is_noted(token: TokenRecord, now: float) -> bool:
    """Whether a use now need not be recorded: the registry has one from within OVERLAP."""
    return now - (token.used or 0) <= OVERLAP


def held_by(token: TokenRecord | None, now: float) -> Holder | NotAuthenticated:
    if token is None:
        return NotAuthenticated("this token is not known; ask for one: `tacl users issue NAME`")
    if ended(token, now):
        return NotAuthenticated("this token has ended; ask for one: `tacl users issue NAME`")
    return Holder(user=token.user, role=token.role)


def listed(token: TokenRecord) -> TokenStatus:
    facts = dict(vars(token))
    return TokenStatus(token=facts.pop("hash")[:SHOWN], **facts)
