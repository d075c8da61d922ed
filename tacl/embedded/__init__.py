"""The embedded encoder and the embedded tasks: what TACL needs to show itself without a network.

catalogue.py generates pictures, labelled ones and captioned ones to pre-train on, parquet.py writes
them as a data set, model.py is the encoder, which alone imports torch.
"""

from tacl.embedded.catalogue import captioned, classes, generate, generic, render, tasks
from tacl.embedded.parquet import write_images, write_parquet

__all__ = [
    "captioned",
    "classes",
    "generate",
    "generic",
    "render",
    "tasks",
    "write_images",
    "write_parquet",
]
