"""The coordinator's interface: implemented by the coordinator itself, over Ray and over HTTP.

Methods that take the context of the request, always first, are idempotent by its id. All raise the
errors of `tacl.errors`; over Ray and HTTP they arrive as the same classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cluster.domain import receipts, reports
from cluster.domain import status as shown
from cluster.domain.base import BlobRef, RequestContext
from cluster.domain.compositions import Composition, CompositionMethod
from cluster.domain.figures import CoordinatorFigures
from cluster.domain.tasks import Submission
from cluster.domain.users import Holder, IssuedToken, RevokedTokens, Role, TokenStatus, Usage
from cluster.domain.work import Evaluated, Lease, Leave, Progress, Refreshed
from tacl.errors import TaclError


class ReadAPI(Protocol):
    """Requests that the registry alone can answer, in the coordinator or in its readers."""

    # -- tasks and vectors

    def logs(self, context: RequestContext, task: str, after: int = 0) -> Sequence[shown.Event]:
        """The events of a task, oldest first: PAGE of them after the first `after`. Raises
        UnknownTask."""
        ...

    def vectors(
        self, context: RequestContext, task: str | None, after: str = ""
    ) -> Sequence[reports.VectorStatus]:
        """Versions of every vector, without their curves, or of one task's: some of the next after
        TASK@vN, at most 16 kB of them, but at least one. Raises UnknownTask."""
        ...

    def compare(
        self, context: RequestContext, task: str, one: int, other: int
    ) -> reports.VectorComparison:
        """Two versions of a vector. Raises UnknownTask, UnknownVector."""
        ...

    def aliases(self, context: RequestContext, task: str, after: int = 0) -> reports.AliasReport:
        """The aliases of a task, with PAGE changes after the first `after`. Raises UnknownTask."""
        ...

    def refreshed(self, context: RequestContext, run_id: str) -> Refreshed | None:
        """The result of a refresh, None while it is owed. Raises RunFailed with the cause."""
        ...

    # -- models

    def composition(self, context: RequestContext, user: str) -> Composition:
        """The user's model. Raises NoComposition, or Erased if it needs what was purged."""
        ...

    def compositions(self, users: Sequence[str]) -> Sequence[Composition | TaclError]:
        """What `composition` returns or raises for each of these; for the cluster's own servers."""
        ...

    def users(
        self, context: RequestContext, whose: str | None = None, after: str = ""
    ) -> Sequence[reports.UserModel]:
        """Models by user, without those that have tasks which the requester does not see: that of
        the user named, or the first PAGE after a name."""
        ...

    def evaluation(self, context: RequestContext, run_id: str) -> Evaluated | None:
        """The result of an evaluation, None while it is owed. Raises RunFailed with the cause."""
        ...

    def accuracy_history(
        self, context: RequestContext, user: str | None
    ) -> reports.AccuracyHistory:
        """Accuracies of the user's models, or of everybody's: from the latest PAGE evaluations."""
        ...

    # -- people

    def holder(self, token_hash: str) -> Holder:
        """Whose token this is. Raises NotAuthenticated."""
        ...

    def holders(self, hashes: Sequence[str]) -> Sequence[Holder | TaclError]:
        """What `holder` returns or raises for each of these; for the cluster's own servers."""
        ...

    def tokens(self, whose: str | None = None, after: str = "") -> Sequence[TokenStatus]:
        """The tokens of one user, or those of PAGE users after a name, by user."""
        ...

    def usage(self, whose: str | None = None, after: str = "") -> Sequence[Usage]:
        """What one user has of the cluster, or each of PAGE users after a name, by name."""
        ...


READS = frozenset(name for name in vars(ReadAPI) if not name.startswith("_"))


