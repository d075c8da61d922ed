"""A Ray that does not start is said in one message, with what to do."""

from __future__ import annotations

import pytest
import ray

from cluster.runtime import head
from tacl.errors import ClusterNotRunning


def test_a_ray_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed_out(**how: object) -> None:
        raise Exception("The current node timed out.\nThe GCS is overloaded.")

    monkeypatch.setattr(ray, "init", timed_out)
    with pytest.raises(ClusterNotRunning) as caught:
        head._start_ray(1)
    said = str(caught.value)
    assert said.startswith("Ray did not start: The current node timed out. The GCS is overloaded.")
    assert "`tacl up` again" in said
