"""Where an export goes: a new folder, or a repository of a hub. It is there whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tacl.errors import BadConfig
from tacl.interchange import hub

Write = Callable[[Path], None]  # fills an empty folder


@dataclass(frozen=True)
class Place:
    """`public`: whether a repository may be one that everybody reads."""

    where: Path | hub.Repository
    public: bool = False

    @staticmethod
    def of(out: str | Path, public: bool = False) -> Place:
        """BadName for hf:... that is no repository, BadConfig where a folder is to be public."""
        if hub.is_repository(str(out)):
            return Place(hub.Repository.parse(str(out)), public)
        if public:
            raise BadConfig(
                "--public is of a repository, --out hf:OWNER/NAME; a folder is a folder"
            )
        return Place(Path(out).expanduser())

    @property
    def name(self) -> str:
        """Without the folders of this machine."""
        return self.where.name if isinstance(self.where, Path) else str(self.where)

    def require_ready(self) -> None:
        """Before anything is computed: BadConfig, and what `hub.require_pushable` raises."""
        if isinstance(self.where, hub.Repository):
            hub.require_pushable(self.where, self.public)
        elif self.where.exists():
            raise BadConfig(f"{self.where.absolute()} exists; name a new folder")
        elif not self.where.absolute().parent.is_dir():
            raise BadConfig(
                f"{self.where.absolute().parent} is no folder; make it, or name another"
            )

    def written(self, write: Write, message: str) -> tuple[str, tuple[str, ...]]:
        """Where it is now, a repository at its commit; and the names of the files."""
        if isinstance(self.where, Path):
            return str(self.where), _in_folder(self.where, write)
        with TemporaryDirectory(prefix="tacl-export-") as folder:
            write(Path(folder))
            return hub.pushed(Path(folder), self.where, self.public, message), _files(Path(folder))


def _in_folder(out: Path, write: Write) -> tuple[str, ...]:
    """A folder beside `out` takes its place when all is written. Who may read the folder may read
    its files: safetensors closes its own to others."""
    beside = out.absolute().parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    beside.mkdir()
    mode = beside.stat().st_mode & 0o666
    try:
        write(beside)
        files = _files(beside)
        for file in files:
            (beside / file).chmod(mode)
        os.rename(beside, out)
    except BaseException:
        shutil.rmtree(beside)
        raise
    return files


def _files(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()))
