"""Frozen classification heads: logits = s W f / |f|, with unit rows in W.

They are computed once from theta0: from class names by the text tower, or as class means of
features.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tacl.backbone import Backbone
from tacl.data.given import class_numbers
from tacl.errors import BadColumns, BadConfig, BadSample, BaseMismatch, EmptySplit
from tacl.vectors.params import Params


class RowLoss(Protocol):
    """The part of a head, or of several joined, that the training loop uses: the loss per row."""

    def losses(self, features_BD: Tensor, labels_B: Tensor) -> Tensor: ...
    def to(self, device: torch.device | str, /) -> Self: ...


@dataclass(frozen=True)
class Head:
    """A classifier. Row c of weight_CD is of classes[c], and of length 1 unless a probe learned it.

    `scale` multiplies cosines, so logits have no unit. If there is a `narrow_CD`, `weight_CD` reads
    all views of a row (`beside`), and `narrow_CD` reads f + J tau alone, for use where nothing else
    is known, as in an exported model.

    Raises ValueError unless there is one class for each row.
    Source: CLIP, arXiv 2103.00020, classifies by scaled cosines.
    """

    weight_CD: Tensor
    scale: float
    classes: tuple[str, ...]
    narrow_CD: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.classes) != self.weight_CD.shape[0]:
            raise ValueError(f"{self.weight_CD.shape[0]} rows for {len(self.classes)} classes")

    def logits(self, features_BD: Tensor) -> Tensor:
        """Logits [B, C] of features before normalisation."""
        return self.of_unit(normalize(features_BD, dim=-1))

    def of_unit(self, unit_BD: Tensor) -> Tensor:
        """Logits [B, C] of features of length 1, which several heads may share."""
        return self.scale * unit_BD @ self.weight_CD.T

    def views(self, plain_BE: Tensor, moved_BD: Tensor) -> Tensor:
        """What this head reads of rows, given them at theta0 and f(x) + J(x) tau. Raises
        BaseMismatch when it was fitted on other inner blocks."""
        if self.narrow_CD is None:
            return moved_BD
        return self.own_views(beside(plain_BE, moved_BD), moved_BD)

    def own_views(self, seen_BV: Tensor, moved_BD: Tensor) -> Tensor:
        """Like `views`, given all views of rows (`beside`)."""
        if self.narrow_CD is None:
            return moved_BD
        if self.weight_CD.shape[1] not in (seen_BV.shape[-1], 3 * moved_BD.shape[-1]):
            raise BaseMismatch("heads were fitted on other inner blocks; start another home")
        return self.read(seen_BV)

    def read(self, rows_BV: Tensor) -> Tensor:
        """The columns of rows that it has weights for: heads of an earlier version of TACL do not
        read inner blocks, which come last."""
        return rows_BV[..., : self.weight_CD.shape[1]]

    def narrow(self) -> Head:
        """The head that reads the moved features alone: f + J tau, [B, D]."""
        if self.narrow_CD is None:
            return self
        return Head(self.narrow_CD, self.scale, self.classes)

    def losses(self, features_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Cross-entropy of each row, [B], in nats; `labels_B`: int64 numbers of `classes`."""
        return cross_entropy(self.logits(features_BD), labels_B, reduction="none")

    def to(self, device: torch.device | str) -> Head:
        """A copy with its weights on this device, in the dtype that they have."""
        narrow_CD = None if self.narrow_CD is None else self.narrow_CD.to(device)
        return Head(self.weight_CD.to(device), self.scale, self.classes, narrow_CD)

    def to_params(self) -> Params:
        """The head as tensors alone, so that it can be stored in a file of tensors."""
        names = torch.frombuffer(bytearray(json.dumps(self.classes).encode()), dtype=torch.uint8)
        scale = torch.tensor(self.scale, dtype=torch.float64)
        found = {"weight": self.weight_CD.cpu().contiguous(), "scale": scale, "classes": names}
        if self.narrow_CD is not None:
            found["narrow"] = self.narrow_CD.cpu().contiguous()
        return found

    @staticmethod
    def from_params(params: Params) -> Head:
        """The head that `to_params` wrote; raises KeyError or ValueError for anything else."""
        classes = json.loads(bytes(params["classes"].tolist()).decode())
        return Head(params["weight"], params["scale"].item(), tuple(classes), params.get("narrow"))


