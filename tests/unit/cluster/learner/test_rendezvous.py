"""Where the ranks of a group meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import torch

from cluster.learner.rendezvous import InFile, interface_of


class OneWorker:
    """A group of one, in this process."""

    def __len__(self) -> int:
        return 1

    def execute(self, function: Any) -> None:
        pass

    def execute_single_async(self, rank: int, function: Any, **how: Any) -> Any:
        return how


def test_a_folder_of_any_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch does not undo what a URI escapes."""
    folder = tmp_path / "ein höme 100%"
    folder.mkdir()
    joined: list[Any] = []
    monkeypatch.setattr(ray, "get", joined.extend)
    config = InFile(backend="gloo", path=str(folder / "group"))
    worker_group: Any = OneWorker()
    config.backend_cls().on_start(worker_group, config)
    (told,) = joined
    store, rank, size = next(
        torch.distributed.rendezvous(told["init_method"], rank=0, world_size=1)
    )
    store.set("here", "yes")
    assert (rank, size, store.get("here")) == (0, 1, b"yes")
    assert (folder / "group").exists()


def test_the_interface_of_a_node_is_known_by_its_address() -> None:
    assert "lo" in (interface_of("127.0.0.1") or "")
    assert interface_of("203.0.113.7") is None
    assert interface_of("127.0.0.1") in psutil.net_if_addrs()
