"""What tasks and users may be called: names that need no quotes in a recipe, a path or a shell."""

from __future__ import annotations

import re

from cluster.messages import GENERIC
from tacl.errors import BadName

LONGEST = 64
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def checked_name(name: str, what: str = "task") -> str:
    """The name itself. BadName says what is allowed."""
    if not NAME.fullmatch(name) or len(name) > LONGEST or name == GENERIC:
        raise BadName(
            f"{name!r} cannot be the name of a {what}: use letters, digits, '_', '.' and '-', at "
            f"most {LONGEST} of them, the first one a letter, a digit or '_'; {GENERIC!r} is taken"
        )
    return name
