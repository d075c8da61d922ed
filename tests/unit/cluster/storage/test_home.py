"""A home is its owner's alone."""

from __future__ import annotations

from pathlib import Path

from cluster.storage.home import Home


def test_a_home_that_others_could_enter_is_closed(tmp_path: Path) -> None:
    home = Home(tmp_path / "above" / "home")
    home.close_to_others()
    assert home.path.stat().st_mode & 0o777 == 0o700
    home.path.chmod(0o755)
    home.close_to_others()
    assert home.path.stat().st_mode & 0o077 == 0
