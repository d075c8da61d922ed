"""Inputs and results of the work: blobs become prepared tensors, and results become blobs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cluster.domain.base import Base, BlobRef
from cluster.domain.compositions import Composition, Merged
from cluster.domain.methods import recipe_of
from cluster.domain.tasks import Options, Shard, VectorRef
from cluster.learner.feature_cache import kept
from cluster.learner.prepared import Prepared, SpillBuffer
from cluster.learner.theta0 import share
from cluster.storage import samples
from cluster.storage.drafts import scratch
from cluster.storage.home import Home
from tacl.backbone import Backbone, Item, load_backbone
from tacl.curvature import Statistics
from tacl.data.batches import Labelled, in_order
from tacl.data.splits import sample_rows
from tacl.errors import BaseMismatch, CorruptBlob
from tacl.evaluation.tangents import Cached, Moved, cached_tangents, moved_rows
from tacl.heads.head import Head, prototype_head, text_head
from tacl.heads.novelty import Novelty
from tacl.models.linearized import LinearizedEncoder, linearize
from tacl.models.mixed import summed
from tacl.training.config import Precision
from tacl.training.deterministic import cublas_workspaces
from tacl.training.loop import Store
from tacl.vectors.params import Params
from tacl.vectors.vector import TaskVector

BATCH = 64  # rows of one evaluation batch
T = TypeVar("T")


def given_device(gpus: float | None = None) -> str:
    """The device of this process's passes: the GPU that Ray gave it, else the CPU. `gpus`: the
    share of a GPU that the run has, 0 for none."""
    if gpus == 0 or sys.modules.get("ray") is None:  # tables are made without Ray
        return "cpu"
    from cluster.runtime.connection import has_gpu

    return _part_of(gpus) if has_gpu() and torch.cuda.is_available() else "cpu"


def asked_device(options: Options) -> str:
    """The device of the passes of a run whose options say how much of a GPU it has."""
    return _part_of(options.gpus_per_worker) if options.gpus_per_worker else "cpu"


def _part_of(gpus: float | None) -> str:
    """Limits this process to its share of the GPU's memory, so that other runs on it keep theirs;
    returns the device."""
    if gpus:
        torch.cuda.set_per_process_memory_fraction(min(1.0, gpus))
    return "cuda"


@lru_cache(maxsize=1)
def _loaded(spec: str, digest: str, device: str, bases: Path) -> Backbone:
    """The base model, cached for the next run of this process: theta0 is never written, and has no
    user's data. `digest` is a key because `spec` may name something else by then. On the CPU, all
    processes of the home share its memory by a file in `bases`."""
    cublas_workspaces(device)
    backbone = load_backbone(spec)
    if device == "cpu" and backbone.digest == digest:
        share(backbone, bases)
    backbone.encoder.to(device)
    return backbone


class Passes:
    """Passes through one loaded base. Results are float32 on the CPU, in the rows' order."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone

    def linearized(self, precision: Precision | None = None) -> LinearizedEncoder:
        """A new module whose tau is zero."""
        return linearize(self.backbone, torch.bfloat16 if precision == "bfloat16" else None)

    @cached_property
    def module(self) -> LinearizedEncoder:
        """A module for measuring; callers that set its tau must restore it."""
        return self.linearized()

    def tangents(self, items: Sequence[Item], taus: Mapping[str, Params]) -> Cached:
        """f(x; theta0) and J(x) tau for each tau, by a dual pass for each."""
        return cached_tangents(self.module, self.backbone, items, taus, BATCH)

    def moved(self, items: Sequence[Item], tau: Params) -> Moved:
        """Rows at theta0 as heads read them, and f + J tau of them, by one dual pass."""
        return moved_rows(self.module, self.backbone, items, tau, BATCH)

    @torch.no_grad()
    def features(self, items: Sequence[Item]) -> Tensor:
        """f(x; theta0), [N, D]."""
        encoder, collate = self.backbone.encoder, self.backbone.collate
        return in_order(items, BATCH, lambda some: (encoder(collate(some)),))[0]

    def head_from(
        self, classes: Sequence[str], rows: Callable[[], Labelled], templates: Sequence[str] = ()
    ) -> Head:
        """A head of class names if the base has a text tower, else of class means of `rows`."""
        if self.backbone.head_kind == "text":
            return text_head(self.backbone, classes, templates)
        data, scale = rows(), self.backbone.logit_scale
        return prototype_head(self.features(data.items), data.labels, classes, scale)

    def plain(self, items: Sequence[Item]) -> Tensor:
        """f(x; theta0) and the outputs of inner blocks beside it, [N, E]."""
        backbone = self.backbone
        return in_order(items, BATCH, lambda some: (backbone.plain(backbone.collate(some)),))[0]


