"""The client that the command line, jobs and users' own programs call.

    client = Client("~/.tacl")
    client.up("embedded")
    client.submit("faces", "data/faces")
    client.wait()
    client.compose("alice", ["+faces", "-digits"])
    client.query("alice", ["picture.png"])

Ray is imported when a cluster is used, torch never. Errors are raised as classes of `tacl.errors`,
also those from inside the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from cluster.client.arguments import require_checkpoint
from cluster.client.cluster_operations import ClusterOperations
from cluster.client.keywords import ImportKeywords
from cluster.client.model_operations import ModelOperations
from cluster.client.session import default_home
from cluster.client.task_operations import TaskOperations
from cluster.domain.names import checked_name
from cluster.domain.operations import Exported, ExportedVector, Imported
from tacl.compose.terms import parse_term
from tacl.errors import BadConfig
from tacl.interchange.formats import Format

if TYPE_CHECKING:
    from cluster.data.sources import Data
    from cluster.domain.status import RunStatus

__all__ = ["Client", "default_home"]


class Client(ClusterOperations, TaskOperations, ModelOperations):
    """One home and the cluster that serves it, or one server; see `cluster.client.session`."""

    def import_checkpoint(
        self, name: str, checkpoint: str | Path, data: Data, **how: Unpack[ImportKeywords]
    ) -> Imported:
        """Import a fine-tuned checkpoint of this home's base, a PEFT LoRA adapter, or a vector of
        another home, as the vector of a new task: a path, or hf:OWNER/NAME[@REVISION] of a hub.

        From `data` come classes, head, validation and test rows; `how` as for `submit`, except that
        the vector is not refreshed unless refresh="on_arrival" is given. Raises BadCheckpoint,
        BaseMismatch, and what `submit` raises; nothing is stored then.
        """
        checked_name(name)
        self._require_here("import")
        if how.get("share") == "statistics":
            raise BadConfig(
                "share=statistics: an import measures none; share samples, or none, and no other "
                "task keeps out of this one's way"
            )
        require_checkpoint(str(checkpoint))
        self._admitted(name, how.get("request_id"))
        from cluster.learner.importing import converted

        said: list[str] = []
        with converted(name, str(checkpoint), self.home) as (vector, notes, own):
            how.setdefault("refresh", "never")

            def agree(classes: Sequence[str]) -> None:
                said[:] = filter(None, [own and own.differing(classes)])

            submitted = self.submit(name, data, vector=vector, agree=agree, **how)
        notes = (*notes, *said, *submitted.notes)
        return Imported.model_validate(submitted.model_dump() | {"notes": notes})

    def export(
        self,
        user: str,
        out: str | Path,
        format: Format = "safetensors",
        *,
        licence: str | None = None,
        accept: bool = False,
        public: bool = False,
        progress: Callable[[str], None] | None = None,
        measuring: Callable[[RunStatus], None] | None = None,
    ) -> Exported:
        """Export the user's model as a checkpoint for another library, into the new folder `out` or
        the repository hf:OWNER/NAME of a hub, which is private unless `public`.

        See `cluster.client.export.export`, also for what is raised.
        """
        self._require_here("export")
        self.composition(user)
        from cluster.client.export import export

        return export(self, user, out, format, licence, accept, public, progress, measuring)

    def export_vector(
        self,
        vector: str,
        out: str | Path,
        *,
        licence: str | None = None,
        public: bool = False,
    ) -> ExportedVector:
        """Export NAME[@ALIAS|@vN] with its head, for a home of the same base; `out` as in `export`.

        See `cluster.client.export.export_vector`, also for what is raised.
        """
        self._require_here("export")
        self.task(parse_term(vector).name)
        from cluster.client.export import export_vector

        return export_vector(self, vector, out, licence, public)
