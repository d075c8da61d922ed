"""The doctor names what is wrong, and what this distribution is called."""

from __future__ import annotations

import tomllib
from pathlib import Path

from cluster.runtime.doctor import DISTRIBUTION, checks
from cluster.storage.home import Home
from tests.support.fakes import new_home
from tests.support.places import ROOT


def privacy(home: Home) -> bool:
    return next(one.ok for one in checks(home) if one.check == "privacy")


def test_a_home_that_others_may_enter_is_named(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    home.path.chmod(0o755)
    assert not privacy(home)
    home.close_to_others()
    assert privacy(home)
    assert privacy(Home(tmp_path / "not made yet"))


def test_its_packages_are_those_of_the_distribution() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert declared["project"]["name"] == DISTRIBUTION
