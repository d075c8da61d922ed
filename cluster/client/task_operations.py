"""Operations on the tasks of a cluster: submitting them, waiting for their training, and more."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from cluster.client.arguments import listed, parted, possible, uploadable
from cluster.client.keywords import Rows, TrainingKeywords
from cluster.client.session import Session, asking
from cluster.client.waiting import failed, owed, pending, require_success, through_restarts
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import RequestContext
from cluster.domain.names import checked_name, checked_task
from cluster.domain.receipts import GrownShard, RemovedTask, Submitted
from cluster.domain.status import NAMED, ClusterStatus, Event
from cluster.domain.tasks import Options, Reading
from tacl.errors import SameData

if TYPE_CHECKING:
    from cluster.data.ingest import Ingested
    from cluster.data.sources import Data

Watch = Callable[[ClusterStatus], None]


def _unless_the_same(
    send: Callable[[bool], Submitted], again: bool | Callable[[str], bool]
) -> Submitted:
    """Submit a task. Raises SameData if another task has the same rows, unless `again` is true, or
    a function that returns true for the message."""
    try:
        return send(again is True)
    except SameData as error:
        if isinstance(again, bool) or not again(str(error)):
            raise
    return send(True)


class TaskOperations(Session):
    def submit(
        self,
        name: str,
        data: Data,
        *,
        owner: str | None = None,
        private: bool = False,
        templates: Sequence[str] = (),
        request_id: str | None = None,
        progress: Rows | None = None,
        read: Callable[[Ingested], None] | None = None,
        agree: Callable[[Sequence[str]], None] | None = None,
        vector: Path | None = None,
        again: bool | Callable[[str], bool] = False,
        **options: Unpack[TrainingKeywords],
    ) -> Submitted:
        """Check and store a labelled data set, and queue its training, without waiting for it.

        Args:
            data: path, hub id, `datasets` data set (`cluster.data.sources`), or rows in memory: a
                frame or table, a dict of columns, a list of dicts or of (input, class) pairs.
            templates: prompts with {} for the class name.
            request_id: within a week the same id gives the same answer; nothing is done twice.
            progress: receives how many rows are checked, of how many; not over HTTP.
            read: receives how the data were understood.
            agree: receives the classes before anything is stored, and may raise.
            vector: the file of a task vector; then nothing is trained (`import_checkpoint`).
            again: whether to submit rows that another task has, or who decides; they are read anew.
            options: fields of `cluster.domain.tasks`: of `Reading`, input_column, label_column and
                classes; of `Options`, penalty, workers, steps, seed ...

        Raises the errors of bad data (`cluster.data.ingest`), BadConfig, BadName, NameTaken,
        SameData, NotPlaceable, ClusterNotRunning.
        """
        from cluster.data.submissions import checked_templates, prepared_submission

        reading, training = parted(options)
        chosen = possible(Options, training)
        if self._server is None:  # else the server knows the owner
            checked_task(name, owner or self.user, private)
        checked_name(name)
        prompts = checked_templates(listed(templates, "templates"))
        said: dict[str, Any] = {"reading": reading, "templates": prompts}
        if self._server is not None:
            local = {"owner": owner, "vector": vector, "read": read, "agree": agree}
            with uploadable(data, local) as path:
                sent = self.context(request_id), name, path, private, chosen
                return _unless_the_same(partial(self._server.upload, *sent, **said), again)
        context = self._admitted(name, request_id)
        said |= {"progress": progress, "read": read, "agree": agree}
        said |= {"owner": owner or self.user, "private": private, "vector": vector}
        said |= {"options": chosen, "request_id": context.request_id}

        def send(again: bool) -> Submitted:
            # Prepared each time: the files of a refused submission are deleted after a while, and
            # a person may take longer to decide.
            submission = prepared_submission(self.home, name, data, **said)
            return self.coordinator.submit(context, submission, again)

        return _unless_the_same(send, again)

    def _admitted(self, name: str, request_id: str | None) -> RequestContext:
        """The context of a submission, after the checks that need no rows."""
        context = self.context(request_id)
        self.coordinator.admit(context, name)
        return context

    def add_samples(
        self,
        name: str,
        data: Data,
        *,
        input_column: str | None = None,
        seed: int = 0,
        request_id: str | None = None,
        progress: Rows | None = None,
    ) -> GrownShard:
        """Grow a task's shard by at most 1,024 unlabelled samples, drawn by `seed`. Raises
        UnknownTask."""
        self._require_here("add_samples")
        self.task(name)
        from cluster.data.ingest import ingest_samples

        blobs, modality = self.home.blobs(), self.base().modality
        reading = Reading(input_column=input_column)
        blob = ingest_samples(data, blobs, modality, reading, seed=seed, progress=progress)
        return self.coordinator.add_samples(self.context(request_id), name, blob)

    def status(self, *names: str) -> ClusterStatus:
        """The base model, all tasks, the owed work, and the resources of the cluster, which sends
        only what is new since the last call of this client. With names, only these tasks and the
        work on them; no others are read. Raises UnknownTask."""
        if not names:
            return self._following.all(lambda since: self.coordinator.status(self.context(), since))
        names = tuple(dict.fromkeys(names))
        few = (names[first : first + NAMED] for first in range(0, len(names), NAMED))
        first, *rest = [self.coordinator.status(self.context(), "", some) for some in few]
        tasks = first.tasks + tuple(task for told in rest for task in told.tasks)
        work = first.work + tuple(run for told in rest for run in told.work)
        return first.model_copy(update={"tasks": tasks, "work": work})

    def logs(self, task: str) -> Sequence[Event]:
        """All events of a task, oldest first. Raises UnknownTask."""
        ask, found = self.coordinator.logs, list[Event]()
        # A server of an earlier version returns all of them each time.
        while (page := ask(self.context(), task, len(found))) and page[0] not in found[:1]:
            found += page
        return found

    task = asking(CoordinatorAPI.task)
    retry = asking(CoordinatorAPI.retry)
    cancel = asking(CoordinatorAPI.cancel)
    refresh = asking(CoordinatorAPI.refresh)

    def remove(self, name: str, purge: bool = False, request_id: str | None = None) -> RemovedTask:
        """Withdraw a task's samples and vectors from later use. Models that have its vectors keep
        working, unless `purge` erases its bytes. Raises UnknownTask."""
        return self.coordinator.remove(self.context(request_id), name, purge)

    def wait(
        self,
        *names: str,
        progress: Watch | None = None,
        poll: float = 1.0,
        timeout: float | None = None,
    ) -> ClusterStatus:
        """Wait until these tasks are trained; without names, until nothing is left to do.

        `progress` receives every status, and the last one is returned; with names, they are of
        these tasks only. Raises RunFailed with the reasons: with names, as soon as one of the tasks
        fails; without names at the end, and not for tasks that had failed before. Raises
        UnknownTask, TimeoutError. A cluster that is lost meanwhile is waited for a while.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        look = through_restarts(partial(self.status, *names), deadline)
        before: set[str] | None = None  # tasks that had failed, and were not retried since
        while True:
            status = look()
            before = (failed(status) if before is None else before) - {*owed(status)}
            if progress is not None:
                progress(status)
            left = pending(status, names)
            if names or not left:
                require_success(status, names, before)
            if not left:
                return status
            if time.monotonic() > deadline:
                raise TimeoutError(f"not done within {timeout:g} s: {left}")
            time.sleep(poll)
