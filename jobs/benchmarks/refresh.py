"""The cost of the refresh of one vector, against the training of one.

Both with every default, the same encoder and inputs of one length. A training is some of its steps,
which all cost the same, times their number.

If a dual pass of a row is 2, and 5 with its gradient (ARCHITECTURE.md), the refresh takes 8 steps
of 12 rows and 704 rows without gradient, the training 200 steps of 24: 0.079.
"""

from __future__ import annotations

from typing import Any

import torch

from jobs.benchmarks.encoders import Subject, subject
from jobs.benchmarks.step import CLASSES, OTHERS, random_head, small_tau
from jobs.benchmarks.timing import Run, Say, in_turns, setting
from tacl.data.batches import Labelled
from tacl.training.config import RefreshConfig, default_config
from tacl.training.loop import PlainEngine, Store, train
from tacl.training.refresh import refresh

STEPS = 200  # of a training: two passes over 1,600 rows
SOME = 10  # steps that are timed
ROWS = 256  # of each store


def bench_refresh(model: str, rounds: int, device: str, say: Say) -> dict[str, Any]:
    """Seconds of a refresh and of `SOME` steps, and the ratio to a training of `STEPS`."""
    field = contestants(subject(model), device)
    times = in_turns(field, rounds, device, say)
    return {
        **setting(model, device, rounds),
        "others": OTHERS,
        "training_steps": STEPS,
        "refresh_s": times.median("refresh"),
        f"{SOME}_steps_s": times.median("steps"),
        "spread_s": times.spreads(),
        "ratio_to_training": times.ratio("refresh", "steps") * SOME / STEPS,
    }


def contestants(one: Subject, device: str) -> dict[str, Run]:
    """A refresh against OTHERS stores, and SOME steps of the training before it."""
    own, *others = (store(one, task) for task in range(1 + OTHERS))
    backbone, module, tau = one.on(device), one.linearized(device), small_tau(one)
    config = default_config(8 * STEPS, 0, one.trainable, steps=SOME)
    random = torch.Generator().manual_seed(2)
    head = random_head(one, random)
    data = Labelled([*own.items], torch.randint(CLASSES, (ROWS,), generator=random))

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
    return Store(f"task{task}", one.items(batch), 1.0)
