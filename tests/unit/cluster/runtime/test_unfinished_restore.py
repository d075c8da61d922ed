"""A restore that did not end hinders no other, and one that ended is never written over."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from cluster import failpoints
from cluster.registry import Registry
from cluster.registry.copying import copy, require_empty
from cluster.runtime.backup import backup, restore
from cluster.storage.home import Home
from tacl.errors import HomeInUse
from tests.unit.cluster.runtime.test_backup import again, lived, quiet, told


@pytest.mark.parametrize("where", ["copy committed", "finish written"])
def test_a_restore_that_ends_early_can_be_repeated(
    where: str, tmp_path: Path, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, kept, storage = lived(tmp_path / "home"), tmp_path / "kept", str(tmp_path / "storage")
    backup(scene.home, kept, quiet)

    def end(step: str) -> None:
        if step == f"registry {where}":
            raise KeyboardInterrupt

    with monkeypatch.context() as early:
        early.setattr(failpoints, "watch", end)
        with pytest.raises(KeyboardInterrupt):
            restore(kept, Home(tmp_path / "new"), storage, registry_url, quiet)
    assert not (tmp_path / "new").exists()
    _, coordinator = again(kept, tmp_path / "new", storage=storage, registry=registry_url)
    assert told(coordinator) == told(scene.coordinator)
    with pytest.raises(HomeInUse, match="keeps a home"):
        restore(kept, Home(tmp_path / "third"), None, registry_url, quiet)
    scene.coordinator.close()
    coordinator.close()


def test_a_copy_that_a_cluster_took_up_is_a_home(tmp_path: Path, registry_url: str) -> None:
    """Also if the restore was killed before it told the registry that it had ended."""
    scene = lived(tmp_path / "home")
    with closing(Registry(registry_url)) as target:
        for _ in range(2):
            require_empty(target)
            copy(scene.coordinator._registry, target, unfinished=True)
        target.acquire_writer()
        with pytest.raises(HomeInUse, match="keeps a home"):
            require_empty(target)
    scene.coordinator.close()
