"""What every part of the coordinator builds on: its home, registry, lock and work.

The order is always: blobs are in the blob store, then one transaction of the registry, then the
event to the plan. The constructor is the recovery: it reads the registry and issues the work still
owed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from cluster.coordinator.acceptance import missing_files
from cluster.coordinator.board import Board, TaskEntry
from cluster.coordinator.erasing import Erasing
from cluster.coordinator.executor import Execution
from cluster.coordinator.launcher import Launcher
from cluster.coordinator.lock import Lock
from cluster.coordinator.recipes import Pins
from cluster.coordinator.retries import Retries
from cluster.coordinator.views import PlanView
from cluster.domain.base import Message, RequestContext, identity
from cluster.domain.receipts import QueuedRun
from cluster.domain.status import OWED, RunState
from cluster.domain.tasks import Shard
from cluster.domain.visibility import Visibility
from cluster.reading.asker_view import Known
from cluster.reading.reads import Reads
from cluster.reading.shares import WRITES, HourlyLimiter, require_share, wait
from cluster.registry import Registry, Request, TaskRecord
from cluster.scheduler import upkeep
from cluster.scheduler.leases import Leases
from cluster.scheduler.state import Cancelled, State
from cluster.storage.home import Home
from tacl.errors import HomeInUse, NotAllowed, StorageUnavailable, TaclError
from tacl.training.config import Precision

MISSING = 60.0  # seconds between looks for files that are missing
LOG = logging.getLogger(__name__)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True)
class Decision(Generic[A]):
    """The answer to a request, the transaction that also keeps the answer, and what follows."""

    answer: A
    write: Callable[[Request], object]
    then: Callable[[], object] = lambda: None


def _kept(form: type[A], text: str) -> A:
    """Parse a kept answer. Before answers were JSON, a run's was its id alone."""
    is_json = text.startswith("{")
    return form.model_validate_json(text) if is_json else form.model_validate({"run_id": text})


