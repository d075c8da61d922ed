"""A base model with all that is needed to use it: theta0, preprocessing, head kind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from typing import Literal

import torch
from torch import Tensor, nn

from tacl.backbone.inner import channels_last, inner_blocks, watched
from tacl.backbone.inputs import Batch, Inputs, Item, Texts
from tacl.backbone.padding import cast
from tacl.dual.encode import encode
from tacl.errors import BadBase
from tacl.spec import BaseSpec, HeadKind
from tacl.vectors import params

TEXTS_AT_ONCE = 64


@dataclass
class Backbone:
    """The base model: encoder(batch) -> features [B, D] before normalisation, in eval mode.

    `load` and `wrap` make one; its weights never change. `digest`, a sha256 in hex over theta0 and
    preprocessing, identifies it in vectors.

    `trainable`: fnmatch patterns over the names of encoder.named_parameters(), the blocks that a
    task vector has by default. `text_tower` maps texts to features [N, D] in the space of the
    encoder's features; without one, heads are prototypes. `variant` distinguishes the function
    from others with the same theta0, for example by its pooling; it is part of the digest.
    `inner`: names of the blocks whose outputs heads read beside the features.
    """

    spec: BaseSpec
    encoder: nn.Module
    inputs: Inputs
    trainable: tuple[str, ...]
    logit_scale: float
    templates: tuple[str, ...] = ()
    text_tower: Callable[[Sequence[str]], Tensor] | None = None
    variant: str = ""
    digest: str = field(init=False)  # taken at once: later the encoder may be linearized in place
    inner: tuple[str, ...] = field(init=False)
    _channels_last: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.encoder.eval().requires_grad_(False)
        self.inner = inner_blocks(self.encoder)
        preprocessing = {"inputs": self.inputs.description(), "variant": self.variant}
        self._channels_last = channels_last(self.encoder)
        if self.inner and self._channels_last:  # an earlier version averaged these
            preprocessing["inner"] = "channels last"
        theta0 = params.digest(self.encoder.state_dict())
        text = json.dumps([theta0, preprocessing], sort_keys=True)
        self.digest = hashlib.sha256(text.encode()).hexdigest()

    @property
    def modality(self) -> Literal["image", "text"]:
        """The kind of its inputs; "text" also for a wrapped module, which reads tensors."""
        return "image" if self.inputs.modality == "image" else "text"

    @property
    def head_kind(self) -> HeadKind:
        """Whether heads are made from class names, by `text_head`, or from labelled rows, by
        `prototype_head`."""
        return "text" if self.text_tower else "prototype"

    @property
    def device(self) -> torch.device:
        """The device of theta0, on which `collate` puts batches."""
        return next(chain(self.encoder.parameters(), self.encoder.buffers())).device

    def prepare(self, raw: bytes | str) -> Item:
        """Makes a row of one input: uint8 [3, S, S] of a picture's bytes, int64 [L] of a text.

        Raises BadSample when it is unreadable, ModalityMismatch for a text where images are read,
        and for anything if the base is a wrapped module, which reads tensors.
        """
        return self.inputs.prepare(raw)

    def is_cut(self, raw: bytes | str) -> bool:
        """Whether a text is longer than the base model reads. Raises BadSample."""
        return isinstance(self.inputs, Texts) and self.inputs.is_cut(raw)

    def collate(self, items: Sequence[Item]) -> Batch:
        """Makes a batch on `device`: float32 [B, 3, S, S] of pictures, input_ids and
        attention_mask, int64 [B, L], of texts, the stack [B, ...] of a wrapped module's rows,
        in the precision of its weights."""
        batch = self.inputs.collate(items, self.device)
        values = chain(self.encoder.parameters(), self.encoder.buffers())
        dtypes = (value.dtype for value in values if value.is_floating_point())
        return cast(batch, next(dtypes, torch.float32))  # as in a pass of the linearized model

    def watched(self, batch: Batch) -> AbstractContextManager[Callable[[Tensor], Tensor]]:
        """Records inner blocks in one pass over the batch: see `tacl.backbone.inner.watched`."""
        return watched(self.encoder, self.inner, batch, self._channels_last)

    @torch.no_grad()
    def plain(self, batch: Batch) -> Tensor:
        """f(x; theta0) and the outputs of inner blocks beside it, plain_BE."""
        with self.watched(batch) as plain:
            return plain(encode(self.encoder, {}, batch))

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Features [N, D] of texts in the space of the encoder's features, float32, on the CPU.

        Raises BadBase where there is no text tower. Source: CLIP, arXiv 2103.00020.
        """
        if self.text_tower is None:
            raise BadBase(f"base {self.spec} has no text tower; its heads are class prototypes")
        chunks = [texts[i : i + TEXTS_AT_ONCE] for i in range(0, len(texts), TEXTS_AT_ONCE)]
        return torch.cat([self.text_tower(chunk).float().cpu() for chunk in chunks])


def matching(encoder: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Names of the parameters that some pattern matches, in the module's order. A parameter with
    several names has the first, and a pattern may match any of them."""
    first = {id(value): name for name, value in encoder.named_parameters()}
    everything = encoder.named_parameters(remove_duplicate=False)
    found = {
        first[id(value)]
        for name, value in everything
        if any(fnmatchcase(name, p) for p in patterns)
    }
    return [name for name in first.values() if name in found]


def present_blocks(spec: BaseSpec, encoder: nn.Module, table: Sequence[str]) -> tuple[str, ...]:
    """The patterns of a table that match a parameter of this encoder; BadBase when none does."""
    names = [name for name, _ in encoder.named_parameters()]
    found = tuple(p for p in table if any(fnmatchcase(name, p) for name in names))
    if not found:
        raise spec.unusable(
            f"none of the known transformer blocks {list(table)} is among its "
            f"{len(names)} parameters, such as {names[:3]}; this family is not supported"
        )
    return found
