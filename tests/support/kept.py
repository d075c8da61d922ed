"""What is stored of checkpoints."""

from __future__ import annotations

from cluster.storage.checkpoints import Checkpoints


def newest(store: Checkpoints) -> int | None:
    """The step from which a run would continue."""
    with store.newest() as kept:
        return kept and kept.step
