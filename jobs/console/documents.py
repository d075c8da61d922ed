"""Answers as JSON on stdout."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_jsonable_python


def print_json(found: Any) -> None:
    """One document of models, alone or inside lists, dicts and dataclasses."""
    print(json.dumps(to_jsonable_python(found), indent=2))
