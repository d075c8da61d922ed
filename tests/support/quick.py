"""A learner that takes a second: hashes instead of gradients, but real checkpoints and arrivals."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from cluster.coordinator.arrivals import Arrivals
from cluster.domain.tasks import Shard
from cluster.domain.work import Lease, Leave, Progress, RefreshWork, Result, TrainWork, Work
from cluster.runtime.connection import CoordinatorClient
from cluster.storage.checkpoints import checkpoints
from cluster.storage.home import Home
from tests.support.fake_learner import FakeLearner
from tests.support.fakes import loud, result_of, trained

STEPS = 12
SECONDS = float(os.environ.get("TACL_TEST_STEP_SECONDS", "0.1"))


class Quick(FakeLearner):
    """A training is a chain of hashes over the shards of each step; a checkpoint stores a link."""

    def __init__(self, home: str, known: Callable[[Lease], Leave] | None = None) -> None:
        super().__init__(home)
        self._known = known or CoordinatorClient()

    def work(self, work: Work) -> Result:
        blobs = self._home.blobs()
        if isinstance(work, TrainWork):
            link, told = self._trained(work)
            return vector(work, link, told, self._home)
        if isinstance(work, RefreshWork):
            time.sleep(STEPS * SECONDS / 2)
        return result_of(work, blobs, loud)

    def _trained(self, work: TrainWork) -> tuple[str, Sequence[Shard]]:
        store, known = checkpoints(self._home, work.run_id), self._known
        first, link, arrivals, leased = 0, "", Arrivals(), range(0)
        with store.newest() as kept:
            if kept is not None:
                first, link = kept.step, (kept.folder / "link").read_text()
        for step in range(first, STEPS):
            progress = Progress(step=step, steps=STEPS, loss=1 / (1 + step))
            if step not in leased:
                since, leased = (leased[-1] if leased else -1), range(step, min(step + 2, STEPS))
                asked = Lease(run_id=work.run_id, first=step, last=leased[-1], since=since)
                told = {"progress": progress, "attempt": work.attempt}
                arrivals.apply(known(asked.model_copy(update=told)).arrivals)
            link = linked(link, arrivals.at(step))
            time.sleep(SECONDS)
            if step % 3 == 2:
                store.write(step + 1, partial(_save, link))
        if not leased:  # the last step was done before
            last = Lease(run_id=work.run_id, first=STEPS - 1, last=STEPS - 1, attempt=work.attempt)
            arrivals.apply(known(last).arrivals)
        return link, arrivals.at(STEPS - 1)


def _save(link: str, folder: Path) -> None:
    (folder / "link").write_text(link)


def linked(link: str, told: Iterable[Shard]) -> str:
    text = json.dumps([link, [shard.blob.digest for shard in told]])
    return hashlib.sha256(text.encode()).hexdigest()


def vector(work: TrainWork, link: str, told: Sequence[Shard], home: Home) -> Result:
    made = trained(work, home.blobs(), loud, list(told))
    blob = home.blobs().put(vector_bytes(work.submission.name, link))
    pairs = tuple(pair.model_copy(update={"vector_digest": blob}) for pair in made.pairs)
    return made.model_copy(update={"vector_digest": blob, "vector_blob": blob, "pairs": pairs})


def vector_bytes(name: str, link: str) -> bytes:
    return json.dumps([name, link]).encode()
