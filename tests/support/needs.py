"""What some tests need in addition to our environment: a server, a browser, a client. They are
skipped if it is absent.

On a bare machine `make test` reports how many tests were skipped, and why. If the variable
TACL_REQUIRE names what is needed (`postgres,browser`, as in `.ci/run`), absence is a failure.
"""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

T = TypeVar("T")


def need(what: str, found: T | None, advice: str) -> T:
    """`found` itself. If it is None, skips the test, or fails it if `what` is required."""
    if found is not None:
        return found
    absent = f"there is no {what} here: {advice}"
    if what in os.environ.get("TACL_REQUIRE", "").split(","):
        pytest.fail(absent, pytrace=False)
    pytest.skip(absent)
