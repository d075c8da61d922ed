"""Requests that the registry alone can answer. The same code runs in the coordinator, which has in
memory what it needs beside, and in a process that reads on its own (`reader`)."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from cluster.domain.base import PAGE, RequestContext
from cluster.domain.compositions import Composition
from cluster.domain.reports import (
    AccuracyHistory,
    AliasReport,
    UserModel,
    VectorComparison,
    VectorStatus,
)
from cluster.domain.status import OWED, Event, RunKind, RunState
from cluster.domain.users import Holder, TokenStatus, Usage
from cluster.domain.visibility import Visibility
from cluster.domain.work import Evaluated, Refreshed, about
from cluster.reading import reports, shares
from cluster.reading.asker_view import AskerView, Known
from cluster.reading.heads import FittedHeads
from cluster.reading.models import current
from cluster.reading.tokens import held_by, is_noted, listed
from cluster.registry import Ran, Registry
from tacl.errors import RunFailed, TaclError

if TYPE_CHECKING:  # it brings pyarrow, which few questions need
    from cluster.storage.blobs import Blobs

R = TypeVar("R", Evaluated, Refreshed)
T = TypeVar("T")


def answered(found: Sequence[T | TaclError]) -> T:
    """The only answer of a list; an error is raised."""
    (one,) = found
    if isinstance(one, TaclError):
        raise one
    return one


class Reads(ABC):
    """Implements `cluster.domain.api.ReadAPI`. `compositions` and `holders` answer many at once."""

    _registry: Registry
    _blobs: Blobs

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Known]:
        """What is known beside the registry; inside, both are of one snapshot. Otherwise somebody
        might be told of a private task that is not yet known to be private."""

    @abstractmethod
    def _note(self, hashes: Sequence[str], now: float) -> None:
        """Record that these tokens were used."""

    @contextmanager
    def _seeing(self, context: RequestContext, task: str | None = None) -> Iterator[AskerView]:
        """Raises UnknownTask, also for a task that the requester does not see."""
        with self._reading() as known:
            visibility = Visibility(context.user, known.owners)
            if task is not None:
                self._registry.task(task, visibility)
            yield AskerView(self._registry, known, visibility)

    # -- tasks and vectors

    def logs(self, context: RequestContext, task: str, after: int = 0) -> list[Event]:
        with self._seeing(context, task):
            return self._registry.events(task, after, PAGE)

    def vectors(
        self, context: RequestContext, task: str | None = None, after: str = ""
    ) -> list[VectorStatus]:
        with self._seeing(context, task) as view:
            return reports.vectors(view, task, after)

    def compare(self, context: RequestContext, task: str, one: int, other: int) -> VectorComparison:
        with self._seeing(context, task) as view:
            return reports.compare(view, task, (one, other))

    def aliases(self, context: RequestContext, task: str, after: int = 0) -> AliasReport:
        with self._seeing(context, task):
            history = tuple(self._registry.alias_changes(task, after, PAGE))
            return AliasReport(aliases=self._registry.aliases(task), history=history)

    def refreshed(self, context: RequestContext, run_id: str) -> Refreshed | None:
        found = self._result(context, run_id, "refresh", Refreshed)
        if found is None:
            return None
        with self._seeing(context) as view:
            pairs = tuple(pair for pair in found.pairs if view.visibility.sees(pair.on))
        return found.model_copy(update={"pairs": pairs})

    # -- models

    def composition(self, context: RequestContext, user: str) -> Composition:
        return answered(self.compositions([user]))

    def compositions(self, users: Sequence[str]) -> list[Composition | TaclError]:
        """For each of these users, what `composition` returns or raises."""
        with self._reading() as known:
            found = {model.user: model for model in self._registry.compositions(*users)}
            purged, removed_of = self._registry.purged(), self._registry.removed_of
            models = [current(user, found.get(user), purged, removed_of) for user in users]
            owners, heads = known.owners, known.heads()
        return [
            one if isinstance(one, TaclError) else heads.answering(one, owners) for one in models
        ]

    def users(
        self, context: RequestContext, whose: str | None = None, after: str = ""
    ) -> list[UserModel]:
        with self._seeing(context) as view:
            return reports.users(view, whose, after)

    def evaluation(self, context: RequestContext, run_id: str) -> Evaluated | None:
        return self._result(context, run_id, "evaluate", Evaluated)

    def accuracy_history(self, context: RequestContext, user: str | None) -> AccuracyHistory:
        with self._seeing(context) as view:
            return reports.accuracy_history(view, user)

    # -- people

    def holder(self, token_hash: str) -> Holder:
        return answered(self.holders([token_hash]))

    def holders(self, hashes: Sequence[str]) -> list[Holder | TaclError]:
        """For each of these hashes, what `holder` returns or raises."""
        found, now = {one.hash: one for one in self._registry.tokens(*hashes)}, time.time()
        if new := [one.hash for one in found.values() if not is_noted(one, now)]:
            self._note(new, now)
        return [held_by(found.get(one), now) for one in hashes]

    def tokens(self, whose: str | None = None, after: str = "") -> list[TokenStatus]:
        one_user = whose is not None
        found = self._registry.tokens_of(whose) if one_user else self._registry.tokens_after(after)
        return [listed(token) for token in found]

    def usage(self, whose: str | None = None, after: str = "") -> list[Usage]:
        with self._reading() as known:
            heads = known.heads()  # the rest without the lock: a page takes a fifth of a second
        users = self._registry.users_after(after) if whose is None else [whose]
        owed, ran = self._registry.owed_of(users), self._registry.run_times_of(users)
        stored = self._stored(users, heads)
        return [self._usage(user, owed[user], ran[user], stored[user]) for user in users]

    # -- inside

    def _stored(self, users: Collection[str], heads: FittedHeads) -> dict[str, set[str]]:
        """By user, the digests of the files that count for them."""
        return {
            user: {*stored, *heads.blobs({one.task for one in stored.values()})}
            for user, stored in self._registry.stored_of(users).items()
        }

    def _usage(self, user: str, runs: int, ran: Ran, files: Collection[str]) -> Usage:
        return Usage(
            user=user,
            queued=runs,
            queued_most=shares.QUEUED,
            ran=shares.minutes(ran),
            ran_most=shares.RAN,
            stored=self._blobs.size(files),
            stored_most=shares.STORED,
        )

    def _result(
        self, context: RequestContext, run_id: str, kind: RunKind, form: type[R]
    ) -> R | None:
        """The result of such a run, None while it is owed. Raises RunFailed with the cause."""
        with self._seeing(context) as view:
            run = view.seen_run(run_id)
            if run.state not in (*OWED, RunState.DONE):
                # An evaluation may be another user's, of a model that is the requester's too.
                own = not context.limited or run.user in (None, context.user)
                raise RunFailed(f"{about(run.work) if own else 'the run'} {run.state}: {run.cause}")
            if run.kind != kind:
                raise RunFailed(f"a {kind} was asked for, and run {run_id} is a {run.kind}")
            return self._registry.result(run_id, form)