class Materials(Passes):
    """One loaded base, and the blobs of one home; passes run on `device`.

    Raises BaseMismatch when the base is not the one that the work was made for.
    """

    def __init__(self, home: Home, base: Base, device: str = "cpu") -> None:
        self.blobs, self._cache = home.blobs(), home.path / "cache"
        self._probed: dict[str, Tensor] = {}  # features of the last two probes
        self._spill = SpillBuffer(self._cache)
        super().__init__(_loaded(base.spec, base.digest, device, self._cache / "bases"))
        if self.backbone.digest != base.digest:
            raise BaseMismatch(
                f"base {base.spec} has digest {self.backbone.digest[:12]} here, and this home was "
                f"made with {base.digest[:12]}: the weights or the preprocessing have changed. "
                "Restore them, or start another home"
            )

    def labelled(
        self, data: BlobRef, most: int | None = None, each_class: bool = False
    ) -> Labelled:
        """All rows, or up to `most` drawn by seed; with `each_class`, one of each class first."""
        raws, labels = samples.labelled_rows(self.blobs, data)
        of = labels if each_class else None
        rows = sample_rows(range(len(raws)), most or len(raws), 0, of)
        return Labelled(self.prepared([raws[row] for row in rows]), torch.tensor(labels)[rows])

    def cut(self, data: BlobRef) -> int:
        """The number of rows that are texts too long for the base model to read whole."""
        if self.backbone.modality == "image":
            return 0  # without reading all pictures
        return sum(map(self.backbone.is_cut, samples.labelled_rows(self.blobs, data)[0]))

    def shard_items(self, shard: BlobRef) -> Sequence[Item]:
        """The rows of a shard that steps may see."""
        read = partial(samples.training_inputs, self.blobs, shard)
        return Prepared(read, self.backbone.prepare, self._spill)

    def probe_items(self, shard: BlobRef) -> list[Item]:
        return self.prepared(samples.probe_inputs(self.blobs, shard))

    def feature_norm(self, shard: BlobRef) -> float:
        """Mean |f(x; theta0)|_2, estimated on the 64 probe rows, to within a few percent."""
        return self.probe_features(shard).norm(dim=-1).mean().item()

    def probe_features(self, shard: BlobRef) -> Tensor:
        """f(x; theta0) of a shard's probe rows, [N, D]. Cached in a file, as every training needs
        those of all shards; the last two also in memory, as a task is compared with one after the
        other."""
        if (found := self._probed.pop(shard.digest, None)) is None:
            # With another number of threads, or another device, the last bits differ.
            how = f"{self.backbone.device.type}{torch.get_num_threads()}"
            file = self._cache / "probes" / f"{self.backbone.digest}-{shard.digest}-{how}"
            found = kept(file, lambda: self.features(self.probe_items(shard)))
        self._probed = {**dict([*self._probed.items()][-1:]), shard.digest: found}
        return found

    def store(self, shard: Shard, feature_norm: float) -> Store:
        """A shard as a store for steps."""
        return Store(shard.task, self.shard_items(shard.blob), feature_norm)

    def statistics_store(self, task: str, statistics: str) -> Store:
        """A store of a task that shares statistics instead of samples. Raises BaseMismatch."""
        found = Statistics.load(self.blobs.local_path(statistics))
        if found.base != self.backbone.digest:
            raise BaseMismatch(f"the statistics of {task} belong to the base {found.base[:12]}")
        return Store(task, [], math.nan, found.to(self.backbone.device))

    def vector(self, ref: VectorRef | Merged) -> TaskVector:
        """Loads a vector. Raises CorruptBlob when the file is damaged, BaseMismatch when it is of
        another base model."""
        vector = TaskVector.load(self.blobs.local_path(ref.blob))
        merged = isinstance(ref, Merged)
        what = "a merged vector" if merged else f"version {ref.version} of {ref.task}"
        if vector.digest != ref.digest:
            raise CorruptBlob(
                f"blob {ref.blob} should hold {what}, digest {ref.digest[:12]}; it holds "
                f"{vector.digest[:12]}"
            )
        vector.require_base(self.backbone.digest, what)
        return vector

    def tau(self, model: Composition) -> Params:
        """tau of a composition, which it adds to theta0, dense float32."""
        if model.merged is not None:
            return self.vector(model.merged).to_params()
        taus = {t.vector.digest: self.vector(t.vector).to_params() for t in model.terms}
        return summed(recipe_of(model.terms), taus)

    def head(self, blob: str) -> Head:
        return self._read(blob, "head", Head.from_params)

    def novelty(self, blob: str) -> Novelty:
        return self._read(blob, "model of novelty", Novelty.from_params)

    def _read(self, blob: str, what: str, read: Callable[[Params], T]) -> T:
        path = self.blobs.local_path(blob)
        try:
            return read(load_file(path))
        except (SafetensorError, KeyError, ValueError) as error:
            raise CorruptBlob(f"blob {blob} is not a complete {what}: {error!r}") from error

    def put_tensors(self, tensors: Params) -> str:
        return self.put(lambda path: save_file(tensors, path))

    def put(self, save: Callable[[Path], None]) -> str:
        """Stores the file that `save` writes as a blob; returns the digest."""
        with scratch(self._cache) as folder:
            save(path := folder / "file.safetensors")
            return self.blobs.put(path)

    def prepared(self, raws: Sequence[bytes | str]) -> list[Item]:
        return [self.backbone.prepare(raw) for raw in raws]
