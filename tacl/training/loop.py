"""Training one task vector: loss = task + strength * penalty, by one dual pass per step.

The loop does not depend on what runs it. An `Engine` owns the optimizer and the ranks; `known`
returns at every step the other tasks in the sample store, so that a task that arrives during
training joins the cycle at the next step. Rows are pure functions of (seed, step): a resumed run
continues with the same numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from tacl.backbone import Backbone, Batch, Item
from tacl.curvature import Statistics, merged
from tacl.data.batches import Labelled
from tacl.data.splits import batch_rows
from tacl.errors import BadConfig
from tacl.heads.head import RowLoss
from tacl.models.frozen import FrozenEncoder
from tacl.training.config import TrainConfig, schedule
from tacl.training.deterministic import deterministic
from tacl.training.optimizer import adamw, load, save, stepped
from tacl.training.penalties import other_tasks, relative_tau_jp

Module = TypeVar("Module", bound=FrozenEncoder)


class Engine(Protocol):
    """The owner of the optimizer: plain torch in one process, or DeepSpeed on many ranks."""

    device: torch.device
    rank: int
    world_size: int

    @property
    def module(self) -> FrozenEncoder:
        """Linearized or ordinary; the engine trains all of its parameters."""
        ...

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(features, tangent), each [B, D]."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Adds the gradient of this micro-batch; gradients are averaged over ranks."""
        ...

    def step(self, learning_rate: float) -> Tensor:
        """Clips, updates tau, clears the gradients; returns the gradient's norm before clipping,
        a scalar tensor that may not be computed yet."""
        ...

    def save(self, folder: Path) -> None: ...
    def load(self, folder: Path) -> None: ...

    def close(self) -> None:
        """Ends the engine's training; its module can still be read."""
        ...


@dataclass(frozen=True)
class Store:
    """Unlabelled samples of one other task; feature_norm = mean |f(x; theta0)|_2 over them.

    The curvature penalty needs `statistics`. A task may share them instead of samples: then there
    are no items, and its turn in a cycle is a step against its statistics.
    """

    name: str
    items: Sequence[Item]
    feature_norm: float
    statistics: Statistics | None = None


@dataclass(frozen=True)
class StepRecord:
    """Figures of one optimizer step on this rank; `penalty` is None if the step had none."""

    step: int
    steps: int  # of the whole training
    loss: float
    penalty: float | None
    gradient_norm: float
    learning_rate: float


class PlainEngine(Generic[Module]):
    """The reference engine: torch's AdamW in this process."""

    rank = 0
    world_size = 1

    def __init__(self, module: Module, config: TrainConfig) -> None:
        self.module: Module = module
        self.device = next(module.parameters()).device
        self.clip = config.clip
        self.optimizer = adamw(module, config)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.module(batch)

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def step(self, learning_rate: float) -> Tensor:
        return stepped(self.module, self.optimizer, self.clip, learning_rate)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        save(self.module, self.optimizer, folder / "plain.safetensors")

    def load(self, folder: Path) -> None:
        load(self.module, self.optimizer, folder / "plain.safetensors")

    def close(self) -> None:
        """Does nothing: the engine holds no resources of its own."""


def train(
    engine: Engine,
    backbone: Backbone,
    head: RowLoss,
    data: Labelled,
    known: Callable[[int], Sequence[Store]],
    config: TrainConfig,
    *,
    start_step: int = 0,
    on_step: Callable[[StepRecord], bool | None] | None = None,
) -> None:
    """Trains the engine's module in place, from `start_step` to `config.steps`.

    An ordinary module is trained by the same loop; its tangent is zero, and a penalty is refused.
    `known(step)` returns the stores of the OTHER tasks, the generic one included, in the order of
    their arrival; it is called once before every optimizer step. `on_step` is called after every
    step, and training ends when it returns True. Raises BadConfig.
    """
    head = head.to(engine.device)
    if engine.module.regime == "ordinary" and config.penalty != "none":
        raise BadConfig(
            f"penalty {config.penalty!r} was asked of ordinary fine-tuning, which has no tangent "
            "to penalise; train a linearized vector, or set penalty to none"
        )
    parts = config.accumulation * engine.world_size
    if min(len(data), config.batch) < parts:
        raise BadConfig(
            f"a batch of {min(len(data), config.batch)} rows cannot be cut into {parts} parts "
            f"({config.accumulation} micro-batches on {engine.world_size} workers)"
        )
    curvatures = MergedStatistics(engine.device)
    with deterministic(engine.device):
        for step in range(start_step, config.steps):
            everyone = known(step)
            stores = other_tasks(config.penalty, step, everyone, config.penalty_batch)
            strength = config.strength_against(len(everyone))
            curvature = curvatures(everyone) if config.penalty == "curvature" else None
            shown: list[Tensor] = []  # read after the step, to wait for an accelerator once
            for micro in range(config.accumulation):
                share = slice(micro * engine.world_size + engine.rank, None, parts)
                task, penalty = losses(engine, backbone, head, data, stores, config, step, share)
                if curvature is not None:
                    penalty = curvature.penalty(engine.module.tau_by_block()) / parts
                loss = task + strength * penalty
                # Shares add up to the loss of the step, and engines average over ranks.
                engine.backward(loss * engine.world_size)
                shown += [task.detach(), penalty.detach()]
            rate = schedule(config.learning_rate, step, config.steps, config.warmup_fraction)
            *shares, norm = torch.stack([*shown, engine.step(rate)]).tolist()
            shares = [x * engine.world_size for x in shares]
            loss_sum, penalty_sum = sum(shares[0::2]), sum(shares[1::2])
            seen = penalty_sum if stores or curvature is not None else None
            record = StepRecord(step, config.steps, loss_sum, seen, norm, rate)
            if on_step is not None and on_step(record):
                return


