"""The embedded base model: a small open_clip model with both towers.

encoder.json is its open_clip configuration, merges.txt.gz the first 2048 merges of open_clip's
byte-pair vocabulary (the whole would be larger than the encoder), encoder.safetensors its float16
weights and encoder.record.json the record of their training (`tacl pretrain`). It is loaded without
open_clip (`net.py`, `words.py`), which is imported only to make fresh weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from tacl.embedded.net import EmbeddedNet
from tacl.embedded.words import Words

if TYPE_CHECKING:
    from open_clip.model import CLIP

HERE = Path(__file__).parent
CONFIG, MERGES = HERE / "encoder.json", HERE / "merges.txt.gz"
WEIGHTS, RECORD = HERE / "encoder.safetensors", HERE / "encoder.record.json"

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
TEMPLATES = ("a photo of a {}.",)


def config() -> dict[str, Any]:
    """The open_clip model configuration: embed_dim, vision_cfg, text_cfg."""
    return json.loads(CONFIG.read_text())


def words() -> Words:
    """The tokenizer: texts -> int64 [N, context_length]."""
    return Words(MERGES, config()["text_cfg"]["context_length"])


def preprocessing() -> dict[str, Any]:
    """Size, mean and std of the preprocessing, under open_clip's names."""
    return {"size": config()["vision_cfg"]["image_size"], "mean": MEAN, "std": STD}


def build() -> CLIP:
    """The model with fresh random weights from torch's global generator, float32, training."""
    from open_clip.model import CLIP

    return CLIP(**config())


def load(weights: Path = WEIGHTS) -> tuple[EmbeddedNet, Words]:
    """The pre-trained model, float32 and in eval mode, and its tokenizer."""
    model = EmbeddedNet(**config())
    model.load_state_dict(load_file(weights))
    model.visual.preprocess_cfg = preprocessing()
    return model.float().eval(), words()


def save(model: CLIP | EmbeddedNet, weights: Path) -> None:
    """Writes the weights as float16 safetensors."""
    halves = {name: value.half().contiguous() for name, value in model.state_dict().items()}
    save_file(halves, weights)


def pixels(images_NHWC: torch.Tensor) -> torch.Tensor:
    """uint8 [N, H, W, 3] -> normalised float32 [N, 3, H, W]."""
    unit = images_NHWC.permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return (unit - mean) / std


@torch.no_grad()
def zero_shot(
    model: EmbeddedNet,
    words: Words,
    images_NHWC: torch.Tensor,
    labels_N: torch.Tensor,
    classes: tuple[str, ...],
) -> float:
    """Accuracy of the head made of class names on uint8 images; the model's mode is unchanged."""
    texts = [
        model.encode_text(words([t.format(c) for c in classes]), normalize=True) for t in TEMPLATES
    ]
    head_CD = torch.nn.functional.normalize(torch.stack(texts).mean(0), dim=-1)
    features_ND = model.encode_image(pixels(images_NHWC), normalize=True)
    return ((features_ND @ head_CD.T).argmax(-1) == labels_N).float().mean().item()
