"""Mapping of the tensors of a library's file to those of the encoder.

A library's names are those of its whole model (`visual.conv1.weight` beside a text tower,
`bert.encoder...` below a classifier); the encoder is a part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tacl.backbone import Backbone
from tacl.backbone.vision import classifiers
from tacl.errors import BadCheckpoint

BESIDE = {  # in the library's namespace of the encoder, but not part of it
    "hf": ("pooler.", "embeddings.position_ids", "embeddings.token_type_ids"),
}
MASKS = {"hf": (".attn.bias", ".attn.masked_bias")}  # of GPT-2, in its older files


@dataclass(frozen=True)
class Matched:
    """keys[name] is the file's key of the encoder's tensor `name`; `aside` has the keys of tensors
    outside the encoder, such as a classifier's."""

    keys: dict[str, str]
    aside: tuple[str, ...]


def library_name(scheme: str, name: str) -> str:
    """The library's own name of one of the encoder's tensors."""
    return ("" if scheme in ("hf", "timm") else "visual.") + _bare(scheme, name)


def matched(backbone: Backbone, keys: Iterable[str]) -> Matched:
    """Matches a file's keys; raises BadCheckpoint for unknown keys in the encoder's namespace."""
    found, scheme = sorted(keys), backbone.spec.scheme
    prefix = _prefix(backbone, found)
    known = {prefix + _bare(scheme, name): name for name in backbone.encoder.state_dict()}
    beside = tuple(prefix + name for name in _beside(backbone))
    masks = MASKS.get(scheme, ())
    unexpected = [
        key
        for key in found
        if key.startswith(prefix)
        and key not in known
        and not (key.startswith(beside) or key.endswith(masks))
    ]
    if unexpected:
        raise BadCheckpoint(
            f"{len(unexpected)} of {len(found)} tensors are unknown to the base {backbone.spec}, "
            f"such as {unexpected[:3]}; its own are named like {list(known)[:2]}. Give a "
            "checkpoint or an adapter of this base"
        )
    aside = tuple(key for key in found if key not in known)
    return Matched({known[key]: key for key in found if key in known}, aside)


def _bare(scheme: str, name: str) -> str:
    """The name without the prefix that our module adds to the library's model."""
    return name.removeprefix("model.") if scheme == "hf" else name


def _prefix(backbone: Backbone, keys: Sequence[str]) -> str:
    """The prefix of the encoder's names in the file: the usual one that matches most keys."""
    there = set(keys)
    names = [_bare(backbone.spec.scheme, name) for name in backbone.encoder.state_dict()]
    return max(_prefixes(backbone), key=lambda p: sum(p + name in there for name in names))


def _prefixes(backbone: Backbone) -> tuple[str, ...]:
    if backbone.spec.scheme == "timm":
        return ("",)
    if backbone.spec.scheme != "hf":
        return ("visual.", "")  # a whole CLIP, or its visual tower alone
    model: Any = backbone.encoder.model
    return (f"{model.base_model_prefix}.", "")  # below a task's model, or alone


def _beside(backbone: Backbone) -> tuple[str, ...]:
    if backbone.spec.scheme != "timm":
        return BESIDE.get(backbone.spec.scheme, ())
    return tuple(f"{head}." for head in classifiers(backbone.encoder))
