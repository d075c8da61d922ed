"""Requests about users' models: sums are composed at once, all other compositions by a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from cluster.coordinator import work_orders
from cluster.coordinator.acceptance import blobs_of, require_given
from cluster.coordinator.handler import Decision, RequestHandler
from cluster.domain.base import BlobRef, RequestContext
from cluster.domain.compositions import Composition, CompositionMethod
from cluster.domain.methods import answering, require_linearized, require_parts, require_possible
from cluster.domain.names import checked_name
from cluster.domain.receipts import CancelledCompositions, QueuedRun
from cluster.domain.status import OWED, STOPPED, CompositionRun
from cluster.domain.visibility import Visibility
from cluster.domain.work import Composed, ComposeWork, tasks_of
from cluster.reading.models import require_sum, tasks_in, with_champions
from cluster.registry import RunRecord
from cluster.scheduler import upkeep
from tacl.compose.terms import MERGES, Term, parse_recipe
from tacl.errors import BadConfig, BadRecipe, NotAllowed, UnknownRun


class CompositionRequests(RequestHandler):
    """Methods of `cluster.domain.api.CoordinatorAPI`."""

    # -- sums

    def compose(self, context: RequestContext, user: str, terms: Sequence[str]) -> Composition:
        checked_name(user, "user")
        recipe = parse_recipe(terms)
        parts = {"user": user, "terms": list(terms)}
        decide = partial(self._summed, context, user, recipe)
        return self._once(context, "compose", parts, Composition, decide)

    def update_composition(self, context: RequestContext, user: str) -> Composition:
        def decide() -> Decision[Composition]:
            old = self.composition(context, user)
            require_sum(old, self._registry.requested_work([old]).get(user))
            return self._summed(context, user, with_champions(old.terms))

        return self._once(context, "update", {"user": user}, Composition, decide)

    def _summed(
        self, context: RequestContext, user: str, recipe: Sequence[Term]
    ) -> Decision[Composition]:
        visibility = self._visibility(context)
        model = self._pins.composed(user, recipe, visibility)
        foreign = visibility.foreign(tasks_in(model), user)
        answering = self._execution.heads.answering(model, self._state.owners)
        answering = answering.model_copy(update={"private_to": foreign})
        return Decision(answering, partial(self._registry.compose, model))

    # -- what a run computes

    def start_composition(
        self, context: RequestContext, user: str, terms: Sequence[str], how: CompositionMethod
    ) -> CompositionRun:
        checked_name(user, "user")
        recipe = parse_recipe(terms)
        rows = [kind for kind in ("fit", "adapt") if getattr(how, kind) is not None]
        require_possible(how.method, recipe, rows, how.select)
        if how.method == "sum":
            raise BadConfig("a sum needs no run: compose it without a method")
        parts = {"user": user, "terms": list(terms), "making": how.model_dump()}

        decide = partial(self._started, context, user, recipe, how)
        with self._lock, self._accepting(blob.digest for blob in how.rows):
            queued = self._once(context, "make", parts, QueuedRun, decide)
            return self._composition_run(context, user, queued.run_id)

    def _started(
        self, context: RequestContext, user: str, recipe: Sequence[Term], how: CompositionMethod
    ) -> Decision[QueuedRun]:
        model = self._pins.composed(user, recipe, self._visibility(context))
        require_linearized(how.method, [term.vector for term in model.terms])
        require_given(how, self._base, self._blobs)
        there = tasks_in(model) & self._shards.keys()
        shared = {name: self._shards[name] for name in there if upkeep.shares(self._state, name)}
        self._require_shared(context, model, how, shared)
        given = self._registry, self._base, model, how, shared
        work = work_orders.composing(*given, teach=self._teach(model, how))
        is_gone = self._is_gone(work.run_id)
        self._require_share(context, user, "" if is_gone else work.run_id)
        write = partial(self._registry.make, work, is_gone)
        return self._queued(work.run_id, write, context.user)

    def composition_run(self, context: RequestContext, user: str, run_id: str) -> CompositionRun:
        with self._reading():
            return self._composition_run(context, user, run_id)

    def _composition_run(self, context: RequestContext, user: str, run_id: str) -> CompositionRun:
        visibility = self._visibility(context)
        for run in self._registry.runs(kinds=("compose",), run_ids=[run_id]):
            if _is_of(run, user, visibility):
                return self._view(context).composition_run(run)
        raise UnknownRun(f"{user} has no composition run {run_id}")

    def cancel_compositions(self, context: RequestContext, user: str) -> CancelledCompositions:
        checked_name(user, "user")

        def decide() -> Decision[CancelledCompositions]:
            runs = self._registry.runs  # of the stopped ones at most one is awaited
            left = runs(OWED, kinds=("compose",), user=user)
            left += runs(STOPPED, run_ids=self._registry.awaited_run(user))
            own = [run for run in left if _is_of(run, user, self._visibility(context))]
            chosen = tuple(run.run_id for run in own if run.state in OWED)
            answer = CancelledCompositions(user=user, cancelled=chosen)
            return self._cancelled(context, answer, chosen, dismissed=[run.run_id for run in own])

        parts, form = {"user": user}, CancelledCompositions
        return self._once(context, "cancel_making", parts, form, decide)

    # -- models

    def evaluate(
        self,
        context: RequestContext,
        user: str,
        materialized: bool = False,
        without: bool = False,
        terms: Sequence[str] = (),
    ) -> QueuedRun:
        def decide() -> Decision[QueuedRun]:
            model = self._asked_model(context, user, terms)
            if not self._visibility(context).sees_all(tasks_in(model)):
                raise NotAllowed(
                    f"the model of {user} has private tasks of others, on whose rows only they and "
                    f"admins measure; evaluate your own tasks and open ones: tacl evaluate {user} "
                    "+TASK ..."
                )
            if without:
                require_parts(model)
            fitted, _ = self._execution.heads.of(model, self._state.owners)
            asked = {"materialized": materialized, "without": without}
            given = self._registry, self._base, model, fitted
            work = work_orders.evaluation(*given, judge=self._judge(model), **asked)
            self._require_share(context, user, work.run_id)
            write = partial(self._registry.add_run, work, None)
            return self._queued(work.run_id, write, context.user)

        parts = {"user": user, "materialized": materialized}
        parts |= {"without": True} if without else {}
        parts |= {"terms": list(terms)} if terms else {}
        return self._once(context, "evaluate", parts, QueuedRun, decide)

    def _asked_model(self, context: RequestContext, user: str, terms: Sequence[str]) -> Composition:
        """The user's model; with terms, the model that they would make."""
        if not terms:
            return self.composition(context, user)
        model = self._pins.composed(
            checked_name(user, "user"), parse_recipe(terms), self._visibility(context)
        )
        return self._execution.heads.answering(model, self._state.owners)

    # -- inside

    def _judge(self, model: Composition) -> BlobRef | None:
        """Rows held out of the fit of the model's new task, if they are still in the blob store."""
        held_out = model.target and model.target.held_out
        return held_out if held_out and self._blobs.exists(held_out.digest) else None

    def _teach(self, model: Composition, how: CompositionMethod) -> bool:
        """Whether the model's heads may be fitted on labelled rows of all tasks that it adds. A
        grid makes a sum, whose heads exist; a model of a new task answers with that task's head."""
        new = how.fit or (how.adapt and how.adapt.classes)
        able = how.method != "grid" and not new
        return able and all(self._state.tasks[task].teaches for task in answering(model))

    def _require_shared(
        self,
        context: RequestContext,
        model: Composition,
        how: CompositionMethod,
        shared: Collection[str],
    ) -> None:
        """Raises BadRecipe if the method would learn from rows of a task that withholds its
        samples, unless the requester owns it."""
        if how.method in MERGES or how.fit or how.adapt:
            return
        for name in sorted(tasks_in(model) & self._shards.keys() - shared):
            if self._registry.any_task(name).submission.owner != context.user:
                raise BadRecipe(
                    f"{name} withholds its samples, and {how.method} would learn from its rows; "
                    f"give other rows (--fit, --adapt), or use sum, {', '.join(MERGES)}"
                )

    def _is_gone(self, run_id: str) -> bool:
        """Whether a run is done and any of the files that it made was collected since."""
        done = self._registry.result(run_id, Composed)
        return done is not None and not all(map(self._blobs.exists, blobs_of(done)))


def _is_of(run: RunRecord, user: str, visibility: Visibility) -> bool:
    own = isinstance(run.work, ComposeWork) and run.work.user == user
    return own and visibility.sees_all(tasks_of(run.work))
