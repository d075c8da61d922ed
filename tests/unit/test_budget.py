"""How long tests search is chosen in one place: `tests/support/budget.py`."""

from __future__ import annotations

import ast

import pytest
from hypothesis import settings

from tests.support import budget
from tests.support.places import ROOT


def test_every_budget_is_a_profile_of_hypothesis(pytestconfig: pytest.Config) -> None:
    """That of the budget is loaded, unless `--hypothesis-profile` says another."""
    for name, examples in (("dev", 20), ("ci", 100), ("nightly", 1000)):
        profile = settings.get_profile(name)
        assert (profile.max_examples, profile.deadline) == (examples, None)
    chosen = pytestconfig.getoption("--hypothesis-profile") or budget.CHOSEN
    assert settings.default is settings.get_profile(chosen)


@pytest.mark.parametrize("folder", ["unit", "integration", "stress"])
def test_no_test_names_its_number_of_examples_itself(folder: str) -> None:
    for file in (ROOT / "tests" / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "max_examples":
                assert not isinstance(node.value, ast.Constant), f"{file.name}:{node.lineno}"
