"""The coordinator: the one process that decides, and the only one that writes the registry.

Decisions are made in `plan`, and `execution` carries them out; this is what people and learners
ask. The order is always: blobs lie in the store, then one transaction of the registry, then the
event to the plan. The constructor is the recovery: it reads the registry and issues the work still
owed.

Every method is idempotent by the id it is given, so a caller repeats it after a lost answer.
Arguments and answers are messages or JSON-able dicts. Errors are those of `tacl.errors`; through
Ray they arrive as the `cause` of a RayTaskError.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from cluster.coordinator import garbage, views, work_orders
from cluster.coordinator.acceptance import missing_files, require_sound
from cluster.coordinator.accounts import Accounts, answered
from cluster.coordinator.arrivals import known
from cluster.coordinator.compositions import Compositions
from cluster.coordinator.executor import Execution
from cluster.coordinator.launcher import Launcher
from cluster.coordinator.recipes import Pins, current, require_sum
from cluster.domain.base import BlobRef, identity
from cluster.domain.compositions import Composition
from cluster.domain.names import checked_alias, checked_name
from cluster.domain.tasks import CHAMPION, Shard, Submission, Submitted, VectorRef
from cluster.domain.visibility import Sight
from cluster.domain.work import Progress
from cluster.registry import OWED, STOPPED, Registry, Request, Task
from cluster.scheduler import plan
from cluster.scheduler.state import Cancelled, Championed, Removed, SamplesArrived, State, Vector
from cluster.storage.home import Home
from cluster.storage.samples import grown
from tacl.compose.terms import Term, parse_recipe
from tacl.errors import RunFailed, StorageUnavailable, TaclError


class Coordinator(Accounts, Compositions):
    """Carries out what `plan` decides; see the module's docstring.

    Whoever makes one calls `tick` again and again: it looks after what runs.
    """

    def __init__(self, home: str | Path, launcher: Launcher) -> None:
        self._place = place = Home.at(home)
        settings = place.founded()
        self._base = settings.base
        self._blobs = place.blobs()
        self._lock = threading.RLock()  # methods and `tick` come from different threads
        self._registry = Registry(place.registry_url)
        self._registry.hold()
        self._registry.founded(settings.base, settings.generic)
        self._shards = {shard.task: shard for shard in self._registry.shards()}
        champions = [entry.reference for entry in self._registry.champions()]
        self._damaged = missing_files(champions, self._blobs)
        self._unsure = False  # whether a commit's outcome is not known
        self._owes_erasure = True
        self._pins = Pins(self._registry, self._blobs, self._task_state)
        self._execution = Execution(place, self._base, self._registry, launcher, self._lock)

    # -- tasks and their samples

    def submit(self, submission: Submission) -> Submitted:
        """Accept a task: everything is checked before anything is stored.

        Raises BadName, NameTaken, ModalityMismatch, NotPlaceable, BadConfig, TooFewClasses,
        EmptySplit, CorruptBlob (a blob it names is not in the store).
        """
        asked = identity("submit", submission.model_dump(mode="json"))
        with self._lock:
            answer = self._answer(submission.request_id, asked)
            if answer is not None:
                return Submitted.model_validate_json(answer)
            nodes = self._state.nodes
            require_sound(submission, self._base, self._shards, self._blobs, nodes)
            work = work_orders.training(self._base, submission)
            accepted = Submitted(task=submission.name, run_id=work.run_id, state="queued")
            request = Request(submission.request_id, asked, accepted.model_dump_json())
            self._write(request, self._registry.accept, submission, work)
            ordinal = self._registry.task(submission.name).ordinal
            shard = Shard(task=submission.name, ordinal=ordinal, blob=submission.shard)
            self._arrived(shard, submission)
            self._execution.request(work.run_id)
        return accepted

    def add_samples(
        self, task: str, blob: BlobRef, request_id: str, viewer: str | None = None
    ) -> dict[str, object]:
        """Grow a task's store by the rows of `blob`, a shard blob made by `ingest`.

        Rows already there are left out; the old probe stays, and the blob's own probe rows join it.
        Answers {task, version, rows, added}. Raises UnknownTask, CorruptBlob.
        """
        asked = identity("add_samples", {"task": task, "blob": blob.digest})
        with self._lock:
            answer = self._answer(request_id, asked)
            if answer is not None:
                return json.loads(answer)
            submission = self._registry.task(task, self._sight(viewer)).submission
            old = self._shards[task]
            both = grown(self._blobs, old.blob, blob)
            new = old.model_copy(update={"blob": both, "version": old.version + (both != old.blob)})
            facts = {"task": task, "version": new.version, "rows": both.rows}
            facts["added"] = both.rows - old.blob.rows
            self._write(Request(request_id, asked, json.dumps(facts)), self._registry.grow, new)
            if new != old:
                self._arrived(new, submission)
        return facts

    def known(
        self, run_id: str, step: int, progress: Progress | None = None, attempt: int | None = None
    ) -> tuple[Shard, ...]:
        """The shards a run's optimizer step `step` (0, 1, ...) sees: generic first, then the other
        tasks that its owner sees by arrival, never its own.

        Rank 0 asks before each step. What a step was told is recorded: asked again after a resume
        it is told the same, and newcomers join only from the first step never asked for before.
        Raises RunFailed when `attempt` is no longer the current one (stop then, publish nothing).
        """
        with self._lock:
            self._make_sure()
            told = self._execution.told(run_id, attempt)
            shards, sight = self._behind_heads().values(), self._sight(told.owner)
            current = known(shards, told.own, sight, self._withheld())
            newcomers = told.arrivals.newcomers(step, current)
            left = told.arrivals.leavers(step, current)
            self._registry.told(run_id, step, newcomers, progress, left)
            told.arrivals.record(step, newcomers, left)
            return told.arrivals.at(step)

    def progressed(self, run_id: str, progress: Progress, attempt: int) -> None:
        """How far a run is that asks nothing before its steps. Raises RunFailed as `known` does."""
        with self._lock:
            if not self._registry.progressed(run_id, attempt, progress):
                raise RunFailed(f"attempt {attempt} of run {run_id} is not the one that runs now")

    def stated(self, run_id: str, statistics: str, attempt: int | None = None) -> None:
        """What others see of the samples of a run's task, from their next step on: the blob of its
        statistics. Raises RunFailed as `known` does, CorruptBlob."""
        with self._lock:
            self._make_sure()
            shard = self._shards[self._execution.told(run_id, attempt).own]
            if shard.statistics != statistics:
                self._blobs.verify(statistics)
                shard = shard.model_copy(update={"statistics": statistics})
                self._registry.state(shard)
                self._shards[shard.task] = shard

    def retry(self, task: str, viewer: str | None = None) -> dict[str, object]:
        """Queue what failed or was cancelled of this task again, with a fresh budget. {task,
        retried: [run ids]}. A refresh that newer samples or vectors made pointless is left. Raises
        UnknownTask."""
        with self._lock:
            self._make_sure()
            self._registry.task(task, self._sight(viewer))
            failed = self._registry.runs(states=STOPPED)
            chosen = [
                run.run_id
                for run in failed
                if run.kind != "compose"  # whose user asks for it again
                if task in work_orders.tasks_of(run.work)
                and plan.is_current(self._state, self._state.runs[run.run_id])
            ]
            for run_id in chosen:
                self._execution.request(run_id)
        return {"task": task, "retried": chosen}

    def cancel(self, task: str, request_id: str, viewer: str | None = None) -> dict[str, object]:
        """Stop the training or the refresh of this task that is owed, at whatever stage it is, and
        free its room; checkpoints stay for `retry`. {task, cancelled: [run ids]}. UnknownTask."""
        asked = identity("cancel", {"task": task})
        with self._lock:
            answer = self._answer(request_id, asked)
            if answer is not None:
                return json.loads(answer)
            self._registry.task(task, self._sight(viewer))
            chosen = [run.run_id for run in self._registry.runs(states=OWED, task=task)]
            facts: dict[str, object] = {"task": task, "cancelled": chosen}
            self._cancel(chosen, Request(request_id, asked, json.dumps(facts)))
        return facts

    def remove(
        self, task: str, purge: bool, request_id: str, viewer: str | None = None
    ) -> dict[str, object]:
        """Withdraw a task's samples and vectors from later use; its name stays taken. Models that
        use its vectors work on, unless `purge` erases its bytes too: runs that met its samples
        begin anew then. {task, purged, users: [whose models depend on it], withdrawn: [run ids]}.
        A task that was removed may still be purged. Raises UnknownTask."""
        asked = identity("remove", {"task": task, "purge": purge})
        with self._lock:
            answer = self._answer(request_id, asked)
            if answer is not None:
                return json.loads(answer)
            self._require_removable(task, purge, self._sight(viewer))
            left = self._registry.runs((*OWED, *STOPPED))
            uses = [run.run_id for run in left if work_orders.uses(run.work, task, purge)]
            anew = [run for run in self._registry.that_met(task) if purge and run not in uses]
            users = self._registry.users_of(task)
            facts: dict[str, object] = {"task": task, "purged": purge, "users": users}
            facts["withdrawn"] = uses
            request = Request(request_id, asked, json.dumps(facts))
            gone = self._registry.references_of(task) if purge else ()
            how = "purged" if purge else "removed"
            self._write(request, self._registry.remove, task, how, uses, anew, gone)
            self._shards.pop(task, None)
            self._execution.happened(Removed(task, tuple(uses), tuple(anew)))
            self._owes_erasure |= purge
        return facts

    # -- vectors

    def refresh(self, task: str, request_id: str, viewer: str | None = None) -> str:
        """Refresh a task's champion against all other shards now; its run id. One that was done
        already with the same samples, or one that is owed, is the answer too.

        Raises UnknownTask, UnknownVector (nothing published yet).
        """
        asked = identity("refresh", {"task": task})
        with self._lock:
            answer = self._answer(request_id, asked)
            if answer is not None:
                return answer
            self._pins.pin(Term(1.0, task), self._sight(viewer))
            owed = self._registry.runs(states=("queued", "running"), task=task, kinds=("refresh",))
            refresh = plan.refresh_of(self._state, task)
            run_id = owed[0].run_id if owed else refresh.run_id
            work = (
                owed[0].work
                if owed
                else work_orders.refreshing(self._registry, self._base, refresh)
            )
            self._write(Request(request_id, asked, run_id), self._registry.add_run, work, task)
            self._execution.request(run_id)
        return run_id

    def move_alias(
        self,
        task: str,
        name: str,
        version: int,
        expected: int | None,
        request_id: str,
        viewer: str | None = None,
    ) -> dict[str, object]:
        """Let TASK@NAME mean a version. `expected` is the version that it means now, None for none
        yet, ANY for whatever it is. {task, name, version}. The champion decides what is measured,
        refreshed and composed by default; models that are pinned stay as they are.

        Raises BadName, UnknownTask, UnknownVector, AliasMoved.
        """
        checked_alias(name)
        parts = {"task": task, "name": name, "version": version, "expected": expected}
        asked = identity("move_alias", parts)
        with self._lock:
            answer = self._answer(request_id, asked)
            if answer is not None:
                return json.loads(answer)
            self._registry.task(task, self._sight(viewer))
            reference = self._registry.vector(task, version)
            facts: dict[str, object] = {"task": task, "name": name, "version": version}
            request = Request(request_id, asked, json.dumps(facts))
            self._write(request, self._registry.move_alias, task, name, version, expected)
            if name == CHAMPION:
                self._crowned(reference)
        return facts

    def aliases(self, task: str, viewer: str | None = None) -> dict[str, object]:
        """{aliases: {name: version}, history: [{at, name, came_from, version, cause}]}, oldest
        first. Raises UnknownTask."""
        with self._lock:
            self._registry.task(task, self._sight(viewer))
            moves = [vars(move) for move in self._registry.moves(task)]
            return {"aliases": self._registry.aliases(task), "history": moves}

    def vectors(
        self, task: str | None = None, viewer: str | None = None
    ) -> list[dict[str, object]]:
        """Every version of every vector (of one task): a VectorRef's fields, champion, norm,
        metrics, config, curves, created, arrivals: [{step, left, task, version}]. UnknownTask."""
        with self._lock:
            if task is not None:
                self._registry.task(task, self._sight(viewer))
            return views.vectors(self._registry, task, self._sight(viewer))

    def compare(
        self, task: str, one: int, other: int, viewer: str | None = None
    ) -> dict[str, object]:
        """What is different between two versions: {task, versions: [int, int], norm, metrics,
        config, tau_jp, arrivals: {name: [value, value]}, only what differs}. Raises UnknownTask,
        UnknownVector."""
        with self._lock:
            self._registry.task(task, self._sight(viewer))
            return views.compare(self._registry, task, (one, other), self._sight(viewer))

    def interference(self, viewer: str | None = None) -> dict[str, object]:
        """The tau_jp matrix of the champions: {vectors: [{task, version, norm}], on: [names],
        raw, standard_error, relative, logits: rows per vector (null where not known), high: a value
        of logits that is warned of, missing: int, findings: [{kind, first, second, value,
        message}]}. `relative` is to what the own vector of the task does there; `logits` is the
        same of the change of the task's logits (`tacl.evaluation.interference`)."""
        with self._lock:
            sight = self._sight(viewer)
            shards = {name: one for name, one in self._behind_heads().items() if sight.of(name)}
            return views.interference(self._registry, shards)

    # -- models

    def compose(
        self, user: str, terms: list[str], request_id: str, viewer: str | None = None
    ) -> Composition:
        """Pin the vectors a recipe names and move the user's model to it.

        Raises BadName, BadRecipe, UnknownTask, UnknownVector (says the task's state), MixedRegimes,
        CorruptBlob.
        """
        checked_name(user, "user")
        recipe = parse_recipe(terms)
        asked = identity("compose", {"user": user, "terms": list(terms)})
        with self._lock:
            answer = self._answer(request_id, asked)
            if answer is not None:
                return Composition.model_validate_json(answer)
            model = self._pins.composed(user, recipe, self._sight(viewer))
            request = Request(request_id, asked, model.model_dump_json())
            self._write(request, self._registry.compose, model)
        return model

    def update_composition(
        self, user: str, request_id: str, viewer: str | None = None
    ) -> Composition:
        """The user's model, a sum, with every vector moved to its task's champion of now. Raises
        NoComposition, and what `compose` raises."""
        asked = identity("update", {"user": user})
        with self._lock:
            answer = self._answer(request_id, asked)
            if answer is not None:
                return Composition.model_validate_json(answer)
            old = self.composition(user)
            require_sum(old, self._registry.asked([old]).get(user))
            terms = [Term(t.coefficient, t.vector.task) for t in old.terms]
            model = self._pins.composed(user, terms, self._sight(viewer))
            request = Request(request_id, asked, model.model_dump_json())
            self._write(request, self._registry.compose, model)
        return model

    def composition(self, user: str) -> Composition:
        """The user's current model. Raises NoComposition, or Erased: it needs what was purged."""
        return answered(self.compositions([user]))

    def compositions(self, users: Sequence[str]) -> list[Composition | TaclError]:
        """What `composition` answers or raises for each of these."""
        with self._lock:
            found = {model.user: model for model in self._registry.compositions(*users)}
            purged = self._registry.purged()
        return [current(user, found.get(user), purged) for user in users]

    def users(self, viewer: str | None = None) -> list[dict[str, object]]:
        """Every user's model: {user, digest, method, terms: [str], outdated: [task names], again:
        the command that makes it of newer versions where there are, removed: [task names]}; not
        those that hold what the viewer does not see."""
        with self._lock:
            return views.users(self._registry, self._sight(viewer))

    def evaluate(self, user: str, materialized: bool = False) -> str:
        """Evaluate the user's model on the test splits of its tasks, also as one ordinary model
        when `materialized`; the run id. Kept: the same model on the same data is evaluated once.
        Raises NoComposition."""
        with self._lock:
            self._make_sure()
            model = self.composition(user)
            work = work_orders.evaluation(self._registry, self._base, model, materialized)
            self._registry.add_run(work, None)
            self._execution.request(work.run_id)
        return work.run_id

    def evaluations(self, user: str, viewer: str | None = None) -> dict[str, object]:
        """What was measured of the user's models, in order of time: {tasks: by arrival, rows:
        [{digest, terms: [str], at, accuracies: {task: share of test rows}}]}; a model once."""
        with self._lock:
            return views.evaluations(self._registry, user, self._sight(viewer))

    # -- runs and status

    def run(self, run_id: str, viewer: str | None = None) -> dict[str, object]:
        """{run_id, kind, task, about, state, step, steps, loss, penalty, attempt, reason, created,
        started, ended}; state is queued | running | done | failed | cancelled | withdrawn.
        RunFailed when there is none."""
        with self._lock:
            run, sight = self._registry.run(run_id), self._sight(viewer)
            if not sight.of_all(work_orders.tasks_of(run.work)):
                raise RunFailed(f"there is no run {run_id}")
            return views.run(run, self._state, sight)

    def result(self, run_id: str) -> dict[str, object] | None:
        """A finished run's result, None while it is owed. Raises RunFailed with the cause."""
        with self._lock:
            run = self._registry.run(run_id)
            if run.state not in (*OWED, "done"):
                raise RunFailed(f"{views.about(run.work)} {run.state}: {run.cause}")
            return self._registry.result(run_id)

    def task(self, name: str, viewer: str | None = None) -> dict[str, object]:
        """One task: as in `status`, with submission, shards, and the runs that bear on it. Raises
        UnknownTask."""
        with self._lock:
            sight = self._sight(viewer)
            task = self._registry.task(name, sight)
            return views.whole_task(self._registry, self._state, task, self._damaged, sight)

    def status(self, viewer: str | None = None) -> dict[str, object]:
        """{base, tasks: [{name, owner, private, state: queued | training | ready | failed |
        cancelled, run_id, step,
        steps, loss, penalty, attempt, version, accuracy_before, accuracy_after, metrics, refresh
        (state of one that is owed or failed), rows, samples, classes, options, reason, created,
        started, ended ...}], work: [what is owed or failed and is no training, as `run`; of
        compositions that failed those that are awaited], room (as `cluster`), trouble: str or
        None}."""
        with self._lock:
            sight = self._sight(viewer)
            found = views.status(self._registry, self._state, self._damaged, sight)
        return {"base": self._base.model_dump(), **found, "trouble": self._execution.trouble}

    def logs(self, task: str, viewer: str | None = None) -> list[dict[str, object]]:
        """What happened to a task, oldest first: {at, kind, task, run_id, text}. UnknownTask."""
        with self._lock:
            self._registry.task(task, self._sight(viewer))
            return self._registry.events(task)

    def cluster(self) -> dict[str, object]:
        """{nodes: [{cpus, gpus}], cpus, free_cpus, gpus, free_gpus}."""
        with self._lock:
            return views.room(self._state)

    # -- files

    def references(self, viewer: str | None = None) -> dict[str, str]:
        """Every file that something needs: {digest: what it is}, for `tacl doctor`."""
        with self._lock:
            sight, found = self._sight(viewer), self._registry.referenced()
        return {
            digest: one.what if sight.of(one.task) else "a file of a private task"
            for digest, one in found.items()
        }

    def collect(self, dry_run: bool = False) -> dict[str, int]:
        """Delete files that nothing refers to and that are not new: {blobs, bytes, others}, how
        many there were; nothing is deleted in a `dry_run`."""
        with self._lock:
            return garbage.collect(self._place, self._registry, set(self._state.runs), dry_run)

    # -- looking after what runs

    def tick(self) -> None:
        """Take in what ended and what the cluster has now, and carry out what is due.

        What cannot be done now, as when the disk is full, is said in `status` and tried again.
        """
        try:
            with self._lock:
                self._make_sure()
                if self._owes_erasure:
                    self._erase()
        except Exception as error:
            self._execution.say(error)
        else:
            self._execution.tick()

    def close(self) -> None:
        """Stop what runs, as the end of this process would; it stays owed."""
        with self._lock:
            self._execution.close()
            self._registry.close()

    # -- inside

    def _arrived(self, shard: Shard, submission: Submission) -> None:
        self._shards[shard.task] = shard
        digest = shard.blob.digest
        whose = submission.owner, submission.private
        event = SamplesArrived(shard.task, shard.ordinal, submission.options, digest, *whose)
        self._execution.happened(event)

    def _behind_heads(self) -> dict[str, Shard]:
        """The samples of now. A task has a head from its first vector on."""
        for name, shard in self._shards.items():
            head = self._state.tasks[name].head
            if shard.head != head:
                self._shards[name] = shard.model_copy(update={"head": head})
        return self._shards

    def _withheld(self) -> set[str]:
        return {name for name in self._state.tasks if not plan.shares(self._state, name)}

    def _crowned(self, reference: VectorRef) -> None:
        vector = Vector(reference.version, reference.digest, self._registry.seen(reference))
        row = self._registry.tau_jp(reference.task, reference.version)
        self._execution.happened(Championed(reference.task, vector, row))

    def _cancel(
        self, run_ids: list[str], request: Request, dismissed: Collection[str] = ()
    ) -> None:
        self._write(request, self._registry.cancel, run_ids, dismissed)
        self._execution.happened(*(Cancelled(run_id) for run_id in run_ids))

    def _write(self, request: Request, write: Callable[..., object], *arguments: Any) -> None:
        """A commit that failed may have landed all the same: then its request has an answer. When
        not even that can be asked now, the registry is read again before anything else is done."""
        try:
            write(*arguments, request)
        except Exception as error:
            if isinstance(error, TaclError) and not isinstance(error, StorageUnavailable):
                raise
            self._unsure = True
            landed = self._registry.answer(request.request_id, request.asked) is not None
            self._unsure = False
            if not landed:
                raise

    def _answer(self, request_id: str, asked: str) -> str | None:
        """What a request was answered when it was carried out; None when it was not."""
        self._make_sure()
        return self._registry.answer(request_id, asked)

    def _make_sure(self) -> None:
        """After a commit whose outcome is not known, what the registry says is what holds: what
        runs, what there is of samples, and which files are to be erased."""
        if self._unsure:
            self._shards = {shard.task: shard for shard in self._registry.shards()}
            self._execution.reread()
            self._owes_erasure = True
            self._unsure = False

    def _require_removable(self, task: str, purge: bool, sight: Sight) -> None:
        removed = {one.name for one in self._registry.tasks(with_removed=True) if one.removed}
        if not (purge and sight.of(task) and task in removed - self._registry.purged()):
            self._registry.task(task, sight)

    def _erase(self) -> None:
        """Files of purged tasks, unless something else needs the same bytes."""
        if owed := self._registry.erasures():
            garbage.erase(self._place, owed, self._registry.referenced())
            self._registry.erased(owed)
        self._owes_erasure = False

    def _sight(self, viewer: str | None) -> Sight:
        return Sight(viewer, self._state.owners)

    def _task_state(self, task: Task) -> str:
        return views.task_state(self._registry, self._state, task)

    @property
    def _state(self) -> State:
        return self._execution.state
