"""What a group of workers failed of, when one of them did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ray.exceptions import ActorDiedError

from cluster.domain.outcomes import GivesWay, Lost
from cluster.learner.group import cause, lost_partner
from tacl.errors import BadConfig, RunFailed


def test_the_cause_of_a_groups_failure_is_the_answer_before_the_loss() -> None:
    refused, broken = BadConfig("no such stage"), RuntimeError("[gloo/transport/tcp] reset by peer")
    assert cause({0: broken, 1: refused}) is refused
    gives_way = GivesWay()
    assert cause({0: gives_way, 1: broken}) is gives_way
    assert isinstance(cause({0: broken}), Lost)
    assert isinstance(cause({1: ActorDiedError()}), Lost)
    defect = cause({1: ZeroDivisionError("division by zero")})
    assert isinstance(defect, RunFailed)
    assert str(defect) == "worker 1: ZeroDivisionError: division by zero"


LEFT = """
import os, sys, torch
import torch.distributed as group
rank = 0 if os.fork() else 1
group.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
group.barrier()
if rank:
    os._exit(0)
try:
    group.all_reduce(torch.ones(1))
except RuntimeError as error:
    print(error)
os._exit(0)
"""


def test_a_rank_hears_of_gloo_that_its_partner_is_gone(tmp_path: Path) -> None:
    asked = [sys.executable, "-c", LEFT, str(tmp_path / "group")]
    alone = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(asked, env=alone, capture_output=True, text=True, timeout=120)
    assert lost_partner(RuntimeError(done.stdout)), done.stderr