def beside(plain_BE: Tensor, moved_BD: Tensor) -> Tensor:
    """Views of rows, [B, 2D + E]: z = f + J tau, f, J tau, and the outputs of inner blocks at
    theta0, if plain_BE has them beside f; each view, and each block's output, has length 1.

    f is not affected by other tasks' vectors; J tau shows whose vector moves the row.
    """
    width = moved_BD.shape[-1]
    plain_BD, inner_BK = plain_BE[..., :width], plain_BE[..., width:]
    views = (moved_BD, plain_BD, moved_BD - plain_BD)
    inner_BK = inner_BK / plain_BD.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return torch.cat([*(normalize(view_BD, dim=-1) for view_BD in views), inner_BK], -1)


def readable_class(name: str) -> str:
    """`AnnualCrop_land` -> `Annual Crop land`: underscores and camel case become spaces."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name.replace("_", " "))
    return " ".join(spaced.split())


def text_head(
    backbone: Backbone, classes: Sequence[str], templates: Sequence[str] | None = None
) -> Head:
    """Unit text features of every class, averaged over the templates, normalised again: [C, D].

    Templates have {} where the class name goes; None stands for the base model's. Raises BadConfig
    for one without {}, BadBase for a base model without a text tower. Source: CLIP, arXiv
    2103.00020.
    """
    templates = tuple(templates or backbone.templates)
    for template in templates:
        if "{}" not in template:
            raise BadConfig(f"template {template!r} has no {{}} where the class name goes")
    texts = [t.replace("{}", readable_class(name)) for name in classes for t in templates]
    features_CTD = backbone.encode_texts(texts).view(len(classes), len(templates), -1)
    weight_CD = normalize(normalize(features_CTD, dim=-1).mean(1), dim=-1)
    return Head(weight_CD, backbone.logit_scale, tuple(classes))


def prototype_head(
    features_ND: Tensor, labels_N: Tensor, classes: Sequence[str], scale: float = 16.0
) -> Head:
    """Normalised class means of theta0 features; every class needs a labelled row.

    `labels_N`: int64 numbers of `classes`; `scale` multiplies cosines. Raises LabelOutOfRange,
    BadColumns for features of another shape, BadSample for features with NaN or infinities,
    EmptySplit for a class without rows. Source: class means as prototypes, arXiv 1703.05175.
    """
    if features_ND.ndim != 2:
        raise BadColumns(
            f"features are {list(features_ND.shape)}; give a row for each label, N x D"
        )
    labels_N = class_numbers(labels_N, len(features_ND), len(classes)).to(features_ND.device)
    if not features_ND.isfinite().all():
        raise BadSample("features hold NaN or infinities, so class means would be no numbers")
    counts_C = torch.bincount(labels_N, minlength=len(classes))
    empty = [name for name, count in zip(classes, counts_C.tolist(), strict=True) if not count]
    if empty:
        raise EmptySplit(f"no training rows of the classes {empty}: they would have no prototype")
    sums_CD = features_ND.new_zeros(len(classes), features_ND.shape[1])
    sums_CD.index_add_(0, labels_N, features_ND)
    return Head(normalize(sums_CD / counts_C.unsqueeze(1), dim=-1), scale, tuple(classes))


def starts(heads: Iterable[Head]) -> list[int]:
    """The index of each head's first column among the columns of all."""
    return [*accumulate((len(head.classes) for head in heads), initial=0)][:-1]


def union(heads: Sequence[Head]) -> Head:
    """One head over the classes of all tasks, in the order given, at the scale of the first."""
    scale = heads[0].scale
    classes = tuple(name for head in heads for name in head.classes)
    return Head(torch.cat([head.scale / scale * head.weight_CD for head in heads]), scale, classes)
