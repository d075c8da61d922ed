"""A home as a released version left it: after tasks, refreshes, merges, a purge and tokens."""

from __future__ import annotations

import tarfile
from pathlib import Path

from cluster.storage.home import Home
from tests.support.places import ROOT

SCHEMAS = {"0.1.0": "0000"}  # of every released version


def unpacked(folder: Path, version: str = "0.1.0") -> Home:
    """The home, with the answers that the version gave, in `expected.json`."""
    with tarfile.open(ROOT / "tests" / "fixtures" / f"home-{version}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return Home(folder)  # its settings name the folder in which that version made it
