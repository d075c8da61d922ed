"""What tasks and users may be called: names that need no quotes in a recipe, a path or a shell; and
messages about names that do not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from cluster.domain.tasks import GENERIC
from tacl.errors import BadName

LONGEST = 64
SHOWN = 12  # existing names that a message lists
COMPARED = 100  # names compared for a close one: a long one takes a quarter of a millisecond
VERSION = re.compile(r"v[0-9]+|[0-9].*")
DIGEST = re.compile(r"[0-9A-Fa-f]{64}")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def checked_alias(name: str) -> str:
    """The name itself, if a recipe can say it: BadName for one that reads as a version."""
    if VERSION.fullmatch(name):
        raise BadName(f"{name!r} cannot be an alias: it reads as a version; use a word")
    return checked_name(name, "alias")


def checked_task(name: str, owner: str, private: bool) -> str:
    """The name itself. That of a private task must begin with its owner's, so that nobody else
    learns that it is taken: otherwise BadName, as where no name may begin with its owner's. BadName
    too for what reads as a digest, which paths and lists show beside names."""
    if DIGEST.fullmatch(name):
        raise BadName(f"{name} cannot be the name of a task: it reads as a digest; use a word")
    if private and not NAME.fullmatch(owner):
        raise BadName(
            f"{owner!r} cannot own a private task: its name begins with the owner's, which must be "
            "of letters, digits, '_', '.' and '-'. Say --owner NAME (Python: owner); only this "
            "user sees the task then. To see it yourself, work as NAME (LOGNAME; Python: user)"
        )
    if private and namespace(name) != owner:
        right = f"{owner}.{name.rpartition('.')[2]}"
        raise BadName(f"{name}: the name of a private task begins with yours: {right}")
    return checked_name(name)


def namespace(name: str) -> str:
    """The user to whom a name with a dot belongs: all before the last dot, so that it belongs to
    nobody else. Any other name is everybody's: ''."""
    return name.rpartition(".")[0]


def checked_name(name: str, what: str = "task") -> str:
    """The name itself. Raises BadName, which says what is allowed."""
    if not NAME.fullmatch(name) or len(name) > LONGEST or name == GENERIC:
        raise BadName(
            f"{name!r} cannot be the name of a {what}: use letters, digits, '_', '.' and '-', at "
            f"most {LONGEST} of them, the first one a letter, a digit or '_'; {GENERIC!r} is taken"
        )
    return name


def class_names(text: str | None) -> tuple[str, ...] | None:
    """The names in text such as `ham,spam`; None for None."""
    return None if text is None else tuple(one.strip() for one in text.split(","))


def no_such(what: str, name: str, names: Iterable[str]) -> str:
    """A message that a name does not exist. `names`: those that the requester may know of."""
    known = list(names)
    there = "are" if len(known) > 1 else "is"
    found = listed(known) or "none yet"
    return f"no {what} is named {name}{did_you_mean(name, known)}; there {there} {found}"


def listed(names: Sequence[str], most: int = SHOWN) -> str:
    more = f", ... ({len(names)})" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """` (did you mean flowers?)` if a name is close, else ''. Of many names, COMPARED are compared,
    those that start alike first."""
    likely = sorted(names, key=lambda one: one[:2] != name[:2])[:COMPARED]
    close = difflib.get_close_matches(name, likely, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
