"""A process that has done other work gives the vector of a new one, bit for bit.

Both are this file run as a script: the tasks that it trains are its arguments, its answer a line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.domain.tasks import Shard, VectorRef
from cluster.domain.work import MeasureWork
from cluster.learner.artifacts import Materials
from cluster.learner.learner import Learner
from cluster.storage.home import Home
from tacl.vectors import params
from tests.support import tiny
from tests.support.learned import new_task, train
from tests.support.places import ROOT


def done(home: Home, tasks: list[int]) -> dict[str, str]:
    """Trains them one after the other, measures each but the last, and says what the last gave and
    whether theta0 is what it was."""
    generic = tiny.generic(home)
    materials = Materials(home, home.founded().base)
    before = params.digest(materials.backbone.encoder.state_dict())
    digest = ""
    for number in tasks:
        options = {"engine": "deepspeed", "zero_stage": number % 2, "steps": 6}
        task = new_task(home, number, **options)
        found = train(home, task, tiny.LeaseClient(generic))
        digest = found.vector_digest
        if number != tasks[-1]:
            measure(home, ((tiny.published(task, found), generic),))
    after = params.digest(materials.backbone.encoder.state_dict())
    own = own_bytes(home.path / "cache" / "bases" / materials.backbone.digest)
    return {"digest": digest, "theta0": "the same" if before == after else "changed", "own": own}


def own_bytes(file: Path) -> str:
    """Of a mapped file: pages that this process wrote into, and so has for itself."""
    regions = Path("/proc/self/smaps").read_text().split(str(file))[1:]
    return " ".join({re.findall(r"Anonymous: +(.*)", region)[0] for region in regions})


def measure(home: Home, pairs: tuple[tuple[VectorRef, Shard], ...]) -> None:
    """On one thread, whatever the training took."""
    work = MeasureWork(run_id="measure", base=home.founded().base, pairs=pairs, attempt=1)
    Learner(str(home.path), tiny.LeaseClient()).work(work)


@pytest.mark.train
def test_what_a_process_did_before_changes_no_bit(tmp_path: Path) -> None:
    home = tiny.home(tmp_path / "home")
    fresh, reused = (start(home, tasks) for tasks in ([2], [1, 2]))
    alone, after = answer(fresh), answer(reused)
    assert alone == after
    assert (alone["theta0"], alone["own"]) == ("the same", "0 kB")


def start(home: Home, tasks: list[int]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, str(home.path), json.dumps(tasks)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def answer(process: subprocess.Popen[str]) -> dict[str, str]:
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])


if __name__ == "__main__":
    print(json.dumps(done(Home(Path(sys.argv[1])), json.loads(sys.argv[2]))), flush=True)
    os._exit(0)  # as in tests/unit/tacl/training/test_deepspeed.py
