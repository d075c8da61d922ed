"""What works with vectors computes where its base is, tried on the `meta` device: all passes are
there, no tensor stays behind, and what is made of them, of values made up, can travel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cluster.domain import work as works
from cluster.domain.base import Base
from cluster.domain.compositions import Adapt, CompositionMethod, Fitted, RecipeTerm
from cluster.learner import artifacts, evaluation, heads, interference
from cluster.learner.composition import fit, inputs
from cluster.learner.composition import heads as composition_heads
from cluster.learner.learner import Learner
from cluster.storage.listed import store_tasks
from cluster.storage.samples import store_shard
from tacl.compose import negation
from tacl.compose.learning import learning_config
from tacl.training.config import TrainConfig
from tests.support import tiny
from tests.support.learned import Scene

PASSES = {"mm", "addmm", "bmm", "baddbmm", "convolution"}
COPIES = {"copy_", "_to_copy"}
pytestmark = pytest.mark.train

KNOWN: Any = tiny.LeaseClient()


class Accelerated(TorchDispatchMode):
    """Counts passes by the device, and what computes between two; values that are read from the
    `meta` device are made up."""

    def __init__(self) -> None:
        super().__init__()
        self.between: Counter[str] = Counter()
        self.passes: Counter[str] = Counter()
        self._random = torch.Generator().manual_seed(0)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.name().removeprefix("aten::").partition(".")[0]
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        places = {tensor.device.type for tensor in given if tensor.ndim}
        if name not in COPIES and len(places) > 1:
            self.between[name] += 1
        if name in PASSES:
            self.passes.update(places)
        if given and given[0].is_meta:
            if name == "_local_scalar_dense":
                return self._made_up(given[0]).item()
            if name == "_to_copy" and torch.device(kwargs.get("device") or "meta").type == "cpu":
                return self._made_up(given[0]).to(kwargs.get("dtype") or given[0].dtype)
            if name == "nonzero":
                return torch.zeros(0, given[0].ndim, dtype=torch.long, device="meta")
        return func(*args, **kwargs)

    def _made_up(self, x: Tensor) -> Tensor:
        found = torch.rand(x.shape, generator=self._random)
        return found > 0.5 if x.dtype == torch.bool else found.to(x.dtype)


@pytest.fixture
def on_meta(monkeypatch: pytest.MonkeyPatch) -> Iterator[Accelerated]:
    for module in (fit, negation):
        monkeypatch.setattr(module, "learning_config", partial(_short, learning_config))
    for module in (heads, composition_heads):
        monkeypatch.setattr(module, "learned", _learned)
    for module in (evaluation, heads, interference, inputs):
        monkeypatch.setattr(module, "given_device", lambda gpus: "meta" if gpus else "cpu")
    artifacts._loaded.cache_clear()
    with Accelerated() as seen:
        yield seen
    artifacts._loaded.cache_clear()
    assert not seen.between, seen.between


def _short(config_of: Callable[..., TrainConfig], *arguments: Any, **named: Any) -> TrainConfig:
    return replace(config_of(*arguments, **named), steps=2)


def _learned(
    materials: object, vectors: object, rows: heads.HeadRows, started: float, *kept: object
) -> Fitted:
    """Of rows that are on the CPU, where it takes a while."""
    pairs = [*rows.train.values(), *rows.validation.values()]
    seen = [one.features_ND for pair in pairs for one in pair]
    seen += [one.features_ND for of in (rows.frozen, rows.plain) for one in of.values()]
    seen += rows.generic
    assert {x.device.type for x in seen} == {"cpu"}
    return Fitted(heads=(), metrics={})


def making(scene: Scene, **how: Any) -> works.ComposeWork:
    pairs = list(zip(scene.tasks, scene.refs, strict=True))
    return works.ComposeWork(
        run_id="compose",
        base=base(scene),
        gpus=1,
        user="alice",
        terms=tuple(RecipeTerm(coefficient=1.0, vector=ref) for ref in scene.refs),
        making=CompositionMethod(**how),
        tasks=tuple(
            works.TaskRows(
                name=task.name,
                head_blob=ref.head_blob,
                validation=task.validation,
                train=task.train,
            )
            for task, ref in pairs
        ),
        probes=tuple(tiny.shard_of(task, n) for n, task in enumerate(scene.tasks, 1)),
    )


def base(scene: Scene) -> Base:
    return tiny.train_work(scene.home, scene.tasks[0]).base


def work(scene: Scene, kind: str) -> works.Work:
    pairs = list(zip(scene.tasks, scene.refs, strict=True))
    if kind == "measure":
        shards = [tiny.shard_of(task, n) for n, task in enumerate(scene.tasks, 1)]
        both = tuple((ref, shard) for ref in scene.refs for shard in shards)
        return works.MeasureWork(run_id=kind, base=base(scene), gpus=1, pairs=both)
    if kind == "fit":
        tasks = tuple(
            works.FitTask(vector=ref, train=task.train, validation=task.validation)
            for task, ref in pairs
        )
        listed = store_tasks(scene.home.blobs(), tasks)
        return works.FitWork(run_id=kind, base=base(scene), gpus=1, owner="", listed=listed)
    if kind == "evaluate":
        return works.EvaluateWork(
            run_id=kind,
            base=base(scene),
            gpus=1,
            composition=tiny.composition(*((1.0, ref) for ref in scene.refs)),
            tasks=tuple(
                works.TaskData(
                    name=task.name,
                    classes=task.classes,
                    head_blob=ref.head_blob,
                    test=task.test,
                    individual=ref,
                )
                for task, ref in pairs
            ),
            materialized=True,
            without=True,
        )
    if kind == "ufm":
        rows, _ = tiny.pictures(12, task=1)
        given = store_shard(scene.home.blobs(), rows, [row == 0 for row in range(12)])
        adapt = Adapt(inputs=given)
        return making(scene, method="atlas", adapt=adapt, select="blockwise:1")
    return making(scene, method=kind)


@pytest.mark.parametrize("kind", ["measure", "fit", "evaluate", "ties", "atlas", "ufm"])
def test_all_passes_are_on_the_device(scene: Scene, on_meta: Accelerated, kind: str) -> None:
    found = Learner(str(scene.home.path), KNOWN).work(work(scene, kind))
    assert on_meta.passes["meta"] > 0
    assert found.model_dump_json()
