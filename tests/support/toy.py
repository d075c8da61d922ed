"""An encoder of six numbers, small enough for explicit Jacobians; a task and stores of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from tacl.backbone import Backbone, BaseSpec, Batch, Item
from tacl.data.batches import Labelled
from tacl.heads.head import Head, prototype_head
from tacl.models.linearized import LinearizedEncoder
from tacl.training.config import TrainConfig
from tacl.training.loop import Engine, PlainEngine, StepRecord, Store, train
from tacl.vectors.params import Params

INPUTS, FEATURES = 6, 5

CONFIG = TrainConfig(
    steps=8,
    learning_rate=1e-2,
    strength=0.5,
    seed=3,
    trainable=("*",),
    batch=8,
    penalty_batch=4,
    clip=0.5,
)


@dataclass
class Numbers:
    """A backbone whose items are vectors; it records the rows of which a gradient was taken."""

    modality: Literal["image", "text"] = "image"
    learnt: list[Item] = field(default_factory=list)

    def prepare(self, raw: bytes | str) -> Item:
        raise NotImplementedError

    def collate(self, items: Sequence[Item], device: torch.device) -> Batch:
        if torch.is_grad_enabled():
            self.learnt.extend(items)
        return torch.stack(list(items)).to(device)

    def description(self) -> dict[str, Any]:
        return {}


class Enlarged(nn.Module):
    """`factor` times the features of `encoder`."""

    def __init__(self, encoder: nn.Module, factor: float) -> None:
        super().__init__()
        self.encoder, self.factor = encoder, factor

    def forward(self, batch: Tensor) -> Tensor:
        return self.factor * self.encoder(batch)


def backbone(dtype: torch.dtype = torch.float64, factor: float = 1.0) -> Backbone:
    torch.manual_seed(0)
    layers = nn.Linear(INPUTS, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, FEATURES)
    encoder = Enlarged(nn.Sequential(*layers), factor).to(dtype).eval()
    return Backbone(BaseSpec("timm", "numbers"), encoder, Numbers(), ("*",), 16.0)


def inputs(rows: int, seed: int, dtype: torch.dtype = torch.float64) -> list[Item]:
    """Rows around a random centre: every seed is another task."""
    random = torch.Generator().manual_seed(seed)
    centre = torch.randn(INPUTS, generator=random)
    return list((centre + 0.5 * torch.randn(rows, INPUTS, generator=random)).to(dtype))


@dataclass
class Scene:
    """Task 0, with two classes, and what other tasks share."""

    backbone: Backbone
    head: Head
    data: Labelled
    stores: list[Store]

    def module(self, dtype: torch.dtype | None = None) -> LinearizedEncoder:
        return LinearizedEncoder(self.backbone.encoder, dtype=dtype)

    def engine(self, config: TrainConfig) -> PlainEngine:
        dtype = torch.bfloat16 if config.precision == "bfloat16" else None
        return PlainEngine(self.module(dtype), config)

    def run(self, engine: Engine, config: TrainConfig, **more: Any) -> list[StepRecord]:
        """Train the engine; `known` may be given, by default it has all stores from the start."""
        records: list[StepRecord] = []
        known = more.pop("known", lambda step: self.stores)
        places = (engine, self.backbone, self.head, self.data, known, config)
        train(*places, on_step=records.append, **more)
        return records

    def trained(self, config: TrainConfig = CONFIG, **changed: Any) -> Params:
        engine = self.engine(config := replace(config, **changed))
        self.run(engine, config)
        return engine.module.tau_dict()


def scene(dtype: torch.dtype = torch.float64, others: int = 2, factor: float = 1.0) -> Scene:
    base = backbone(dtype, factor)
    items = inputs(40, 0, dtype)
    x_ND = torch.stack(items)
    labels_N = (x_ND[:, 0] + x_ND[:, 1] > (x_ND[:, 0] + x_ND[:, 1]).median()).long()
    with torch.no_grad():
        head = prototype_head(base.encoder(x_ND), labels_N, ("under", "over"))
    stores = [store(base, f"other{t}", inputs(30, t, dtype)) for t in range(1, others + 1)]
    return Scene(base, head, Labelled(items, labels_N), stores)


@torch.no_grad()
def store(base: Backbone, name: str, items: list[Item]) -> Store:
    return Store(name, items, base.encoder(torch.stack(items)).norm(dim=-1).mean().item())


def jacobian(encoder: nn.Module, items: Sequence[Item]) -> Tensor:
    """J(x) of every item at theta0, [N, D, P]; P runs over the named parameters in their order."""
    theta0 = {name: value.detach() for name, value in encoder.named_parameters()}

    def features(theta: Params, x: Tensor) -> Tensor:
        return functional_call(encoder, theta, (x.unsqueeze(0),))[0]

    by_name = vmap(jacrev(features), in_dims=(None, 0))(theta0, torch.stack(list(items)))
    return torch.cat([by_name[name].flatten(2) for name in theta0], dim=2)


def flat(tau: Params) -> Tensor:
    """tau as one vector [P], in the order of `jacobian`."""
    return torch.cat([value.flatten() for value in tau.values()])


def random_tau(encoder: nn.Module, size: float = 0.1, seed: int = 7) -> Params:
    random = torch.Generator().manual_seed(seed)
    return {
        name: size * torch.randn(value.shape, generator=random).to(value.dtype)
        for name, value in encoder.named_parameters()
    }
