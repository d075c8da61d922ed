"""The embedded encoder and the embedded tasks: what TACL needs to show itself without a network.

catalogue.py generates pictures, labelled ones and captioned ones to pre-train on, parquet.py writes
them as a data set, model.py is the encoder. Only `load` imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacl.embedded.catalogue import captioned, classes, generate, generic, render, tasks
from tacl.embedded.parquet import write_images, write_parquet

if TYPE_CHECKING:
    from tacl.embedded.net import EmbeddedNet
    from tacl.embedded.words import Words

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


def load() -> tuple[EmbeddedNet, Words]:
    """The pre-trained model, float32 and in eval mode, and its tokenizer."""
    from tacl.embedded import model

    return model.load()
