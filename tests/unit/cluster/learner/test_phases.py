"""What a training or an import does beside its steps is told as it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.domain.status import Phase
from cluster.domain.tasks import Submission
from cluster.domain.work import Progress
from cluster.storage.home import Home
from tests.support import tiny
from tests.support.learned import train

STEPS = 3


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return tiny.home(tmp_path)


def new_task(home: Home, **options: Any) -> Submission:
    chosen: dict[str, Any] = {"steps": STEPS, "learning_rate": 1e-3, "engine": "plain"} | options
    return tiny.submission(home, 3, noise=90, **chosen)


@pytest.mark.parametrize("share", ["samples", "statistics"])
def test_a_training_tells_what_it_does_before_and_after_its_steps(home: Home, share: str) -> None:
    teller = tiny.LeaseClient(tiny.generic(home))
    found = train(home, new_task(home, share=share), teller)
    *before, last = teller.told
    shared = [Phase.STATISTICS] if share == "statistics" else []
    phases = [Phase.LOADING, Phase.HEAD, *shared, Phase.ENGINE, Phase.SAMPLES]
    assert before == [Progress(phase=phase) for phase in phases]
    assert (last.phase, last.step, last.steps) == (Phase.MEASURING, STEPS, STEPS)
    assert last.loss == found.curves["loss"][-1]
    assert all(told.phase is None for _, told in teller.asked if told)  # these are of steps


def test_an_import_tells_what_it_does(home: Home) -> None:
    task, teller = new_task(home), tiny.LeaseClient()
    vector = train(home, task, tiny.LeaseClient()).vector_blob
    imported = task.model_copy(update={"vector_blob": vector})
    train(home, imported, teller)
    assert [one.phase for one in teller.told] == [Phase.LOADING, Phase.HEAD, Phase.MEASURING]
