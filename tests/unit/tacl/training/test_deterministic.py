"""On a CUDA device a training takes deterministic algorithms, and gives back what was taken before.

No device is asked for: what is looked at are torch's flags.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

import pytest
import torch
from torch.backends import cudnn

from tacl.training import loop
from tacl.training import refresh as refreshes
from tacl.training.config import RefreshConfig
from tacl.training.deterministic import WORKSPACES, deterministic
from tests.support import toy

Flags = tuple[bool, bool, bool, bool]
FIXED: Flags = True, True, False, True


def flags() -> Flags:
    on = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    return on, warned, cudnn.benchmark, cudnn.deterministic


@pytest.fixture(autouse=True)
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[Flags]:
    """A process that lets cuDNN try algorithms out."""
    monkeypatch.setenv(WORKSPACES, "")
    monkeypatch.delenv(WORKSPACES)
    monkeypatch.setattr(cudnn, "benchmark", True)
    found = flags()
    assert found != FIXED
    yield found
    assert flags() == found


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda", 0)])
def test_on_cuda_and_given_back_also_when_it_fails(
    device: str | torch.device, before: Flags
) -> None:
    with suppress(ZeroDivisionError), deterministic(device):
        assert flags() == FIXED
        assert os.environ[WORKSPACES] == ":4096:8"
        raise ZeroDivisionError
    assert flags() == before


def test_what_somebody_chose_for_cublas_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACES, ":16:8")
    with deterministic("cuda"):
        assert os.environ[WORKSPACES] == ":16:8"


def test_nowhere_else(before: Flags) -> None:
    with deterministic("cpu"):
        assert flags() == before
        assert WORKSPACES not in os.environ


def test_every_step_of_a_training_and_of_a_refresh_is_such(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[torch.device] = []

    def as_on_cuda(device: torch.device) -> AbstractContextManager[None]:
        devices.append(device)
        return deterministic("cuda")

    for module in (loop, refreshes):
        monkeypatch.setattr(module, "deterministic", as_on_cuda)
    scene, seen, config = toy.scene(torch.float32), list[Flags](), replace(toy.CONFIG, steps=3)
    engine = scene.engine(config)
    places = engine, scene.backbone, scene.head, scene.data, lambda step: scene.stores, config
    loop.train(*places, on_step=lambda record: seen.append(flags()))
    tau, own, other = engine.module.tau_dict(), *scene.stores
    given = engine.module, scene.backbone, tau, own, [other], RefreshConfig(seed=0, steps=2)
    refreshes.refresh(*given, lambda descent: seen.append(flags()))
    assert seen == [FIXED] * 5
    assert devices == [torch.device("cpu")] * 2
