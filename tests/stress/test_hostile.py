"""Attackers and a kill beside people who ask what they may, for a quarter of a minute; half an hour
of them is in `make soak`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.stress.hostile.judging import Found
from tests.support.places import ROOT

MINUTES, KILLS = 0.25, 1  # a predictor
SECONDS = 900  # with the start of a cluster, and what is owed done


@pytest.mark.ray
@pytest.mark.timeout(SECONDS + 20)
def test_attackers_and_a_kill_cost_nobody_anything(tmp_path: Path) -> None:
    told = ["--minutes", f"{MINUTES}", "--kills", f"{KILLS}", "--results", str(tmp_path)]
    command = [sys.executable, "-m", "tests.stress.hostile", *told]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS)
    assert (tmp_path / "hostile.json").exists(), (done.stdout + done.stderr)[-5000:]
    found = Found.model_validate_json((tmp_path / "hostile.json").read_text())
    assert (found.lost, found.doubled, found.wrong, found.defects) == ([], [], [], [])
    assert found.killed["predictor"] == 1
    assert {"ann", "eve", "mallory"} <= found.answers.keys()
    assert found.whole_run.answers > 20  # of ann, whatever the others did
