"""The name of a base model, as a person writes it: SCHEME:NAME[@WEIGHTS][?size=N].

Does not import torch, so that a name can be checked where it is typed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tacl.errors import BadBase, BaseNotFound

SCHEMES = {  # and the form in which each is written
    "embedded": "embedded",
    "hf": "hf:DIRECTORY_OR_ID",
    "open_clip": "open_clip:NAME@WEIGHTS",
    "timm": "timm:NAME@FILE?size=N",
}
FORMS = ", ".join(SCHEMES.values())
HeadKind = Literal["text", "prototype"]  # heads are made of class names, or of labelled rows


@dataclass(frozen=True)
class BaseSpec:
    """A parsed name. `size`: side of the square images in pixels, or greatest length of texts in
    tokens."""

    scheme: str
    name: str = ""
    weights: str | None = None
    size: int | None = None

    @staticmethod
    def parse(text: str) -> BaseSpec:
        """The parts of a name; raises BadBase, listing the valid forms."""
        body, question, options = text.partition("?")
        scheme, _, rest = body.partition(":")
        if scheme not in SCHEMES:
            raise BadBase(f"base {text!r}: no scheme {scheme!r}; the forms are {FORMS}")
        if scheme == "embedded" and rest:
            raise BadBase(f"base {text!r}: the embedded base model has no name; write `embedded`")
        name, weights = _name_and_weights(scheme, rest)
        if scheme != "embedded" and (not name or weights == ""):
            raise BadBase(f"base {text!r}: a name or its weights are empty; the forms are {FORMS}")
        return BaseSpec(scheme, name, weights, _size(text, options) if question else None)

    def __str__(self) -> str:
        name = f":{self.name}" if self.name else ""
        weights = f"@{self.weights}" if self.weights else ""
        size = f"?size={self.size}" if self.size else ""
        return f"{self.scheme}{name}{weights}{size}"

    @property
    def folder(self) -> Path:
        """The path of the folder on this machine, if the name is one."""
        return Path(os.path.expanduser(self.name))

    @property
    def is_folder(self) -> bool:
        """Whether that folder exists and is meant. With weights it is not: they belong to a hub's
        id or an architecture, even if a folder here has its name."""
        return self.weights is None and os.path.isdir(self.folder)

    def placed(self, must_exist: bool = True) -> BaseSpec:
        """The same name, valid in any directory: paths become absolute, ids of hubs do not change.
        Raises BaseNotFound for a path that does not exist, if it `must_exist`, and BadBase for a
        revision of a hub id that is also the name of a folder here, as the library would load that.
        Reads no file."""
        weights = self.weights
        if self.scheme in ("hf", "open_clip"):
            whole = self.name if weights is None else f"{self.name}@{weights}"
            name = self._placed(whole, is_path(whole), must_exist)
            if weights is None or name != whole:  # a directory, which may have @ in its name
                return replace(self, name=name, weights=None)
        if self.scheme == "hf" and weights is not None and os.path.isdir(self.folder):
            raise self.unusable(
                f"the directory {self.folder.absolute()} has the name of that hub id, and no "
                f"revisions; leave @{weights} out to take it, or start from another directory"
            )
        if weights is None or self.scheme == "hf":  # weights are then a revision
            return self
        if self.scheme == "timm" or is_path(weights) or weights.endswith(".safetensors"):
            weights = self._placed(weights, True, must_exist)  # else a tag, even of a file's name
        return replace(self, weights=weights)

    def _placed(self, name: str, is_meant: bool, must_exist: bool) -> str:
        """`is_meant`: the name is a path, whether it exists or not."""
        path = Path(os.path.expanduser(name))
        # `Path.exists` raises for a name that is too long.
        if os.path.exists(path) or (is_meant and not must_exist):
            return str(path.resolve())
        if is_meant:
            raise self.missing(f"there is no file or folder {path.absolute()}")
        return name

    def missing(self, why: str) -> BaseNotFound:
        return BaseNotFound(f"base {self}: {why}")

    def unusable(self, why: str) -> BadBase:
        return BadBase(f"base {self}: {why}")


def is_path(name: str) -> bool:
    """Whether the name can only mean a directory, never an id on a hub."""
    return name.startswith(("/", "./", "../", "~")) or name in (".", "..")


def _name_and_weights(scheme: str, rest: str) -> tuple[str, str | None]:
    if scheme in ("hf", "open_clip") and is_path(rest):
        return rest, None  # a directory holds its own weights, and may have @ in its name
    name, at, weights = rest.partition("@")
    return name, weights if at else None


def _size(text: str, options: str) -> int:
    match = re.fullmatch(r"size=([1-9]\d{0,4})", options)
    if not match:
        raise BadBase(f"base {text!r}: {options!r} is no option; the one option is size=N, N >= 1")
    return int(match[1])
