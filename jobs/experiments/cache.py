"""Finished cells: facts and tensors under a key of all that determines them; never computed twice.

A cell is two files, `KIND/KEY.safetensors` (if it has tensors) and then `KIND/KEY.json`, with which
it is finished. Both are written to a draft and renamed, so that an interruption loses only the cell
that is being computed. The cost of a cell is stored with it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from cluster.storage.drafts import atomic_path
from tacl.vectors.params import Params

MIB = 1 << 20


@dataclass
class Cost:
    """Seconds of wall clock and of CPU, and the peak memory meanwhile: of the GPU if there is one,
    else of the whole process, which includes the base, the prepared data and the libraries. On a
    busy machine `cpu_seconds` is more reliable."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mib: float = 0.0

    def as_dict(self) -> dict[str, float]:
        return {name: round(value, 3) for name, value in asdict(self).items()}


def together(costs: Sequence[Cost]) -> Cost:
    """The total cost of work that is done one after another."""
    return Cost(
        sum(cost.seconds for cost in costs),
        sum(cost.cpu_seconds for cost in costs),
        max((cost.peak_mib for cost in costs), default=0.0),
    )


@contextmanager
def measured() -> Iterator[Cost]:
    """Yields the cost of the block, which is filled in when the block ends."""
    cost = Cost()
    _forget_peak()
    clock, cpu = time.monotonic(), time.process_time()
    yield cost
    cost.seconds = time.monotonic() - clock
    cost.cpu_seconds = time.process_time() - cpu
    cost.peak_mib = _peak() / MIB


def _forget_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):  # on other systems the peak is that of the process so far
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM


def _peak() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# A part of every key. Raise it when the same configuration would give different numbers.
ALGORITHM = 1

Made = tuple[dict[str, Any], Params]  # facts that people may read, and tensors


@dataclass(frozen=True)
class Cell:
    """A finished cell. `key` identifies all that determined it, so other keys may contain it."""

    key: str
    facts: dict[str, Any]
    cost: Cost
    file: Path

    def tensors(self) -> Params:
        return load_file(self.file)


class Cells:
    """All finished cells of a folder. `made` lists those that this process computed."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda line: None) -> None:
        self.folder, self.say = folder, say
        self.made: list[str] = []

    def get(
        self, kind: str, decides: Mapping[str, Any], make: Callable[[], Made], what: str = ""
    ) -> Cell:
        """Return the finished cell, else `make()` and keep it. `decides` must be plain JSON."""
        key = key_of(kind, decides)
        record = self.folder / kind / f"{key}.json"
        if not record.is_file():
            self.say(f"{kind} {what}")
            with measured() as cost:
                facts, tensors = make()
            self._write(record, {"decides": decides, "facts": facts, "cost": cost}, tensors)
            self.made.append(f"{kind} {what}")
        found = json.loads(record.read_text())
        file = record.with_suffix(".safetensors")
        return Cell(key, found["facts"], Cost(**found["cost"]), file)

    def _write(self, record: Path, content: dict[str, Any], tensors: Params) -> None:
        record.parent.mkdir(parents=True, exist_ok=True)
        if tensors:
            whole = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
            with atomic_path(record.with_suffix(".safetensors")) as path:
                save_file(whole, path)
        text = json.dumps({**content, "cost": content["cost"].as_dict()}, sort_keys=True, indent=1)
        with atomic_path(record) as path:
            path.write_text(text)


def key_of(kind: str, decides: Mapping[str, Any]) -> str:
    text = json.dumps([ALGORITHM, kind, decides], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
