"""The embedded base model and the embedded tasks, which let TACL be tried without a network.

catalogue.py generates labelled pictures, and captioned ones to pre-train on; parquet.py writes them
as a data set; model.py has the encoder. Only the encoder's files import torch.
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
