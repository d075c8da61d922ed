"""What a head does before its cluster is there, and a Ray that does not start."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray

from cluster.registry import Registry
from cluster.runtime import head
from cluster.storage.home import Founding
from tacl.errors import BadConfig, ClusterNotRunning
from tests.support.released import unpacked


def test_a_ray_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed_out(**how: object) -> None:
        raise Exception("The current node timed out.\nThe GCS is overloaded.")

    monkeypatch.setattr(ray, "init", timed_out)
    with pytest.raises(ClusterNotRunning) as caught:
        head._start_ray(1)
    said = str(caught.value)
    assert said.startswith("Ray did not start: The current node timed out. The GCS is overloaded.")
    assert "`tacl up` again" in said


def test_a_home_of_an_earlier_version_gets_the_tables_of_this_one(tmp_path: Path) -> None:
    home = unpacked(tmp_path)
    with pytest.raises(BadConfig, match="Migrate it"):
        Registry(home.registry_url)
    head._require_usable(home, Founding())
    Registry(home.registry_url).close()
