"""theta0 once in the memory of a machine, however many processes of a home compute with it.

The first process writes its parameters to a file; then all map that file, and none has a copy. The
mapping is private: a process that wrote to it would get its own copy of the page, but none does.
Parameters start at multiples of 64 bytes, as torch's do: products are the same, bit for bit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from cluster.storage.drafts import atomic_path
from tacl.backbone import Backbone

ALIGNED = 64  # bytes
LOG = logging.getLogger(__name__)


def share(backbone: Backbone, folder: Path) -> None:
    """Replaces the parameters, on the CPU, by those mapped from the file of the base's digest in
    `folder`, which is written if it is missing or differs. If that fails, as on a full disk, they
    stay unchanged."""
    every = backbone.encoder.parameters()
    parameters = [one for one in every if one.is_contiguous()]  # results depend on the layout
    file = folder / backbone.digest
    try:
        if not _is_of(parameters, file):
            _write(parameters, file)
        found = _mapped(parameters, file)
    except OSError as error:
        return LOG.warning("theta0 is not shared with other processes: %s", error)
    for parameter, mapped in zip(parameters, found, strict=True):
        parameter.data = mapped


def _places(parameters: Sequence[Tensor]) -> tuple[list[int], int]:
    """The offset of each parameter, and the size of the file, in bytes."""
    places, end = list[int](), 0
    for one in parameters:
        places.append(end)
        end += -(-one.nbytes // ALIGNED) * ALIGNED
    return places, end


def _mapped(parameters: Sequence[Tensor], file: Path) -> list[Tensor]:
    """The file's parameters, in mapped memory, which is read when it is needed."""
    places, size = _places(parameters)
    whole = torch.from_file(str(file), shared=False, size=size, dtype=torch.uint8)
    return [
        whole[place : place + one.nbytes].view(one.dtype).view(one.shape)
        for one, place in zip(parameters, places, strict=True)
    ]


def _is_of(parameters: Sequence[Tensor], file: Path) -> bool:
    if not file.exists() or file.stat().st_size != _places(parameters)[1]:
        return False
    pairs = zip(parameters, _mapped(parameters, file), strict=True)
    return all(torch.equal(one, mapped) for one, mapped in pairs)


def _write(parameters: Sequence[Tensor], file: Path) -> None:
    """Writes the whole file or none: another process may be writing the same one."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    places, size = _places(parameters)
    with atomic_path(file) as draft, draft.open("wb") as stream:
        for one, place in zip(parameters, places, strict=True):
            stream.seek(place)
            stream.write(one.detach().view(-1).view(torch.uint8).numpy().tobytes())
        stream.truncate(size)
