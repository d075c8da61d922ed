"""The base model and its preprocessing, by name: embedded, hf, open_clip or timm."""

from tacl.backbone import clip, hf, vision
from tacl.backbone.core import Backbone
from tacl.backbone.inputs import Batch, Item
from tacl.spec import BaseSpec

__all__ = ["Backbone", "BaseSpec", "Batch", "Item", "load_backbone"]

LOADERS = {
    "embedded": clip.load_embedded,
    "hf": hf.load,
    "open_clip": clip.load,
    "timm": vision.load,
}


def load_backbone(text: str) -> Backbone:
    """The base model that `text` names: theta0, its preprocessing, its kind of head.

    Args:
        text: `embedded` (pictures, comes with TACL), `hf:DIRECTORY_OR_ID` (a sentence encoder),
            `open_clip:NAME@WEIGHTS` or `timm:NAME@FILE?size=N` (pictures); see BaseSpec. `prepare`
            makes one row of the bytes of a picture or of a text.

    Raises:
        BaseNotFound: the base model was not found where `text` points.
        BadBase: it was found but cannot be used, or `text` is of no known form.

    Source: Sentence-BERT, arXiv 1908.10084 (`hf`); CLIP, arXiv 2103.00020 (`open_clip`).
    """
    spec = BaseSpec.parse(text)
    return LOADERS[spec.scheme](spec)
