"""What there is of checkpoints."""

from __future__ import annotations

from cluster.storage.checkpoints import Checkpoints


def newest(store: Checkpoints) -> int | None:
    """The step that a run would go on from."""
    with store.newest() as kept:
        return kept and kept.step
