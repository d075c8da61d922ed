"""The mathematics of TACL: tensors in, tensors out; no Ray, no SQL, no HTTP.

The names that programs need are all available here, and each is imported when it is first used:
`import tacl` alone imports nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacl.backbone import Backbone
    from tacl.backbone import load_backbone as load
    from tacl.backbone.module import wrap
    from tacl.compose.arithmetic import composed
    from tacl.errors import TaclError
    from tacl.heads.head import Head, prototype_head, text_head
    from tacl.in_memory import Evaluation, evaluate, features, train
    from tacl.models.linearized import LinearizedEncoder, linearize
    from tacl.training.penalties import penalty
    from tacl.vectors.vector import TaskVector

__version__ = "0.1.0"

_PLACES = {  # module, and :name where it is called differently there
    "Backbone": "tacl.backbone",
    "Evaluation": "tacl.in_memory",
    "Head": "tacl.heads.head",
    "LinearizedEncoder": "tacl.models.linearized",
    "TaclError": "tacl.errors",
    "TaskVector": "tacl.vectors.vector",
    "composed": "tacl.compose.arithmetic",
    "evaluate": "tacl.in_memory",
    "features": "tacl.in_memory",
    "linearize": "tacl.models.linearized",
    "load": "tacl.backbone:load_backbone",
    "penalty": "tacl.training.penalties",
    "prototype_head": "tacl.heads.head",
    "text_head": "tacl.heads.head",
    "train": "tacl.in_memory",
    "wrap": "tacl.backbone.module",
}

__all__ = [
    "Backbone",
    "Evaluation",
    "Head",
    "LinearizedEncoder",
    "TaclError",
    "TaskVector",
    "__version__",
    "composed",
    "evaluate",
    "features",
    "linearize",
    "load",
    "penalty",
    "prototype_head",
    "text_head",
    "train",
    "wrap",
]


def __getattr__(name: str) -> object:
    """PEP 562: called once for each name, which is an attribute of this module from then on."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, other = _PLACES[name].partition(":")
    globals()[name] = found = getattr(import_module(module), other or name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
