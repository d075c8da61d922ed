"""Who may do what."""

from __future__ import annotations

from typing import Literal

Role = Literal["user", "submitter", "admin"]


ROLES: tuple[Role, ...] = ("user", "submitter", "admin")  # each may do what those before it may
