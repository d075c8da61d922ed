"""The name of a base model, as a person writes it: SCHEME:NAME[@WEIGHTS][?size=N].

Knows no tensors, so that a name is checked where it is typed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tacl.errors import BadBase, BaseNotFound

SCHEMES = {  # with how each is written
    "embedded": "embedded",
    "hf": "hf:DIRECTORY_OR_ID",
    "open_clip": "open_clip:NAME@WEIGHTS",
    "timm": "timm:NAME@FILE?size=N",
}
FORMS = ", ".join(SCHEMES.values())
HeadKind = Literal["text", "prototype"]  # heads are made of class names, or of labelled rows


@dataclass(frozen=True)
class BaseSpec:
    """`size` is the longest input: pixels of the square for images, tokens for texts."""

    scheme: str
    name: str = ""
    weights: str | None = None
    size: int | None = None

    @staticmethod
    def parse(text: str) -> BaseSpec:
        """Raises BadBase, naming the forms that exist."""
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
        """What the name is where it names a folder of this machine."""
        return Path(os.path.expanduser(self.name))

    @property
    def is_folder(self) -> bool:
        """Whether that is there. With weights it is meant by none: they are of a hub's id or of an
        architecture, whatever lies here by its name."""
        return self.weights is None and os.path.isdir(self.folder)

    def placed(self, must_exist: bool = True) -> BaseSpec:
        """The same from wherever it is read: paths are absolute, ids of hubs stay as they are.
        Raises BaseNotFound for a path where nothing is, where that `must_exist`, and BadBase for a
        revision where a folder here has the name of its hub id: the library would take that. Looks
        at no content."""
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
        if weights is None or self.scheme == "hf":  # where it is a revision
            return self
        if self.scheme == "timm" or is_path(weights) or weights.endswith(".safetensors"):
            weights = self._placed(weights, True, must_exist)  # else a tag, whatever lies here
        return replace(self, weights=weights)

    def _placed(self, name: str, is_meant: bool, must_exist: bool) -> str:
        """`is_meant`: it is a path, whatever lies here."""
        path = Path(os.path.expanduser(name))
        # `Path.exists` raises for what is too long for a name.
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
    """A name that can only mean a directory, never an id on a hub."""
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
