"""What a run leaves that is lost before the coordinator heard what it found."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tests.support import tiny
from tests.support.learned import Scene, new_task, train


def test_a_run_that_is_lost_before_it_told_leaves_nothing_beside_what_the_next_attempt_stores(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, teller = new_task(scene.home, 21, steps=3), tiny.LeaseClient(tiny.generic(scene.home))

    def stored() -> set[str]:
        return {one.digest for one in scene.home.blobs().stored()}

    def lost(*_: object) -> NoReturn:
        raise ConnectionError("the machine went away")

    before = stored()
    for measuring in ("cluster.learner.interference.tau_jp", "cluster.learner.training.accuracy"):
        with monkeypatch.context() as patch:
            patch.setattr(measuring, lost)
            with pytest.raises(ConnectionError):
                train(scene.home, task, teller)
    head = stored() - before
    assert len(head) == 1  # its vector is measured with it
    first = train(scene.home, task, teller)
    assert stored() == before | head | {first.vector_blob}
    assert train(scene.home, task, teller, attempt=2).vector_blob == first.vector_blob
    assert stored() == before | head | {first.vector_blob}
