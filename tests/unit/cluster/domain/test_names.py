"""What is said of a name that is not there."""

from __future__ import annotations

from cluster.domain.names import meant, no_such


def test_a_close_name_is_suggested_and_the_names_are_listed() -> None:
    assert no_such("task", "flwers", ["faces", "flowers"]) == (
        "no task is named flwers (did you mean flowers?); there is faces, flowers"
    )
    assert no_such("task", "x", []) == "no task is named x; there is none yet"
    assert meant("zebra", ["faces"]) == ""


def test_of_many_names_some_are_listed() -> None:
    told = no_such("task", "x", [f"n{i}" for i in range(300)])
    assert told.endswith("n10, n11, ... (300)")