class CoordinatorAPI(ReadAPI, Protocol):
    """Requests from people, through client, command line and HTTP."""

    # -- tasks

    def admit(self, context: RequestContext, name: str | None) -> None:
        """Raises what `submit` would raise whatever the data are or, without a name, what a
        composition that learns from rows would; called before the data are read. A request that was
        answered already is repeated, and not refused. Raises NameTaken, TooMany."""
        ...

    def submit(
        self, context: RequestContext, submission: Submission, again: bool = False
    ) -> receipts.Submitted:
        """Accept a task: everything is checked before anything is stored. `again`: even if a task
        that the requester sees has the same rows.

        Raises BadName, NameTaken, SameData, ModalityMismatch, NotPlaceable, BadConfig,
        TooFewClasses, EmptySplit, CorruptBlob (a blob it names is not there).
        """
        ...

    def add_samples(self, context: RequestContext, task: str, blob: BlobRef) -> receipts.GrownShard:
        """Grow a task's part of the sample store by the rows of `blob`, a shard blob.

        Rows already there are left out; the old probe stays, and the blob's own probe rows join it.
        Raises UnknownTask, CorruptBlob.
        """
        ...

    def retry(self, context: RequestContext, task: str) -> receipts.RetriedTask:
        """Queue what failed or was cancelled of this task again, with a fresh budget. A refresh
        that newer samples or vectors made pointless is left out; users request their models and
        evaluations again themselves. Raises UnknownTask, NotAllowed."""
        ...

    def cancel(
        self, context: RequestContext, task: str, keep: bool = False
    ) -> receipts.CancelledTask:
        """Stop the training or refresh of this task at whatever stage it is. A task that has no
        vector yet leaves: its samples are no longer used, its name becomes free and its files are
        deleted soon, unless `keep` keeps them and the checkpoints for `retry`. Raises UnknownTask,
        NotAllowed."""
        ...

    def remove(self, context: RequestContext, task: str, purge: bool) -> receipts.RemovedTask:
        """Withdraw a task's samples and vectors from later use; its name stays taken. Models that
        have its vectors keep working, unless `purge` erases its bytes too: then runs that met its
        samples start anew. A removed task may still be purged. Raises UnknownTask."""
        ...

    def refresh(self, context: RequestContext, task: str) -> receipts.QueuedRun:
        """Refresh a task's champion against other shards now. If a refresh is owed, or was done
        with the same samples, that one is returned. Raises UnknownTask, UnknownVector."""
        ...

    def task(self, context: RequestContext, name: str) -> shown.TaskDetail:
        """Everything about a task. Raises UnknownTask."""
        ...

    def status(
        self, context: RequestContext, since: str = "", tasks: Sequence[str] = ()
    ) -> shown.ClusterStatus:
        """The base model, the resources of the cluster, and what is new in tasks and owed work
        since the version `since`, some at a time (`domain.status_sync`). With `tasks`, at most
        NAMED: these and the work on them, whole; of what others do, only the number ahead of one
        that waits is returned. Raises UnknownTask."""
        ...

    def version(self) -> str:
        """A version of everybody's status: while it stays the same, nothing is new. It is only for
        the cluster's own servers, since it changes with what others do in private."""
        ...

    # -- vectors

    def move_alias(
        self, context: RequestContext, task: str, name: str, version: int, expected: int | None
    ) -> receipts.MovedAlias:
        """Make TASK@NAME mean a version. `expected`: the version that it means now, None for none
        yet, ANY for whatever it is. The champion decides what is measured, refreshed and composed
        by default; pinned models stay as they are.

        Raises BadName, UnknownTask, NotAllowed, UnknownVector, AliasMoved, and TooMany if the name
        is new and the task has 100 already.
        """
        ...

    def interference(
        self, context: RequestContext, tasks: Sequence[str] = ()
    ) -> reports.InterferenceReport:
        """What the champions of these tasks, or of the newest, do to each other's tasks, and
        warnings of it; of more than 24 tasks, of the last 24. Also the 24 loudest pairs of all
        tasks. Raises UnknownTask."""
        ...

    def interference_of(self, context: RequestContext, task: str) -> reports.TaskInterference:
        """What the champion of a task does to all other tasks, and their champions to it: the
        loudest PAGE of each. Raises UnknownTask."""
        ...

    # -- compositions

    def compose(self, context: RequestContext, user: str, terms: Sequence[str]) -> Composition:
        """Pin the vectors that a recipe names and make their sum the user's model.

        Raises BadName, BadRecipe, UnknownTask, UnknownVector (says the task's state), MixedRegimes,
        CorruptBlob.
        """
        ...

    def start_composition(
        self, context: RequestContext, user: str, terms: Sequence[str], how: CompositionMethod
    ) -> shown.CompositionRun:
        """Queue a composition that is more than a sum; it becomes the user's model when it is done,
        unless they compose something else meanwhile. The same inputs give the same run, done once
        as long as the files of its result are there.

        Raises BadName, BadConfig, BadRecipe, UnknownTask, UnknownVector, MixedRegimes, CorruptBlob.
        """
        ...

    def composition_run(
        self, context: RequestContext, user: str, run_id: str
    ) -> shown.CompositionRun:
        """The status of a composition run. Raises UnknownRun, also for somebody else's."""
        ...

    def cancel_compositions(
        self, context: RequestContext, user: str
    ) -> receipts.CancelledCompositions:
        """Stop every composition run of the user, who keeps the model they have. Failed ones are
        dismissed: `status` no longer lists them, and the rows that they were to be made from are
        deleted soon. Raises BadName."""
        ...

    def update_composition(self, context: RequestContext, user: str) -> Composition:
        """The user's model, a sum, with every vector moved to its task's present champion; a task
        that occurs twice keeps its versions. Raises NoComposition, and what `compose` raises."""
        ...

    def evaluate(
        self,
        context: RequestContext,
        user: str,
        materialized: bool,
        without: bool,
        terms: Sequence[str],
    ) -> receipts.QueuedRun:
        """Evaluate the user's model on the test rows of its tasks or, with `terms`, the sum that
        they would make; also as one ordinary model if `materialized`, and with each vector left out
        if `without`. The same model on the same data is evaluated once; one that failed is tried
        again by a request with a new id. Raises NoComposition, what `compose` raises, and BadRecipe
        if the vectors were merged and cannot be left out."""
        ...

    # -- the cluster

    def run(self, context: RequestContext, run_id: str) -> shown.RunStatus:
        """The status of a run. Raises UnknownRun, also for one that the requester does not see."""
        ...

    def cluster(self) -> shown.Resources: ...

    def figures(self) -> CoordinatorFigures: ...

    def references(self, context: RequestContext) -> reports.NeededFiles:
        """Every file that something needs, for `tacl doctor`."""
        ...

    def collect(self, dry_run: bool) -> receipts.CollectedGarbage:
        """Delete files that nothing refers to and that are not new."""
        ...

    # -- users

    def issue_token(
        self,
        context: RequestContext,
        user: str,
        role: Role,
        token_hash: str,
        days: float | None = None,
    ) -> IssuedToken:
        """Record a token of a user by its sha256; it ends after `days`, or never. Raises BadName,
        BadConfig, NameTaken."""
        ...

    def rotate_token(self, context: RequestContext, token: str, token_hash: str) -> IssuedToken:
        """Record a new token, by its sha256, in place of the one whose sha256 starts with `token`,
        which is valid for one more hour. Role and length of life stay the same. Raises BadConfig,
        NameTaken, TooMany."""
        ...

    def revoke_tokens(self, context: RequestContext, user: str) -> RevokedTokens:
        """Revoke all tokens of a user. Raises UnknownUser when there was none."""
        ...


class RunAPI(Protocol):
    """Requests from runs. RunFailed: `attempt` is no longer the current one; stop then, and publish
    nothing."""

    def lease(self, asked: Lease) -> Leave:
        """What a run's steps see: the generic samples and those of the other tasks that its owner
        sees, never its own.

        Rank 0 requests it. What a step was told is recorded: after a resume it is told the same,
        and newcomers join only from the first step that was never leased. The more trainings run,
        the longer the next lease should be. The answer also says whether the run must give its
        place back.
        """
        ...

    def is_current(self, run_id: str, attempt: int) -> bool:
        """Whether `attempt` is the current one; otherwise its learner ends."""
        ...

    def report_progress(self, run_id: str, progress: Progress, attempt: int) -> bool:
        """Report how far a run is that requests no leases; returns whether it must give way to what
        somebody waits for."""
        ...

    def publish_statistics(self, run_id: str, statistics: str, attempt: int | None) -> None:
        """Set what others see of the samples of a run's task, from their next lease on: the blob of
        its statistics. The first that are given of a version of the samples stay. Raises
        CorruptBlob."""
        ...