class MergedStatistics:
    """The statistics of all other tasks as one; merged again only when they change."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.shared: list[Statistics] = []
        self.statistics: Statistics | None = None

    def __call__(self, stores: Sequence[Store]) -> Statistics | None:
        """None if there is no other task yet. Raises BadConfig if one has no statistics."""
        without = [store.name for store in stores if store.statistics is None]
        if without:
            raise BadConfig(f"the curvature penalty needs statistics, and {without} gave none")
        shared = [store.statistics for store in stores if store.statistics is not None]
        if shared and [*map(id, shared)] != [*map(id, self.shared)]:
            self.shared, self.statistics = shared, merged(shared).to(self.device)
        return self.statistics if shared else None


def losses(
    engine: Engine,
    backbone: Backbone,
    head: RowLoss,
    data: Labelled,
    stores: Sequence[Store],
    config: TrainConfig,
    step: int,
    share: slice,
) -> tuple[Tensor, Tensor]:
    """Task loss and penalty of a share of the step's rows, slice(part, None, parts): a micro-batch
    of a rank. Summed over all shares, they are the step's means."""
    rows = batch_rows(len(data), config.batch, config.seed, step)
    my_rows, my_others = rows[share], other_rows(stores, config, step)[share]
    own = [data.items[row] for row in my_rows]
    others = [store.items[row] for store, row, _ in my_others]
    features, tangent = engine(backbone.collate([*own, *others]))  # ONE forward for both
    features_BD = features[: len(own)]
    tangent_BD, other_tangent_PD = tangent.tensor_split([len(own)])
    labels_B = data.labels[my_rows].to(engine.device)
    task = head.losses(features_BD + tangent_BD, labels_B).sum() / len(rows)
    feature_norm_P = torch.tensor([store.feature_norm for store, _, _ in my_others])
    weight_P = torch.tensor([weight for _, _, weight in my_others]).to(engine.device)
    sizes_P = relative_tau_jp(other_tangent_PD, config.norm, feature_norm_P.to(engine.device))
    penalty = (weight_P * sizes_P).sum()
    turns = Counter(store.name for store in stores)  # a mixed step may name one many times
    for store in {store.name: store for store in stores}.values():
        if not store.items and store.statistics is not None:
            stated = store.statistics.penalty(engine.module.tau_by_block())
            # The root at tau = 0 has no gradient.
            stated = stated if config.norm == "l2_squared" else stated.clamp_min(1e-24).sqrt()
            penalty = penalty + turns[store.name] * stated / (len(stores) * share.step)
    return task, penalty


def other_rows(
    stores: Sequence[Store], config: TrainConfig, step: int
) -> list[tuple[Store, int, float]]:
    """The rows that penalise a step, each with its weight in the mean over tasks of row means.

    A mixed step has one row of each of its stores, chosen by its position over all steps.
    """
    weighted = []
    for place, store in enumerate(stores, step * config.penalty_batch):
        if store.items or store.statistics is None:
            many, turn = (1, place) if config.penalty == "mixed" else (config.penalty_batch, step)
            rows = batch_rows(len(store.items), many, config.seed, turn)
            weighted += [(store, row, 1 / (len(stores) * len(rows))) for row in rows]
    return weighted
