"""theta0 once in the memory of a machine, however many processes of a home compute with it.

The first writes its parameters into a file; then all map that file, and none has a copy. It is
mapped so that whoever wrote into it would have a page of their own, and nobody does. Parameters
begin at multiples of 64 bytes, as those of torch: products are the same, bit for bit.
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
    """Its parameters become those of the file of its digest in `folder`, which is written where it
    is missing or another one; they stay where they are when it cannot be, as on a full disk. They
    must be in the memory of the CPU."""
    every = backbone.encoder.parameters()
    parameters = [one for one in every if one.is_contiguous()]  # as it lies, so it is computed with
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
    """Where each begins, and how long the file is."""
    places, end = list[int](), 0
    for one in parameters:
        places.append(end)
        end += -(-one.nbytes // ALIGNED) * ALIGNED
    return places, end


def _mapped(parameters: Sequence[Tensor], file: Path) -> list[Tensor]:
    """What the file says of them, in memory that is read when it is needed."""
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
    """All of it or nothing: another process may write the same."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    places, size = _places(parameters)
    with atomic_path(file) as draft, draft.open("wb") as stream:
        for one, place in zip(parameters, places, strict=True):
            stream.seek(place)
            stream.write(one.detach().view(-1).view(torch.uint8).numpy().tobytes())
        stream.truncate(size)
