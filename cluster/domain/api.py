"""The coordinator's interface: implemented by the coordinator itself, over Ray and over HTTP.

Every method takes the context of the request first, is idempotent by its id, and raises the errors
of `tacl.errors`; over Ray and HTTP they arrive as the same classes.
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
    """What the registry alone can answer: in the coordinator, and in a process that reads it."""

    # -- tasks and vectors

    def logs(self, context: RequestContext, task: str, after: int = 0) -> Sequence[shown.Event]:
        """What happened to a task, oldest first: PAGE of what comes after the first so many. Raises
        UnknownTask."""
        ...

    def vectors(
        self, context: RequestContext, task: str | None, after: str = ""
    ) -> Sequence[reports.VectorStatus]:
        """Versions of every vector, without their curves, or of one task's: some of the next after
        TASK@vN, at most 16 kB of them, or one. Raises UnknownTask."""
        ...

    def compare(
        self, context: RequestContext, task: str, one: int, other: int
    ) -> reports.VectorComparison:
        """Raises UnknownTask, UnknownVector."""
        ...

    def aliases(self, context: RequestContext, task: str, after: int = 0) -> reports.AliasReport:
        """With PAGE changes after the first so many. Raises UnknownTask."""
        ...

    def refreshed(self, context: RequestContext, run_id: str) -> Refreshed | None:
        """The result of a refresh, None while it is owed. Raises RunFailed with the cause."""
        ...

    # -- models

    def composition(self, context: RequestContext, user: str) -> Composition:
        """The user's model. Raises NoComposition, or Erased: it needs what was purged."""
        ...

    def compositions(self, users: Sequence[str]) -> Sequence[Composition | TaclError]:
        """What `composition` answers or raises for each of these; for the cluster's own servers."""
        ...

    def users(
        self, context: RequestContext, whose: str | None = None, after: str = ""
    ) -> Sequence[reports.UserModel]:
        """Models by user, but those that hold what the asker does not see: the user's that is
        named, or the first PAGE of those after a name."""
        ...

    def evaluation(self, context: RequestContext, run_id: str) -> Evaluated | None:
        """None while it is owed. Raises RunFailed with the cause."""
        ...

    def accuracy_history(
        self, context: RequestContext, user: str | None
    ) -> reports.AccuracyHistory:
        """What was measured of the user's models, or of everybody's, over time: the latest PAGE."""
        ...

    # -- people

    def holder(self, token_hash: str) -> Holder:
        """Whose token this is. Raises NotAuthenticated."""
        ...

    def holders(self, hashes: Sequence[str]) -> Sequence[Holder | TaclError]:
        """What `holder` answers or raises for each of these; for the cluster's own servers."""
        ...

    def tokens(self, whose: str | None = None, after: str = "") -> Sequence[TokenStatus]:
        """A user's, or those of PAGE users after a name, by user."""
        ...

    def usage(self, whose: str | None = None, after: str = "") -> Sequence[Usage]:
        """What a user has of the cluster, or PAGE of them after a name, by name."""
        ...


READS = frozenset(name for name in vars(ReadAPI) if not name.startswith("_"))


