"""What was asked and answered, line by line, by whichever process asked; and what was when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

ANSWER = "answer"  # what ann waited for, asking again included


@dataclass(frozen=True)
class Told:
    """One answer. `status` 0: none came; `at`: seconds of the machine's own clock."""

    who: str
    what: str
    at: float
    seconds: float
    status: int
    error: str = ""
    wrong: str = ""  # what is wrong with it


class Lines:
    """Appends to a file, so that nothing is lost with a process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def tell(self, told: Told) -> None:
        self._file.write(json.dumps(asdict(told)) + "\n")


def read(paths: Iterable[Path]) -> list[Told]:
    return [Told(**json.loads(line)) for path in paths for line in path.read_text().splitlines()]


Phase = Literal["quiet", "attacked", "settling", "broken"]


@dataclass(frozen=True)
class Span:
    """Between two moments. "broken": from a kill until the server is whole again; "settling": what
    is between others, and counts for none."""

    phase: Phase
    begin: float
    end: float


def phase_of(told: Told, spans: Sequence[Span]) -> Phase:
    """That in which the question was asked; "broken" where any of its time was."""
    end = told.at + told.seconds
    touched = [span for span in spans if span.begin <= end and told.at <= span.end]
    if not touched or any(span.phase == "broken" for span in touched):
        return "broken"
    return touched[0].phase
