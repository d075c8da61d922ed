"""The quick learner, with trainings on several workers as real groups of Ray Train.

Rank 0 computes; the others learn of every step through a real broadcast, so the loss of any rank
ends the group as in a training.
"""

from __future__ import annotations

from typing import Any

from cluster.domain.work import Result, Trained, TrainWork, Work
from tests.support.quick import Quick


class Grouped(Quick):
    def work(self, work: Work) -> Result:
        if not isinstance(work, TrainWork) or work.submission.options.workers == 1:
            return super().work(work)
        from cluster.learner.group import on_group  # imports torch, which not all need

        config = {"home": self._home.where, "work": work}
        name = f"{work.run_id[:16]}-{work.attempt}"
        found = on_group(_rank, config, work.submission.options, self._home, name)
        return Trained.model_validate(found)


def _rank(config: dict[str, Any]) -> dict[str, Any] | None:
    from cluster.learner.training import Ranks
    from cluster.runtime.connection import CoordinatorClient

    ranks, known = Ranks(), CoordinatorClient()
    if ranks.rank > 0:
        while ranks.broadcast(list) is not None:
            pass
        return None
    quick = Quick(config["home"], lambda asked: ranks.broadcast(lambda: known(asked)))
    result = quick.work(config["work"])
    ranks.broadcast(lambda: None)
    return result.model_dump()
