"""Targets of exports: a new folder, or a repository of a hub, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tacl.errors import BadConfig
from tacl.interchange import hub


@dataclass(frozen=True)
class Place:
    """The target of an export. `public`: whether a repository may be readable by everybody."""

    where: Path | hub.Repository
    public: bool = False

    @staticmethod
    def of(out: str | Path, public: bool = False) -> Place:
        """The place that `out` names. Raises BadName for hf:... that is no repository, BadConfig
        for a public folder."""
        if hub.is_repository(str(out)):
            return Place(hub.Repository.parse(str(out)), public)
        if public:
            raise BadConfig("--public is for a repository (--out hf:OWNER/NAME), not for a folder")
        return Place(Path(os.path.expanduser(out)))

    @property
    def name(self) -> str:
        """The name of the folder, without its parents, or hf:OWNER/NAME."""
        return self.where.name if isinstance(self.where, Path) else str(self.where)

    def require_ready(self) -> None:
        """Check the place before anything is computed. Raises BadConfig, and what
        `hub.require_pushable` raises."""
        if isinstance(self.where, hub.Repository):
            hub.require_pushable(self.where, self.public)
        elif self.where.exists():
            raise BadConfig(f"{self.where.absolute()} exists; name a new folder")
        elif not (parent := self.where.absolute().parent).is_dir():
            raise BadConfig(f"{parent} is no folder; make it, or name another")
        elif not os.access(parent, os.W_OK):
            raise BadConfig(f"{parent} is a folder that you may not write into; name another")

    def written(self, write: Callable[[Path], None], message: str) -> tuple[str, tuple[str, ...]]:
        """Write the export; returns where it is, a repository with its commit, and the names of its
        files. `write` fills an empty folder, which is moved or pushed when it is complete. Whoever
        may read the folder may read its files, although safetensors writes files that only their
        owner may read. Raises BadConfig if the place was taken meanwhile."""
        near = self.where.absolute().parent if isinstance(self.where, Path) else None
        with TemporaryDirectory(prefix=".tacl-export-", dir=near) as parent:
            draft = Path(parent) / "files"
            draft.mkdir()
            write(draft)
            files = sorted(str(f.relative_to(draft)) for f in draft.rglob("*") if f.is_file())
            for file in files:
                (draft / file).chmod(draft.stat().st_mode & 0o666)
            if isinstance(self.where, Path):
                self.require_ready()  # measuring took long: another export may be there by now
                draft.rename(self.where)
                return str(self.where), tuple(files)
            return hub.pushed(draft, self.where, self.public, message), tuple(files)
