"""Our optimizers are torch's; a process that trains imports neither torch's compiler nor MLflow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tacl.training.optimizer import Adam, AdamW, load, save

TRAIN = """
import os, sys, torch
from tacl.training.config import default_config
from tacl.training.deepspeed import DeepSpeedEngine
from tacl.models.linearized import LinearizedEncoder
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
encoder = torch.nn.Sequential(layer, torch.nn.Flatten()).eval()
module = LinearizedEncoder(encoder)
engine = DeepSpeedEngine(module, default_config(100, 0, ("*",)))
features, tangent = engine(torch.randn(2, 3, 8))
engine.backward((features + tangent).square().mean())
assert engine.step(1e-3) > 0 and any(p.abs().max() > 0 for p in module.parameters())
print({"torch._dynamo", "torch._inductor", "sympy", "mlflow"} & set(sys.modules), flush=True)
import mlflow
os._exit(0)  # see the end of test_engine.py
"""


@pytest.mark.parametrize(("ours", "theirs"), [(Adam, torch.optim.Adam), (AdamW, torch.optim.AdamW)])
@pytest.mark.parametrize("fused", [None, True])
def test_steps_are_those_of_torch_bit_for_bit(ours, theirs, fused) -> None:
    torch.manual_seed(0)
    start = [torch.randn(5, 3), torch.randn(7)]
    moved = []
    for optimizer in (ours, theirs):
        parameters = [nn.Parameter(value.clone()) for value in start]
        one = optimizer(parameters, lr=0.1, weight_decay=0.2, fused=fused)
        for step in range(4):
            for parameter in parameters:
                parameter.grad = (parameter.detach() + step).sin()
            one.step()
            one.zero_grad()
            assert all(parameter.grad is None for parameter in parameters)
        moved.append(parameters)
    for mine, yours, before in zip(*moved, start, strict=True):
        assert torch.equal(mine, yours)
        assert not torch.equal(mine, before)


def test_what_is_resumed_is_no_part_of_the_file(tmp_path: Path) -> None:
    """Which is deleted when it is old; on some disks none is while somebody has it mapped."""
    module = nn.Linear(3, 2)
    optimizer = AdamW(module.parameters(), lr=0.1)
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    save(module, optimizer, tmp_path / "state")
    load(module, optimizer, tmp_path / "state")
    maps = Path("/proc/self/maps").read_text()
    assert str(tmp_path / "state") not in maps


def test_training_imports_what_it_needs() -> None:
    found = subprocess.run(
        [sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip().splitlines()[-1] == "set()"
