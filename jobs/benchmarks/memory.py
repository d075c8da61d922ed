"""Bytes of the tensors that a pass makes, counted at every operation of the framework.

Not resident memory, which depends on allocators and on what ran before. A dispatch mode sees each
operation below autograd and below `torch.func`, so all contestants are counted by one measure;
hooks on what autograd saves would miss what a formula holds, and do not work under `torch.func`.
"""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Made(TorchDispatchMode):
    """Counts what is made inside: `peak` is the most that was alive at a time, `kept` what still
    was at the end.

    Memory counts once, however many tensors look into it. What existed before does not count,
    changed in place or not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.peak = 0
        self._known: set[int] = set()
        self._ended = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        given = {storage._cdata for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage._cdata not in given:
                self._count(storage)
        return result

    def _count(self, storage: UntypedStorage) -> None:
        if (key := storage._cdata) in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.kept += size
        self.peak = max(self.peak, self.kept)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        if not self._ended:
            self._known.discard(key)
            self.kept -= size

    def __exit__(self, *error: Any) -> None:
        self._ended = True
        super().__exit__(*error)


def _storages(values: Any) -> list[UntypedStorage]:
    return [x.untyped_storage() for x in tree_leaves(values) if isinstance(x, Tensor)]
