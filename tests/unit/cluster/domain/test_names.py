"""What may be a name, and what is said of one that is not there."""

from __future__ import annotations

import time

import pytest

from cluster.domain.names import LONGEST, checked_alias, checked_task, did_you_mean, no_such
from tacl.compose.terms import parse_term
from tacl.errors import BadName


@pytest.mark.parametrize("alias", ["tried", "release.1", "v1.2", "_a-b"])
def test_what_may_be_an_alias_can_be_said_in_a_recipe(alias: str) -> None:
    assert parse_term(f"+news@{checked_alias(alias)}").alias == alias


@pytest.mark.parametrize("alias", ["v2", "2", "2026-05"])
def test_what_reads_as_a_version_is_no_alias(alias: str) -> None:
    with pytest.raises(BadName, match="reads as a version"):
        checked_alias(alias)


def test_a_close_name_is_suggested_and_the_names_are_listed() -> None:
    assert no_such("task", "flwers", ["faces", "flowers"]) == (
        "no task is named flwers (did you mean flowers?); there are faces, flowers"
    )
    assert no_such("task", "x", []) == "no task is named x; there is none yet"
    assert did_you_mean("zebra", ["faces"]) == ""


def test_of_many_names_some_are_listed() -> None:
    told = no_such("task", "x", [f"n{i}" for i in range(300)])
    assert told.endswith("n10, n11, ... (300)")


@pytest.mark.parametrize("asked", ["task" + "x" * 60, "x" * 60 + "task", "q" * 200])
def test_a_name_among_ten_thousand_that_are_like_it_costs_little(asked: str) -> None:
    """Whoever asks for what is not there holds the coordinator up: it took seconds."""
    names = [f"task{number}".ljust(LONGEST, "x") for number in range(10_000)]
    began = time.process_time()
    assert "... (10000)" in no_such("task", asked, names)
    assert time.process_time() - began < 0.5


def test_a_close_name_is_found_behind_many_others() -> None:
    assert did_you_mean("flwers", [f"n{i}" for i in range(300)] + ["flowers"]) == (
        " (did you mean flowers?)"
    )


@pytest.mark.parametrize("name", ["faces", "jo@corp.com.faces"])
def test_an_owner_whose_name_no_task_may_begin_with_is_told_so(name: str) -> None:
    with pytest.raises(BadName, match=r"'jo@corp.com' cannot own a private task.*--owner"):
        checked_task(name, "jo@corp.com", private=True)
    assert checked_task("faces", "jo@corp.com", private=False) == "faces"


@pytest.mark.parametrize("digits", ["0123456789abcdef" * 4, "0123456789ABCDEF" * 4, "0" * 64])
def test_what_reads_as_a_digest_is_no_task(digits: str) -> None:
    with pytest.raises(BadName, match="reads as a digest"):
        checked_task(digits, "ann", private=False)
    for name in (digits[1:], f"g{digits[1:]}"):
        assert checked_task(name, "ann", private=False) == name
