"""One suite with one seed: base, tasks, heads and samples, and what is trained from them.

Whatever takes time is a cell. Nothing is read, prepared or encoded before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from cluster.learner.artifacts import Passes
from cluster.storage.blobs import Blobs
from jobs.experiments.cache import Cell, Cells, Made
from jobs.experiments.rows import Rows, stored_rows, without_test_rows
from jobs.experiments.suites import Suite, device
from tacl.backbone import Backbone, Item, load_backbone
from tacl.curvature import Statistics, measure
from tacl.data.batches import Labelled
from tacl.data.splits import sample_rows
from tacl.evaluation.tangents import cached_tangents
from tacl.heads.head import Head
from tacl.models.ordinary import OrdinaryEncoder
from tacl.training.config import TrainConfig
from tacl.training.deterministic import cublas_workspaces
from tacl.training.loop import Store
from tacl.vectors.params import Params


class LoadedBase(Passes):
    """A loaded encoder on the device of this process; shared by all seeds."""

    @staticmethod
    def of(suite: Suite) -> LoadedBase:
        cublas_workspaces(device())
        backbone = load_backbone(suite.base)
        backbone.trainable = suite.trainable or backbone.trainable
        backbone.encoder.to(device())
        return LoadedBase(backbone)

    def ordinary(self) -> OrdinaryEncoder:
        return OrdinaryEncoder(self.backbone.encoder, self.backbone.trainable)

    @cached_property
    def _moved(self) -> OrdinaryEncoder:
        return self.ordinary()

    def encoded(self, items: Sequence[Item], tau: Params | None = None) -> Tensor:
        """f(x; theta0 + tau), [N, D]."""
        if not tau:
            return self.features(items)
        return cached_tangents(self._moved, self.backbone, items, {"tau": tau}).features_ND


class Experiment:
    """`pool`: the tasks of the suite, in its order. The seed determines splits, samples and
    batches. Rows that are also test rows of another task, including `hidden` ones, are left out."""

    def __init__(
        self,
        suite: Suite,
        seed: int,
        data: Path,
        cells: Cells,
        base: LoadedBase,
        hidden: Sequence[str] = (),
    ) -> None:
        self.suite, self.seed, self.cells, self.base = suite, seed, cells, base
        self.pool = suite.names
        self._judged = dict.fromkeys([*hidden, *self.pool])
        self._data = data
        self._blobs = Blobs(cells.folder / "blobs")
        self._read: dict[str, Cell] = {}
        self._known: dict[str, Rows] = {}
        self._stores: dict[tuple[str, int | None], Store] = {}
        self._statistics: dict[str, Statistics] = {}

    def of(self, suite: Suite, hidden: Sequence[str] = ()) -> Experiment:
        """The same data, cells and encoder with another suite."""
        return Experiment(suite, self.seed, self._data, self.cells, self.base, hidden)

    @property
    def backbone(self) -> Backbone:
        return self.base.backbone

    def cell(
        self, kind: str, make: Callable[[], Made], what: str, /, *heads: str, **decides: Any
    ) -> Cell:
        """A cell, stored under all that determines it; the message about it includes the seed.
        Every key has the encoder, its trained blocks, and the prompts of those of the used `heads`
        with prompts of their own."""
        key = {"base": self.backbone.digest, "trainable": list(self.backbone.trainable), **decides}
        if own := {t: list(found) for t in heads if (found := self.suite.source(t).templates)}:
            key["templates"] = own
        return self.cells.get(kind, key, make, f"{what}, seed {self.seed}")

    def config(self, task: str, **changed: Any) -> TrainConfig:
        """The settings of a task's training; `changed` are fields of the result."""
        rows = self.rows(task).count("train")
        return self.suite.config(task, rows, self.seed, self.backbone.trainable, **changed)

    def rows(self, task: str) -> Rows:
        if task not in self._known:
            others = [self._stored(other) for other in self._judged if other != task]
            cell = without_test_rows(self.cells, self._blobs, task, self._stored(task), others)
            self._known[task] = Rows(cell, self._blobs, self.backbone, self.seed)
        return self._known[task]

    def _stored(self, task: str) -> Cell:
        if task not in self._read:
            places, source = (self.cells, self._blobs, self._data), self.suite.source(task)
            self._read[task] = stored_rows(*places, source, self.backbone.modality, self.seed)
        return self._read[task]

    def head(self, task: str) -> Head:
        """The head from class names if the base has a text tower, else from class means."""
        rows, templates = self.rows(task), self.suite.source(task).templates

        def make() -> Made:
            head = self.base.head_from(rows.classes, lambda: rows.train, templates)
            return {}, head.to_params()

        data = None if self.backbone.head_kind == "text" else rows.digest("train")
        made = self.cell("head", make, f"of {task}", task, classes=rows.classes, data=data)
        return Head.from_params(made.tensors())

    def head_from(self, task: str, data: Labelled) -> Head:
        """The head of a new task, of which only the labels of `data` are known."""
        if self.backbone.head_kind == "text":
            return self.head(task)
        return self.base.head_from(self.rows(task).classes, lambda: data)

    def store(self, task: str, most: int | None = None) -> Store:
        """The task's shared samples without probe rows; at most `most` of them, chosen by seed."""
        if (task, most) not in self._stores:
            items = self.rows(task).items("shard")
            chosen = sample_rows(range(len(items)), most or len(items), self.seed)
            norm = self.feature_norm(task) if self.suite.relative else 1.0
            self._stores[task, most] = Store(task, [items[row] for row in chosen], norm)
        return self._stores[task, most]

    def statistics(self, task: str) -> Statistics:
        """The statistics of a task for the curvature penalty; hundreds of MB, so no cell."""
        if task not in self._statistics:
            self.cells.say(f"statistics of {task}, seed {self.seed}")
            items = self.rows(task).items("shard")
            self._statistics[task] = measure(self.backbone, items, seed=self.seed)
        return self._statistics[task]

    def feature_norm(self, task: str) -> float:
        """Mean |f(x; theta0)|_2 over the task's probe."""

        def make() -> Made:
            features_ND = self.base.encoded(self.rows(task).items("probe"))
            return {"norm": features_ND.norm(dim=-1).mean().item()}, {}

        data = self.rows(task).digest("shard")
        return self.cell("norm", make, f"of {task}", data=data).facts["norm"]

    def features(self, task: str, part: str) -> Tensor:
        """f(x; theta0) of a part of a task's rows, [N, D]."""
        return self.encoding(task, part).tensors()["features"]

    def plain(self, task: str, part: str) -> Tensor:
        """Rows at theta0 as heads read them, [N, E]."""
        return self.seen_plain(task, part).tensors()["plain"]

    def seen_plain(self, task: str, part: str) -> Cell:
        """The cell of `plain`."""
        items, data = self.rows(task).items, self.content(task, part)
        inner = list(self.backbone.inner)

        def make() -> Made:
            return {}, {"plain": self.base.plain(items(part))}

        return self.cell("plain", make, f"{part} of {task}", data=data, inner=inner)

    def encoding(
        self, task: str, part: str, tau: Callable[[], Params] = dict, key: str = "theta0"
    ) -> Cell:
        """The cell of f(x; theta0 + tau) of a part of a task's rows; `key` stands for tau."""
        rows = self.rows(task)

        def make() -> Made:
            return {}, {"features": self.base.encoded(rows.items(part), tau())}

        what = f"of {part} of {task} at {key[:8]}"
        return self.cell("features", make, what, data=self.content(task, part), tau=key)

    def content(self, task: str, part: str) -> list[str | int]:
        """What determines the rows of a part; of a random choice this includes the seed."""
        chosen = [self.seed] if ":" in part else []
        return [part, self.rows(task).digest(part), *chosen]
