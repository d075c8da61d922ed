"""The embedded encoder and the embedded tasks: all that TACL needs to show itself without a network.

catalogue.py generates labelled pictures, captions.py what the encoder is pre-trained on, parquet.py
writes a task as a data set; model.py is the encoder. Only `load` imports torch and open_clip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacl.embedded.captions import captioned, generic
from tacl.embedded.parquet import write_images, write_parquet
from tacl.embedded.catalogue import classes, generate, render, tasks

if TYPE_CHECKING:
    from open_clip.model import CLIP
    from open_clip.tokenizer import SimpleTokenizer

__all__ = [
    "captioned",
    "classes",
    "generate",
    "generic",
    "load",
    "render",
    "tasks",
    "write_images",
    "write_parquet",
]


def load() -> tuple[CLIP, SimpleTokenizer]:
    """The pre-trained open_clip model, float32 and in eval mode, and its tokenizer."""
    from tacl.embedded import model

    return model.load()