class CoordinatorAPI(ReadAPI, Protocol):
    """What people ask, through client, command line and HTTP."""

    # -- tasks

    def admit(self, context: RequestContext, name: str | None) -> None:
        """What `submit` would refuse whatever the data are, or, without a name, a composition that
        learns from rows; asked before they are read. A request that was answered is repeated, and
        not refused. Raises NameTaken, TooMany."""
        ...

    def submit(
        self, context: RequestContext, submission: Submission, again: bool = False
    ) -> receipts.Submitted:
        """Accept a task: everything is checked before anything is stored. `again`: also where a
        task that the asker sees has the same rows.

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
        that newer samples or vectors made pointless is left; models and evaluations are asked for
        again by their users. Raises UnknownTask, NotAllowed."""
        ...

    def cancel(
        self, context: RequestContext, task: str, keep: bool = False
    ) -> receipts.CancelledTask:
        """Stop the training or refresh of this task at whatever stage it is. A task that has no
        vector yet leaves: its samples are used no more, its name is free and its files are deleted
        soon, unless told to `keep` them and the checkpoints for `retry`. Raises UnknownTask,
        NotAllowed."""
        ...

    def remove(self, context: RequestContext, task: str, purge: bool) -> receipts.RemovedTask:
        """Withdraw a task's samples and vectors from later use; its name stays taken. Models that
        hold its vectors work on, unless `purge` erases its bytes too: runs that met its samples
        begin anew then. A removed task may still be purged. Raises UnknownTask."""
        ...

    def refresh(self, context: RequestContext, task: str) -> receipts.QueuedRun:
        """Refresh a task's champion against all other shards now. One that is owed, or was done
        with the same samples, is the answer too. Raises UnknownTask, UnknownVector."""
        ...

    def task(self, context: RequestContext, name: str) -> shown.TaskDetail:
        """Raises UnknownTask."""
        ...

    def status(
        self, context: RequestContext, since: str = "", tasks: Sequence[str] = ()
    ) -> shown.ClusterStatus:
        """The base model, the resources of the cluster, and of the tasks and the work that is owed
        what is new since a version that was told, some at a time (`domain.status_sync`). Or, of at
        most NAMED tasks, these and the work on them, whole; what others do is a number there
        where one of these waits. Raises UnknownTask."""
        ...

    def version(self) -> str:
        """Of all that anybody's status tells: while it stays the same, nothing is new. It is for
        the cluster's own servers, since it changes with what others do in private."""
        ...

    # -- vectors

    def move_alias(
        self, context: RequestContext, task: str, name: str, version: int, expected: int | None
    ) -> receipts.MovedAlias:
        """Let TASK@NAME mean a version. `expected` is the version that it means now, None for none
        yet, ANY for whatever it is. The champion decides what is measured, refreshed and composed
        by default; pinned models stay as they are.

        Raises BadName, UnknownTask, NotAllowed, UnknownVector, AliasMoved.
        """
        ...

    def interference(
        self, context: RequestContext, tasks: Sequence[str] = ()
    ) -> reports.InterferenceReport:
        """What the champions of these tasks, or of the newest, do to each other's tasks, and what
        that warns of; of more than 24 the last. And the 24 loudest pairs of all tasks. Raises
        UnknownTask."""
        ...

    def interference_of(self, context: RequestContext, task: str) -> reports.TaskInterference:
        """What the champion of a task does to all others, and theirs to it: the loudest PAGE of
        each. Raises UnknownTask."""
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
        unless they compose something else meanwhile. The same inputs are the same run, done once
        while the files of its result are there.

        Raises BadName, BadConfig, BadRecipe, UnknownTask, UnknownVector, MixedRegimes, CorruptBlob.
        """
        ...

    def composition_run(
        self, context: RequestContext, user: str, run_id: str
    ) -> shown.CompositionRun:
        """Raises UnknownRun, also for somebody else's."""
        ...

    def cancel_compositions(
        self, context: RequestContext, user: str
    ) -> receipts.CancelledCompositions:
        """Stop every composition run of the user, who keeps the model they have. What failed is
        dismissed: `status` lists it no more, and the rows that it was to be made from are deleted
        soon. Raises BadName."""
        ...

    def update_composition(self, context: RequestContext, user: str) -> Composition:
        """The user's model, a sum, with every vector moved to its task's champion of now. Raises
        NoComposition, and what `compose` raises."""
        ...

    def evaluate(
        self,
        context: RequestContext,
        user: str,
        materialized: bool,
        without: bool,
        terms: Sequence[str],
    ) -> receipts.QueuedRun:
        """Evaluate the user's model on the test rows of its tasks, or, with `terms`, what their sum
        would be; also as one ordinary model when `materialized`, and with each vector left out when
        `without`. The same model on the same data is evaluated once; one that failed is tried again
        by a request of a new id. Raises NoComposition, what `compose` raises, and BadRecipe: the
        vectors of what was merged cannot be left out."""
        ...

    # -- the cluster

    def run(self, context: RequestContext, run_id: str) -> shown.RunStatus:
        """Raises RunFailed when there is none."""
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
        """Remember a token of a user by its sha256; it ends after so many days, or never. Raises
        BadName, BadConfig, NameTaken."""
        ...

    def rotate_token(self, context: RequestContext, token: str, token_hash: str) -> IssuedToken:
        """A new token, by its sha256, in place of the one whose sha256 begins with `token`, which
        lives on for an hour. Role and length of life are the same. Raises BadConfig, NameTaken."""
        ...

    def revoke_tokens(self, context: RequestContext, user: str) -> RevokedTokens:
        """All of a user's. Raises UnknownUser when there was none."""
        ...


class RunAPI(Protocol):
    """What runs ask and tell. RunFailed: `attempt` is no longer the current one; stop then, and
    publish nothing."""

    def lease(self, asked: Lease) -> Leave:
        """What a run's steps see: the generic samples and those of the other tasks that its owner
        sees, never its own.

        Rank 0 asks. What a step was told is recorded: asked again after a resume it is told the
        same, and newcomers join only from the first step that nobody had leave for before. The more
        trainings run, the longer the next lease is to be. It is told too whether the run is to give
        its place back.
        """
        ...

    def awaits(self, run_id: str, attempt: int) -> bool:
        """Whether `attempt` is the current one: else its learner ends."""
        ...

    def progressed(self, run_id: str, progress: Progress, attempt: int) -> bool:
        """How far a run is that asks nothing before its steps; whether it is to give way to what
        somebody waits for."""
        ...

    def stated(self, run_id: str, statistics: str, attempt: int | None) -> None:
        """What others see of the samples of a run's task, from their next step on: the blob of its
        statistics. Raises CorruptBlob."""
        ...
