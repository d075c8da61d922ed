"""The pre-trained encoder and its preprocessing, by name: embedded, hf, open_clip or timm."""

from tacl.backbone import clip, hf, vision
from tacl.backbone.core import Backbone
from tacl.backbone.inputs import Batch, Item
from tacl.backbone.spec import BaseSpec

__all__ = ["Backbone", "BaseSpec", "Batch", "Item", "load_backbone"]

LOADERS = {
    "embedded": clip.load_embedded,
    "hf": hf.load,
    "open_clip": clip.load,
    "timm": vision.load,
}


def load_backbone(text: str) -> Backbone:
    """The encoder that `text` names, for example `hf:../models/minilm` (see BaseSpec).

    Raises BaseNotFound when it is not where it was looked for, BadBase when it cannot be used.
    """
    spec = BaseSpec.parse(text)
    return LOADERS[spec.scheme](spec)
