"""What a person gives a client, checked before anything is asked of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cluster.messages import Modality, Options
from tacl.errors import BadConfig, DataNotFound

if TYPE_CHECKING:
    from cluster.reading import Data


def checked_templates(templates: Sequence[str]) -> tuple[str, ...]:
    wrong = [one for one in templates if one.count("{}") != 1]
    if wrong:
        raise BadConfig(f"template {wrong[0]!r}: write {{}} once, where the class name goes")
    return tuple(templates)


def options_of(chosen: dict[str, Any]) -> Options:
    try:
        return Options(**chosen)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BadConfig(f"options that are not possible: {wrong}") from error


def uploadable(data: Data, how: dict[str, Any]) -> Path:
    """What can be uploaded. BadConfig for what a server decides by itself."""
    if given := [name for name, value in how.items() if value]:
        raise BadConfig(f"{', '.join(given)}: not over HTTP; submit where the home is")
    path = Path(data).expanduser() if isinstance(data, str | Path) else None
    if path is None or not path.is_file():
        raise DataNotFound(f"{data} is no file on this machine; over HTTP a file is uploaded")
    return path


def raw_input(one: str | bytes | Path, modality: Modality) -> str | bytes:
    """A text as it is; a picture's bytes, checked."""
    from cluster.checked import checked_image, checked_text

    if modality == "text":
        return checked_text(one, "the question")
    if isinstance(one, bytes):
        return checked_image(one, "the picture")
    path = Path(one).expanduser()
    if not path.is_file():
        raise DataNotFound(f"no picture at {path.absolute()}; the base of this home reads pictures")
    return checked_image(path.read_bytes(), str(path))
