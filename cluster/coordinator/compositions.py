"""The coordinator's part about compositions that are more than a sum: asked for, then polled."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator

from cluster.coordinator import views, work_orders
from cluster.coordinator.acceptance import blobs_of, require_given
from cluster.coordinator.executor import Execution
from cluster.coordinator.recipes import Pins
from cluster.domain.base import Base, identity
from cluster.domain.compositions import Composition, CompositionMethod
from cluster.domain.methods import MERGES, require_linearized, require_possible
from cluster.domain.names import checked_name
from cluster.domain.tasks import Shard
from cluster.domain.visibility import Sight
from cluster.domain.work import Composed, ComposeWork
from cluster.registry import OWED, STOPPED, Registry, Request, Run
from cluster.scheduler import plan
from cluster.storage.blobs import Blobs
from tacl.compose.terms import parse_recipe
from tacl.errors import BadConfig, BadRecipe, UnknownRun


class Compositions:
    """Methods of `cluster.coordinator.core.Coordinator`."""

    _base: Base
    _blobs: Blobs
    _shards: dict[str, Shard]
    _registry: Registry
    _execution: Execution
    _pins: Pins
    _lock: threading.RLock
    _sight: Callable[[str | None], Sight]
    _answer: Callable[[str, str], str | None]
    _write: Callable[..., None]
    _cancel: Callable[..., None]

    def make(
        self,
        user: str,
        terms: list[str],
        making: CompositionMethod,
        request_id: str,
        viewer: str | None = None,
    ) -> dict[str, object]:
        """Queue the making of a composition, which becomes the user's model when it is done, unless
        they compose something else meanwhile. The same inputs are the same run, and done once.
        Answers as `making`.

        Raises BadName, BadConfig, BadRecipe, UnknownTask, UnknownVector, MixedRegimes, CorruptBlob.
        """
        checked_name(user, "user")
        recipe = parse_recipe(terms)
        rows = [kind for kind in ("fit", "adapt") if getattr(making, kind) is not None]
        require_possible(making.method, recipe, rows, making.select)
        if making.method == "sum":
            raise BadConfig("a sum is not made, it is there at once: compose it without a method")
        parts = {"user": user, "terms": list(terms), "making": making.model_dump()}
        asked = identity("make", parts)
        with self._lock:
            run_id = self._answer(request_id, asked)
            if run_id is None:
                sight = self._sight(viewer)
                model = self._pins.composed(user, recipe, sight)
                require_linearized(making.method, [term.vector for term in model.terms])
                require_given(making, self._base, self._blobs)
                shared = {name for name in self._shards if plan.shares(self._execution.state, name)}
                self._require_shared(model, making, shared, viewer)
                shards = {name: self._shards[name] for name in shared if sight.of(name)}
                work = work_orders.composing(self._registry, self._base, model, making, shards)
                run_id = work.run_id
                request = Request(request_id, asked, run_id)
                self._write(request, self._registry.make, work, self._is_gone(run_id))
                self._execution.request(run_id)
            return self._told(user, run_id, viewer)

    def making(self, user: str, run_id: str, viewer: str | None = None) -> dict[str, object]:
        """How it is with a composition of the user: {run_id, user, method, terms, state: queued |
        running | ready | failed | cancelled, step, steps, loss, reason, attempt, created, started,
        ended, model and report once it is ready}. Raises UnknownRun, also for somebody else's."""
        with self._lock:
            return self._told(user, run_id, viewer)

    def cancel_making(
        self, user: str, request_id: str, viewer: str | None = None
    ) -> dict[str, object]:
        """Stop all that is being made for the user, at whatever stage it is, and free its room;
        they keep the model they have. What failed is dismissed: `status` lists it no more, and its
        rows may be collected. {user, cancelled: [run ids]}. BadName."""
        checked_name(user, "user")
        asked = identity("cancel_making", {"user": user})
        with self._lock:
            answer = self._answer(request_id, asked)
            if answer is not None:
                return json.loads(answer)
            sight = self._sight(viewer)
            left = self._registry.runs((*OWED, *STOPPED), kinds=("compose",))
            own = [run for run in left if self._is_of(run, user, sight)]
            chosen = [run.run_id for run in own if run.state in OWED]
            facts: dict[str, object] = {"user": user, "cancelled": chosen}
            request = Request(request_id, asked, json.dumps(facts))
            self._cancel(chosen, request, [run.run_id for run in own])
        return facts

    def _told(self, user: str, run_id: str, viewer: str | None) -> dict[str, object]:
        sight = self._sight(viewer)
        for run in self._registry.runs(kinds=("compose",), run_id=run_id):
            if self._is_of(run, user, sight):
                return views.making(self._registry, run, self._execution.state, sight)
        raise UnknownRun(f"{user} has no composition in the making as run {run_id}")

    def _is_of(self, run: Run, user: str, sight: Sight) -> bool:
        own = isinstance(run.work, ComposeWork) and run.work.user == user
        return own and sight.of_all(work_orders.tasks_of(run.work))

    def _require_shared(
        self,
        model: Composition,
        making: CompositionMethod,
        shared: Collection[str],
        viewer: str | None,
    ) -> None:
        """Nobody learns from rows of a task that withholds its samples, but its owner."""
        if making.method in MERGES or making.fit or making.adapt:
            return
        for name in dict.fromkeys(term.vector.task for term in model.terms):
            own = self._registry.any_task(name).submission.owner == viewer
            if name in self._shards and name not in shared and not own:
                raise BadRecipe(
                    f"{name} withholds its samples, and {making.method} would learn from its rows; "
                    "give other rows (--fit, --adapt), or use sum, ties, tsv or iso"
                )

    def _is_gone(self, run_id: str) -> bool:
        """Whether a run is done and files that it made were collected since."""
        return any(not self._blobs.exists(digest) for digest in self._made(run_id))

    def _made(self, run_id: str) -> Iterator[str]:
        for done in self._registry.runs(states=("done",), run_id=run_id):
            yield from blobs_of(Composed.model_validate(self._registry.result(done.run_id)))
