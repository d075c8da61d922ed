"""What the refresh of one vector costs, against the training of one.

Both as they are: the same encoder, inputs of one length, every default. A training is some of its
steps, all of which cost the same, times their number.

Against one dual pass of a row as 2, and 5 with its gradient (ARCHITECTURE.md), the refresh takes
32 steps of 12 rows and 320 rows without gradient, the training 200 steps of 18: 0.142.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from jobs.benchmarks.encoders import Subject, subject
from jobs.benchmarks.step import CLASSES, OTHERS, SCALE, small_tau
from jobs.benchmarks.timing import Run, Say, in_turns, ratio
from tacl.data.batches import Labelled
from tacl.heads.head import Head
from tacl.models.frozen import Batch
from tacl.models.linearized import LinearizedEncoder
from tacl.training.config import RefreshConfig, default_config
from tacl.training.loop import PlainEngine, Store, train
from tacl.training.refresh import refresh

STEPS = 200  # of a training: half a pass over 6,400 rows
SOME = 10  # of them are timed
ROWS = 256  # of each store


@dataclass(frozen=True)
class MadeUp:
    """What a training needs of a backbone, over inputs that need no preparation."""

    device: str

    def collate(self, items: Sequence[Tensor]) -> Batch:
        rows = torch.stack(list(items)).to(self.device)
        if rows.is_floating_point():
            return rows
        return {"input_ids": rows, "attention_mask": torch.ones_like(rows)}


def bench_refresh(model: str, rounds: int, device: str, say: Say) -> dict[str, Any]:
    """Seconds of a refresh and of `SOME` steps, and the ratio to a training of `STEPS`."""
    field = contestants(subject(model), device)
    times = in_turns(field, rounds, device, say)
    return {
        "model": model,
        "device": device,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "others": OTHERS,
        "training_steps": STEPS,
        "refresh_s": times["refresh"].median,
        f"{SOME}_steps_s": times["steps"].median,
        "spread_s": {name: t.spread for name, t in times.items()},
        "ratio_to_training": ratio(times, "refresh", "steps") * SOME / STEPS,
    }


def contestants(one: Subject, device: str) -> dict[str, Run]:
    """A refresh against OTHERS stores, and SOME cyclical steps of the training before it."""
    own, *others = (store(one, task) for task in range(1 + OTHERS))
    backbone: Any = MadeUp(device)
    module = LinearizedEncoder(copy.deepcopy(one.encoder).to(device), one.trainable)
    tau = small_tau(one)
    config = default_config(32 * STEPS, 0, one.trainable, steps=SOME)
    with torch.no_grad():
        width = one.encoder(MadeUp("cpu").collate(own.items[:1])).shape[-1]
    random = torch.Generator().manual_seed(2)
    weight_CD = normalize(torch.randn(CLASSES, width, generator=random), dim=-1)
    head = Head(weight_CD, SCALE, tuple(map(str, range(CLASSES))))
    data = Labelled(own.items, torch.randint(CLASSES, (ROWS,), generator=random))

    def steps() -> None:
        module.load_tau({})
        engine = PlainEngine(module, config)
        train(engine, backbone, head, data, lambda step: others, config)

    return {
        "refresh": lambda: refresh(module, backbone, tau, own, others, RefreshConfig(seed=0)),
        "steps": steps,
    }


def store(one: Subject, task: int) -> Store:
    batch = one.batch(ROWS, torch.Generator().manual_seed(task))
    rows = batch if isinstance(batch, Tensor) else batch["input_ids"]
    return Store(f"task{task}", list(rows), 1.0)
