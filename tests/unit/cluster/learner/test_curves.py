"""What is published of the steps of a training."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from cluster.learner import training
from tacl.training.config import MOST_STEPS
from tests.support import tiny
from tests.support.learned import train


def test_a_published_curve_is_short_however_many_steps_there_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tiny.home(tmp_path)
    task = tiny.submission(home, 3, steps=8, learning_rate=1e-3, engine="plain")
    whole = train(home, task, tiny.LeaseClient(tiny.generic(home))).curves
    monkeypatch.setattr(training, "POINTS", 3)
    found = train(home, task, tiny.LeaseClient(tiny.generic(home))).curves
    assert found["step"] == [0, 3, 7]
    assert found == {name: [values[at] for at in (0, 3, 7)] for name, values in whole.items()}


@pytest.mark.parametrize("steps", [training.POINTS + 1, 5 * training.POINTS, 1_000_000])
def test_its_points_are_evenly_spaced_and_the_last_is_kept(steps: int) -> None:
    found = training.thinned({"step": list(range(steps)), "loss": [0.5] * steps})["step"]
    assert (len(found), found[0], found[-1]) == (training.POINTS, 0, steps - 1)
    gaps = {after - before for before, after in pairwise(found)}
    assert max(gaps) - min(gaps) <= 1 <= min(gaps)


def test_a_training_of_default_length_is_shown_whole() -> None:
    curves = {"step": list(range(MOST_STEPS)), "loss": [0.5] * MOST_STEPS}
    assert training.thinned(curves) == curves
