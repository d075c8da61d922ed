"""Encoders by name, with or without weights: the cost of a step does not depend on their values.

Names are those of bases, SCHEME:NAME[@WEIGHTS][?size=N]; without weights, and for a text encoder
without files, weights are random. `hf:minilm` and `hf:bert` are shapes of text encoders.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tacl.backbone import BaseSpec, Batch, Item, clip, hf, load_backbone, vision
from tacl.backbone.core import present_blocks
from tacl.models.linearized import LinearizedEncoder

TOKENS = 32  # of a text
SHAPES: dict[str, dict[str, int]] = {
    "bert": {},
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
}


@dataclass(frozen=True)
class Subject:
    """An encoder in eval mode, the blocks that are trained, and batches of random inputs. It also
    acts as a backbone whose inputs are already prepared."""

    encoder: nn.Module
    trainable: tuple[str, ...]
    batch: Callable[[int, torch.Generator], Batch]
    digest = "made up"

    @property
    def width(self) -> int:
        """D of its features."""
        with torch.no_grad():
            return self.encoder(self.batch(1, torch.Generator())).shape[-1]

    def linearized(self, device: str, dtype: torch.dtype | None = None) -> LinearizedEncoder:
        """A module with weights of its own."""
        return LinearizedEncoder(copy.deepcopy(self.encoder).to(device), self.trainable, dtype)

    def on(self, device: str) -> Any:
        """A copy with weights of its own, as a backbone."""
        return replace(self, encoder=copy.deepcopy(self.encoder).to(device))

    def items(self, batch: Batch) -> list[Item]:
        """Pictures, or the tokens of texts, which all have one length."""
        return list(batch if isinstance(batch, Tensor) else batch["input_ids"])

    def collate(self, items: Sequence[Item]) -> Batch:
        rows = torch.stack(list(items)).to(self.device)
        if rows.is_floating_point():
            return rows
        return {"input_ids": rows, "attention_mask": torch.ones_like(rows)}

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device


def subject(text: str) -> Subject:
    """The encoder of that name. Raises BadBase and BaseNotFound."""
    spec = BaseSpec.parse(text)
    makers = {"open_clip": _random_clip, "timm": _random_vision, "hf": _random_text}
    stored = spec.scheme == "embedded" or spec.weights or spec.is_folder
    found = _stored(spec) if stored else makers[spec.scheme](spec)
    found.encoder.eval().requires_grad_(False)
    return found


def _stored(spec: BaseSpec) -> Subject:
    backbone = load_backbone(str(spec))
    about = backbone.inputs.description()
    if backbone.modality == "text":
        return Subject(backbone.encoder, backbone.trainable, _texts(spec.size or TOKENS, 1000))
    return Subject(backbone.encoder, backbone.trainable, _images(about["size"]))


def _random_clip(spec: BaseSpec) -> Subject:
    import open_clip

    if spec.name not in open_clip.list_models():
        raise spec.missing(f"open_clip has no model {spec.name!r}")
    model: Any = open_clip.create_model(
        spec.name, pretrained=None, pretrained_text=False, force_image_size=spec.size
    )
    trainable = present_blocks(spec, model.visual, clip.TRAINABLE)
    return Subject(model.visual, trainable, _images(model.visual.image_size[0]))


def _random_vision(spec: BaseSpec) -> Subject:
    import timm

    if not timm.is_model(spec.name):
        raise spec.missing(f"timm has no model {spec.name!r}")
    model: Any = timm.create_model(spec.name, pretrained=False, num_classes=0)
    size = vision.sized(spec, model, model.pretrained_cfg["input_size"][-1])
    return Subject(model, vision.TRAINABLE, _images(size))


def _random_text(spec: BaseSpec) -> Subject:
    from transformers import BertConfig, BertModel

    if spec.name not in SHAPES:
        raise spec.missing(f"no directory {spec.name}, and no shape of that name: {sorted(SHAPES)}")
    length = spec.size or TOKENS
    shape: dict[str, Any] = {**SHAPES[spec.name], "attn_implementation": "sdpa"}
    config = BertConfig(**shape, max_position_embeddings=max(512, length))
    encoder = hf.SentenceEncoder(BertModel(config, add_pooling_layer=False), "mean")
    trainable = present_blocks(spec, encoder, hf.TRAINABLE)
    return Subject(encoder, trainable, _texts(length, config.vocab_size))


def _images(size: int) -> Callable[[int, torch.Generator], Batch]:
    return lambda rows, random: torch.randn(rows, 3, size, size, generator=random)


def _texts(length: int, words: int) -> Callable[[int, torch.Generator], Batch]:
    def batch(rows: int, random: torch.Generator) -> Batch:
        ids = torch.randint(words, (rows, length), generator=random)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return batch
