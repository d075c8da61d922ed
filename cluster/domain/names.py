"""What tasks and users may be called: names that need no quotes in a recipe, a path or a shell; and
what is said of a name that is not there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from cluster.domain.tasks import GENERIC
from tacl.errors import BadName

LONGEST = 64
SHOWN = 12  # of the names that there are
COMPARED = 100  # of them: each costs a quarter of a millisecond where it is long
VERSION = re.compile(r"v[0-9]+|[0-9].*")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def checked_alias(name: str) -> str:
    """The name of an alias, as a recipe can say it: any name that does not read as a version."""
    if VERSION.fullmatch(name):
        raise BadName(f"{name!r} cannot be an alias: it reads as a version; use a word")
    return checked_name(name, "alias")


def checked_task(name: str, owner: str, private: bool) -> str:
    """The name itself. A private task's belongs to its owner, so that nobody else is told that it
    is taken: BadName for another."""
    if private and namespace(name) != owner:
        right = f"{owner}.{name.rpartition('.')[2]}"
        raise BadName(f"{name}: the name of a private task begins with yours: {right}")
    return checked_name(name)


def namespace(name: str) -> str:
    """The user to whom a name with a dot belongs: all before the last one, so that it is nobody
    else's too. Any other name is everybody's, and has none."""
    return name.rpartition(".")[0]


def checked_name(name: str, what: str = "task") -> str:
    """The name itself. BadName says what is allowed."""
    if not NAME.fullmatch(name) or len(name) > LONGEST or name == GENERIC:
        raise BadName(
            f"{name!r} cannot be the name of a {what}: use letters, digits, '_', '.' and '-', at "
            f"most {LONGEST} of them, the first one a letter, a digit or '_'; {GENERIC!r} is taken"
        )
    return name


def class_names(text: str | None) -> tuple[str, ...] | None:
    """Of `ham,spam`."""
    return None if text is None else tuple(one.strip() for one in text.split(","))


def no_such(what: str, name: str, names: Iterable[str]) -> str:
    """`names` are those that the asker may know of."""
    known = list(names)
    there = "are" if len(known) > 1 else "is"
    found = listed(known) or "none yet"
    return f"no {what} is named {name}{meant(name, known)}; there {there} {found}"


def listed(names: Sequence[str], most: int = SHOWN) -> str:
    more = f", ... ({len(names)})" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def meant(name: str, names: Iterable[str]) -> str:
    """` (did you mean flowers?)`, where a name is close; of many, one of those that begin alike."""
    likely = sorted(names, key=lambda one: one[:2] != name[:2])[:COMPARED]
    close = difflib.get_close_matches(name, likely, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
