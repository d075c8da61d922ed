"""Checks of arguments of the client, before a cluster is called."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from cluster.domain.base import Modality, each_wrong
from cluster.domain.names import class_names, did_you_mean
from cluster.domain.tasks import Reading
from tacl.errors import BadCheckpoint, BadConfig, BadSample, DataNotFound

if TYPE_CHECKING:
    from cluster.data.sources import Data


M = TypeVar("M", bound=BaseModel)


def possible(options: type[M], chosen: Mapping[str, object]) -> M:
    """The model of the chosen options. Raises BadConfig, which names all that are not possible."""
    try:
        return options.model_validate(chosen)
    except ValidationError as error:
        unknown = [name for name in chosen if name not in options.model_fields]
        wrong, alone = each_wrong(error.errors()), unknown and error.error_count() == 1
        meant = did_you_mean(unknown[0], options.model_fields) if alone else ""
        raise BadConfig(f"options that are not possible: {wrong}{meant}") from error


def parted(given: Mapping[str, Any]) -> tuple[Reading, dict[str, Any]]:
    """Split keywords into those about reading rows and the others. Raises BadConfig."""
    said = given.keys() & Reading.model_fields
    rest = {name: value for name, value in given.items() if name not in said}
    return possible(Reading, {name: given[name] for name in said}), rest


def listed(given: Sequence[str], what: str) -> list[str]:
    """The items as a list. Raises BadConfig for one text, whose letters would be the items."""
    if isinstance(given, str):
        raise BadConfig(f"{what} are a list, and one text was given: say [{given!r}]")
    return list(given)


def one_text(classes: Sequence[str]) -> str:
    """Class names as one text, the way they are sent. Raises BadConfig if they would not arrive
    unchanged."""
    text = ",".join(classes)
    if not all(classes) or class_names(text) != tuple(classes):
        raise BadConfig(
            f"classes {text!r}: over HTTP a name is not empty, holds no comma, and neither begins "
            "nor ends with a space; write them so, or submit where the home is"
        )
    return text


def require_checkpoint(checkpoint: str) -> None:
    """Raises BadCheckpoint for a path that does not exist, before torch is imported."""
    path = Path(os.path.expanduser(checkpoint))
    if not checkpoint.startswith("hf:") and not os.path.exists(path):
        raise BadCheckpoint(
            f"no checkpoint at {path.absolute()}; give a file or a folder that is there, or of a "
            "hub hf:OWNER/NAME"
        )


@contextmanager
def uploadable(data: Data, how: dict[str, Any]) -> Generator[Path]:
    """The file to upload; rows in memory are written to a temporary Parquet file. `how`: options
    that a server decides by itself; raises BadConfig if one is given."""
    if given := [name for name, value in how.items() if value]:
        raise BadConfig(f"{', '.join(given)}: not over HTTP; submit where the home is")
    if isinstance(data, str | Path):
        path = Path(os.path.expanduser(data))
        if os.path.isdir(path):
            raise DataNotFound(f"{data} is a folder; over HTTP one file is uploaded: give a file")
        if not os.path.isfile(path):
            raise DataNotFound(f"{data} is no file on this machine; over HTTP a file is uploaded")
        yield path
        return
    from cluster.data.frames import write_rows

    with TemporaryDirectory(prefix="tacl-data-") as folder:
        path = Path(folder) / "data.parquet"
        write_rows(data, path)
        yield path


def raw_inputs(inputs: Sequence[str | bytes | Path], modality: Modality) -> list[str | bytes]:
    """`raw_input` of each. Raises BadSample for none, and for one text, whose letters would be the
    inputs."""
    if isinstance(inputs, str | bytes | Path):
        raise BadSample("inputs are a list, and one alone was given: ask [input]")
    if not (found := [raw_input(one, modality) for one in inputs]):
        raise BadSample("the list of inputs is empty: ask about one at least")
    return found


def raw_input(one: object, modality: Modality) -> str | bytes:
    """A checked text, or the checked bytes of a picture. Raises BadSample for anything else, and
    for the name of a file if the base model reads texts."""
    from cluster.data.amounts import PICTURE_BYTES
    from cluster.data.validation import checked_image, checked_text

    if modality == "text":
        if isinstance(one, str) and _is_file(one):
            text = f'"$(cat {quote(one)})"'
            raise BadSample(f"{one} is a file, and the base of this home reads texts: ask {text}")
        return checked_text(one, "the question")
    if isinstance(one, bytes):
        return checked_image(one, "the picture")
    if not isinstance(one, str | Path):
        raise BadSample(f"found {type(one).__name__} where a picture's path or bytes should be")
    path = Path(os.path.expanduser(one))
    if not os.path.isfile(path):  # `Path.is_file` raises for a text that is too long for a name
        raise DataNotFound(f"no picture at {path.absolute()}; the base of this home reads pictures")
    with path.open("rb") as file:
        raw = file.read(PICTURE_BYTES + 1)  # enough to refuse what is larger, such as a film
    return checked_image(raw, str(path))


def _is_file(text: str) -> bool:
    """Whether the text is the name, with a suffix, of an existing file."""
    return os.path.isfile(text) and Path(text).suffix != ""
