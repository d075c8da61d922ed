"""Random kills of forked processes over a stream of work; on Ray, too, in `make soak`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.budget import budget
from tests.support.places import ROOT

KILLS = budget(25, nightly=200)
SECONDS = 8 * KILLS  # a busy machine may not reach all kills by then


@pytest.mark.timeout(SECONDS + 400)
def test_many_random_kills_lose_nothing() -> None:
    told = ["--kills", str(KILLS), "--seconds", str(SECONDS)]
    command = [sys.executable, "-m", "tests.stress.soak", *told]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS + 350)
    last = done.stdout.splitlines()[-1]
    assert last.endswith(" lost=0 doubled=0 wrong=0"), done.stdout[-3000:]
    assert int(last.split()[0].removeprefix("kills=")) >= 0.4 * KILLS
