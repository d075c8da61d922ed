"""Preprocessing, from raw bytes or text to an encoder's input: a part of a base's digest.

Item: one prepared input, uint8 [3, S, S] (an image) or int64 [L] (token ids, truncated, with
special tokens). Batch: float32 [B, 3, S, S], or {"input_ids", "attention_mask"} of int64 [B, L].
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tacl.backbone.padding import Batch
from tacl.errors import BadSample, ModalityMismatch
from tacl.spec import BaseSpec

Item = Tensor
T = TypeVar("T")

GREY_16 = ("PNG", "PPM")  # formats whose pictures of mode I have 16 bits, others 32
MAX_ASPECT = 50  # a longer strip would take too much memory when enlarged
INTERPOLATIONS = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
}


def interpolation(spec: BaseSpec, settings: Mapping[str, Any]) -> str:
    """The key of INTERPOLATIONS by which a library resizes outside training. Raises BadBase."""
    how = settings.get("interpolation") or "bicubic"
    how = "bicubic" if how == "random" else how  # drawn in training alone
    if how not in INTERPOLATIONS:
        raise spec.unusable(f"images are resized as {how}: that is not supported")
    return how


class Inputs(Protocol):
    @property
    def modality(self) -> str: ...
    def prepare(self, raw: bytes | str) -> Item: ...
    def collate(self, items: Sequence[Item], device: torch.device) -> Batch: ...
    def description(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Images:
    """Converts to RGB, resizes the shorter side to `size` (both sides with `squash`), crops the
    centre, then computes (x - mean) / std."""

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    squash: bool = False
    interpolation: str = "bicubic"  # a key of INTERPOLATIONS
    modality = "image"

    def prepare(self, raw: bytes | str) -> Item:
        """uint8 [3, S, S]; BadSample when the bytes are no whole image."""
        if isinstance(raw, str):
            raise ModalityMismatch(f"the base reads images and was given the text {raw[:40]!r}")
        image = self._crop(_decode(_required(raw, "the bytes of a picture")))
        return (
            torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
            .view(self.size, self.size, 3)
            .permute(2, 0, 1)
            .contiguous()
        )

    def _crop(self, image: Image.Image) -> Image.Image:
        width, height = image.size
        if max(width, height) > MAX_ASPECT * min(width, height):
            raise BadSample(f"an image of {width} x {height} pixels is too long and narrow to crop")
        # Rounded as in torchvision, with which these encoders were trained.
        width, height = (side * self.size // min(image.size) for side in image.size)
        if self.squash:
            width = height = self.size
        if image.size != (width, height):
            image = image.resize((width, height), INTERPOLATIONS[self.interpolation])
        left, top = round((width - self.size) / 2), round((height - self.size) / 2)
        return image.crop((left, top, left + self.size, top + self.size))

    def collate(self, items: Sequence[Item], device: torch.device) -> Tensor:
        """float32 [B, 3, S, S], normalised."""
        pixels = torch.stack(list(items)).to(device).float().div_(255)
        mean, std = (torch.tensor(v, device=device).view(3, 1, 1) for v in (self.mean, self.std))
        return pixels.sub_(mean).div_(std)

    def description(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "mean": list(self.mean),
            "std": list(self.std),
            "resize": self.interpolation,
            **({"squash": True} if self.squash else {}),  # absent if False, as in earlier digests
        }


def _decode(raw: bytes) -> Image.Image:
    try:
        with Image.open(io.BytesIO(raw)) as image:
            sixteen = image.mode == "I" and image.format in GREY_16
            if sixteen or image.mode.startswith("I;16"):  # else all but near black became white
                return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
            return image.convert("RGB")
    except Exception as error:  # decoders raise a dozen types on foreign bytes; all mean this
        raise BadSample(f"unreadable image ({len(raw)} bytes): {error}") from error


@dataclass(frozen=True)
class Texts:
    """Token ids of one tokenizer, cut at `size` tokens, padded on the right within a batch."""

    tokenizer: Any  # a transformers tokenizer
    size: int
    modality = "text"

    def prepare(self, raw: bytes | str) -> Item:
        """int64 [L], 1 <= L <= size; BadSample when the text has no tokens or is not UTF-8."""
        text = _text(raw)
        ids = self._ids(text)
        if not ids:
            raise BadSample(f"the text {text[:40]!r} has no tokens")
        return torch.tensor(ids, dtype=torch.int64)

    def is_cut(self, raw: bytes | str) -> bool:
        """Whether the text has more than `size` tokens."""
        text = _text(raw)
        fits = len(text.encode()) <= self.size - 2  # each token but the two ends has a byte
        return not fits and len(self.tokenizer(text)["input_ids"]) > self.size

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, truncation=True, max_length=self.size, padding=False)[
            "input_ids"
        ]

    def collate(self, items: Sequence[Item], device: torch.device) -> dict[str, Tensor]:
        """input_ids and attention_mask, int64 [B, longest]; padding has mask 0."""
        pad = self.tokenizer.pad_token_id or 0
        ids = torch.nn.utils.rnn.pad_sequence(list(items), batch_first=True, padding_value=pad)
        lengths = torch.tensor([len(item) for item in items])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}

    def description(self) -> dict[str, Any]:
        vocabulary = json.dumps(sorted(self.tokenizer.get_vocab().items()), ensure_ascii=True)
        return {
            "size": self.size,
            "vocabulary": hashlib.sha256(vocabulary.encode()).hexdigest(),
            "probe": self._ids(
                "The QUICK brown-fox, don't: caf\u00e9 42!"
            ),  # casing, accents, ends
        }


def _text(raw: bytes | str) -> str:
    raw = _required(raw, "a text")
    raw = raw.encode(errors="surrogatepass") if isinstance(raw, str) else bytes(raw)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadSample(f"the base reads texts; {len(raw)} bytes are not UTF-8: {error}") from error


def _required(raw: T, what: str) -> T:
    """Returns `raw`; raises BadSample for other types, such as a NaN from a program's frame."""
    if not isinstance(raw, str | bytes | bytearray | memoryview):
        kind = type(raw).__name__
        raise BadSample(f"found {kind} {str(raw)[:40]!r}, where {what} should be")
    return raw