class RequestHandler(Reads):
    """Its creator must call `tick` again and again: that looks after what runs."""

    def __init__(self, home: str | Path, launcher: Launcher[Any]) -> None:
        self._place = place = Home.at(home)
        settings = place.founded()
        self._base = settings.base
        self._precision: Precision = settings.precision
        self._blobs = place.blobs()
        self._lock = Lock()  # methods and `tick` run in different threads
        self._registry = Registry(place.registry_url)
        self._registry.acquire_writer()
        self._registry.founded(settings.base, settings.generic)
        self._shards = {shard.task: shard for shard in self._registry.shards()}
        champions = self._registry.champion_references().values()
        self._damaged = missing_files(champions, self._blobs)
        self._lost = [vector for vector in champions if vector.name in self._damaged]
        self._sought = time.monotonic()  # when their files were looked for
        self._erasing = Erasing(place, self._registry, self._blobs, self._lock)
        self._changed: list[str] = []  # tasks whose samples changed, since this process began
        self._steps = 0  # of trainings, since this process began
        self._leases, self._writes = Leases(), HourlyLimiter(WRITES)
        self._pins = Pins(self._registry, self._blobs, self._task_state)
        self._execution = Execution(place, self._base, self._registry, launcher, self._lock)
        self._board, self._looking = Board(self._registry), Retries()
        self._board.update(self._state)

    # -- looking after what runs

    def tick(self) -> None:
        """Take in what ended and what the cluster has now, and carry out what is due.

        What cannot be done now, as when the disk is full, is reported in `status` and tried again.
        Raises HomeInUse once another process writes the registry: this one has to end.
        """
        try:
            with self._lock:
                self._registry.check_writer()
                self._reread_if_unsure()
        except HomeInUse:
            raise
        except Exception as error:
            self._execution.log_error(error)
        else:
            self._execution.tick()
            self._looking.try_now(("bringing the status up to date", ""), self._update_board)
            self._looking.try_now(("looking for missing files", ""), self._seek)
            if self._erasing.tick():
                self._execution.underway.poll_again()

    def _update_board(self) -> None:
        """Bring the board up to date, so that the next status is answered quickly."""
        with self._lock:
            self._board.update(self._state)

    def _seek(self) -> None:
        """See which missing files were restored; without the lock: in a bucket it takes a while."""
        if not self._damaged or time.monotonic() - self._sought < MISSING:
            return
        self._sought = time.monotonic()
        before, now = self._damaged, missing_files(self._lost, self._blobs)
        with self._lock:
            self._damaged = now
            other = (one for one in self._lost if before.get(one.name) != now.get(one.name))
            self._board.tell_again(vector.task for vector in other)

    def close(self) -> None:
        """Stop what runs; it stays owed."""
        with self._lock:
            self._execution.close()
            self._registry.close()

    # -- requests

    def _once(
        self,
        context: RequestContext,
        verb: str,
        parts: dict[str, Any],
        form: type[A],
        decide: Callable[[], Decision[A]],
        owner: str | None = None,
    ) -> A:
        """Carry a request out, once: repeated, it is answered from the registry.

        Args:
            verb, parts: what is requested. NameTaken if the id was used for another request.
            form: the type of the answer.
            owner: of a new task, for the log.

        Raises TooMany beyond the sender's share of an hour; a repeated request is not counted.
        """
        asked, request_id = identity(verb, parts), context.request_id
        with self._lock:
            self._reread_if_unsure()
            if (kept := self._registry.answer(request_id, asked)) is not None:
                return _kept(form, kept)
            try:
                if context.sender is not None and verb != "revoke":  # tokens can always be ended
                    self._writes.require(context.sender, 1, "requests that change something")
                decision = decide()
            except TaclError as error:
                facts = {"error": type(error).__name__, "cause": str(error)}
                LOG.info("refused", extra={"request_id": request_id} | facts)
                raise
            self._write(Request(request_id, asked, decision.answer.model_dump_json()), decision)
            self._log_accepted(request_id, decision.answer, owner)
            try:
                decision.then()
            except Exception:  # it is recorded: the request, repeated, is answered
                self._execution.unsure = self._erasing.owed = True
                raise
            return decision.answer

    def _log_accepted(self, request_id: str, answer: Message, owner: str | None) -> None:
        facts = answer.model_dump(include={"task", "run_id", "user"})
        task = self._state.tasks.get(facts.get("task", ""))
        facts = {"user": task.owner if task else owner} | facts
        facts |= {"request_id": request_id, "kind": type(answer).__name__}
        LOG.info("accepted", extra=facts)

    def _write(self, request: Request, decision: Decision) -> None:
        """Commit a decision. A commit that failed may have landed all the same: then its request
        has an answer. If that cannot be read, the registry is read again before anything else."""
        try:
            with self._writing():
                decision.write(request)
        except Exception:
            if not self._execution.unsure:
                raise
            self._registry.await_commit()
            landed = self._registry.answer(request.request_id, request.asked) is not None
            self._execution.unsure = False
            if not landed:
                raise

    @contextmanager
    def _accepting(self, files: Iterable[str]) -> Iterator[None]:
        """If the request is refused inside the block, its files go: otherwise refused requests
        would fill the store. What cannot be decided now is requested again, and needs them."""
        try:
            yield
        except StorageUnavailable:
            raise
        except TaclError:
            self._registry.owe_refused(files)
            raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction. If it fails other than by a refusal, its outcome is not known."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, TaclError) or isinstance(error, StorageUnavailable):
                self._execution.unsure = self._erasing.owed = True
            raise

    def _reread_if_unsure(self) -> None:
        """After a commit whose outcome is not known, take runs and samples from the registry
        again."""
        if self._execution.unsure:
            self._registry.await_commit()
            self._shards = {shard.task: shard for shard in self._registry.shards()}
            self._execution.reread()

    def _queued(
        self, run_id: str, write: Callable[[Request], object], user: str | None = None
    ) -> Decision[QueuedRun]:
        then = partial(self._execution.request, run_id, user)
        return Decision(QueuedRun(run_id=run_id), write, then)

    def _cancelled(
        self,
        context: RequestContext,
        answer: A,
        run_ids: Collection[str],
        dismissed: Collection[str] = (),
    ) -> Decision[A]:
        """Stop these runs; dismissed compositions are no longer awaited."""
        who = context.user or "an admin"
        unspent = upkeep.unspent(self._state, run_ids)
        write = partial(self._registry.cancel, run_ids, dismissed, who, unspent=unspent)
        events = [Cancelled(run_id) for run_id in run_ids]
        return Decision(answer, write, partial(self._execution.apply_events, *events))

    def _require_share(
        self,
        context: RequestContext,
        user: str,
        run_id: str = "",
        more: Iterable[str] = (),
        runs: int = 1,
    ) -> None:
        """Raises TooMany if a request over HTTP goes beyond the user's share of runs, of minutes of
        a day or of bytes: it adds `runs` runs, unless `run_id` is owed or done, and the blobs
        `more`. Admins, and callers beside the cluster, are refused nothing; their runs take turns
        as all do."""
        if not context.limited:
            return
        if run_id and self._registry.runs(states=(*OWED, RunState.DONE), run_ids=[run_id]):
            return
        owed, ran = self._registry.owed_of([user])[user], self._registry.run_times_of([user])[user]
        files = {*self._stored([user], self._execution.heads)[user], *more}
        require_share(self._usage(user, owed + runs, ran, files), wait(ran, time.time()))

    # -- what there is

    @property
    def _trouble(self) -> str | None:
        """What cannot be done now, and is tried again."""
        return self._execution.trouble or self._erasing.trouble

    @property
    def _state(self) -> State:
        return self._execution.state

    def _visibility(self, context: RequestContext) -> Visibility:
        return Visibility(context.user, self._state.owners)

    def _seen_task(self, context: RequestContext, name: str) -> TaskRecord:
        """Raises UnknownTask, also for a task that the requester does not see."""
        return self._registry.task(name, self._visibility(context))

    def _own_task(self, context: RequestContext, name: str) -> TaskRecord:
        """As `_seen_task`; NotAllowed to a limited requester if it is another user's now."""
        found = self._seen_task(context, name)
        if context.limited and found.submission.owner != context.user:
            raise NotAllowed("only the owner of a task, or an admin, may do that")
        return found

    def _has_now(self, task: str, shard: Shard | None) -> None:
        """Set the samples that runs are told of with their next lease; None withdraws them."""
        if shard is None:
            self._shards.pop(task, None)
        else:
            self._shards[task] = shard
        self._changed.append(task)

    def _behind_head(self, task: str) -> Shard:
        """The task's present shard, with the head that the task has from its first vector on."""
        return self._shards[task].model_copy(update={"head": self._state.tasks[task].head})

    @contextmanager
    def _reading(self) -> Iterator[Known]:
        with self._lock:
            self._reread_if_unsure()
            yield self._known

    @property
    def _known(self) -> Known:
        heads = self._execution.heads
        return Known(self._state.owners, lambda: heads)

    def _view(self, context: RequestContext) -> PlanView:
        state, visibility = self._execution.foreseen(), self._visibility(context)
        return PlanView(self._registry, self._known, visibility, state, self._damaged)

    def _entry(self, context: RequestContext, name: str) -> TaskEntry:
        """The task's entry on the board. Raises UnknownTask, as `_seen_task`."""
        self._seen_task(context, name)
        self._board.update(self._state)
        return self._board.task(name)

    def _task_state(self, task: TaskRecord, visibility: Visibility) -> str:
        asks = RequestContext(user=visibility.viewer)
        return self._view(asks).state_of(self._entry(asks, task.name))
