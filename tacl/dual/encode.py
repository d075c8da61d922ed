"""One call of an encoder, with other weights where some are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

_LOCK = Lock()
_inside = 0  # passes under way, perhaps in several threads: the switch is of the whole process
_before = True


def encode(
    encoder: nn.Module, weights: Mapping[str, Tensor], batch: Any, *, strict: bool = False
) -> Any:
    """encoder(batch) with these parameters and buffers; the encoder's own where none is given,
    which `strict` refuses."""
    with _unfused():
        return functional_call(encoder, dict(weights), (batch,), strict=strict)


@contextmanager
def _unfused() -> Iterator[None]:
    """Switches off the fused layers of torch.nn: they have no forward derivative, and give other
    features than the layers that have one, so that f would depend on the kind of pass."""
    global _inside, _before
    with _LOCK:
        if not _inside:
            _before = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        _inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _inside -= 1
            if not _inside:
                torch.backends.mha.set_fastpath_enabled(_before)
