"""Every kind of work loads its base where its process was given to run."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster.domain import work as works
from cluster.domain.tasks import Options
from cluster.learner import artifacts, heads
from cluster.learner.artifacts import Materials
from cluster.learner.learner import HANDLERS, Learner
from cluster.storage.home import Home
from tacl.training.deterministic import WORKSPACES

NOTHING: Any = SimpleNamespace(terms=(), name="t", vector_blob="v", options=Options())
HALF: Any = SimpleNamespace(name="t", vector_blob="v", options=Options(gpus_per_worker=0.5))
KNOWN: Any = SimpleNamespace(report_progress=lambda *told: False)
WORKS = [
    works.MeasureWork.model_construct(base=NOTHING, pairs=()),
    works.FitWork.model_construct(base=NOTHING, listed=NOTHING),
    works.EvaluateWork.model_construct(base=NOTHING, tasks=(), composition=NOTHING),
    works.ComposeWork.model_construct(base=NOTHING, making=NOTHING),
    works.TrainWork.model_construct(run_id="r", base=NOTHING, submission=NOTHING),
]
HALVES = [
    *(work.model_copy(update={"gpus": 0.5}) for work in WORKS[:-1]),
    works.TrainWork.model_construct(run_id="r", base=NOTHING, submission=HALF),
]


@pytest.mark.parametrize(("device", "told"), [("cuda", ":4096:8"), ("cpu", None)])
def test_cublas_is_told_its_workspaces_before_anything_is_on_a_gpu(
    device: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WORKSPACES, "")
    monkeypatch.delenv(WORKSPACES)
    seen: list[tuple[str, str | None]] = []

    def to(device: str) -> None:
        seen.append((device, os.environ.get(WORKSPACES)))

    backbone = SimpleNamespace(digest="b", encoder=SimpleNamespace(to=to))
    monkeypatch.setattr(artifacts, "load_backbone", lambda spec: backbone)
    monkeypatch.setattr(artifacts, "share", lambda backbone, bases: None)
    artifacts._loaded.__wrapped__("spec", "b", device, tmp_path)
    assert seen == [(device, told)]


@pytest.mark.parametrize("gpus", [0, 0.25, 1, 2])
def test_a_part_of_a_gpu_is_as_much_of_its_memory(
    gpus: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told at every run: a process that had a part may have all of it in its next one."""
    told: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", told.append)
    device = artifacts.asked_device(Options(gpus_per_worker=gpus))
    assert (device, told) == (("cuda", [min(gpus, 1)]) if gpus else ("cpu", []))
    told.clear()
    monkeypatch.setattr("cluster.runtime.connection.has_gpu", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert artifacts.given_device(gpus) == ("cuda" if gpus else "cpu")
    assert told == ([min(gpus, 1)] if gpus else [])
    told.clear()
    assert (artifacts.given_device(), told) == ("cuda", [])  # a predictor, which has limits itself


@pytest.mark.parametrize("gpus", [0.5, 0])
def test_what_a_gpu_does_not_hold_is_done_on_the_cpu(
    gpus: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where there is none: nobody chose a GPU for it. On the CPU nothing else can be tried."""
    tried: list[float] = []

    def measured(work: works.MeasureWork, *given: object) -> works.Measured:
        tried.append(work.gpus)
        if work.gpus or not gpus:
            raise torch.OutOfMemoryError("no room")
        return works.Measured(pairs=())

    monkeypatch.setitem(HANDLERS, "measure", measured)
    work = WORKS[0].model_copy(update={"run_id": "m", "gpus": gpus})
    learner = Learner(str(tmp_path), known=KNOWN)
    if gpus:
        assert learner.work(work) == works.Measured(pairs=())
        assert "measure" in caplog.text
    else:
        with pytest.raises(torch.OutOfMemoryError):
            learner.work(work)
    assert tried == ([0.5, 0] if gpus else [0])


class Loaded(Exception):
    """On this device."""


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of work ends where its base would be loaded."""

    def load(self: Materials, home: Home, base: Any, device: str = "cpu") -> None:
        raise Loaded(device)

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(Materials, "__init__", load)
    monkeypatch.setattr(heads, "listed_tasks", lambda blobs, listed: (NOTHING,))
    monkeypatch.setattr(Home, "blobs", lambda home: NOTHING)


@pytest.mark.usefixtures("loads")
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("work", HALVES, ids=lambda work: work.kind)
def test_work_runs_where_ray_says(
    work: Any, given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.runtime.connection.has_gpu", lambda: given)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda part: None)
    with pytest.raises(Loaded, match="cuda" if given else "cpu"):
        Learner(str(tmp_path), known=KNOWN).work(work)


@pytest.mark.usefixtures("loads")
@pytest.mark.parametrize("work", HALVES, ids=lambda work: work.kind)
def test_work_takes_no_more_of_the_memory_of_a_gpu_than_its_part(
    work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", told.append)
    monkeypatch.setattr("cluster.runtime.connection.has_gpu", lambda: True)
    with pytest.raises(Loaded, match="cuda"):
        Learner(str(tmp_path), known=KNOWN).work(work)
    assert told == [0.5]
