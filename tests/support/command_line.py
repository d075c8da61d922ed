"""The command line over the real coordinator in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from typer.testing import Result

Tacl = Callable[..., Result]


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(result: Result) -> Any:
    return json.loads(ok(result))
