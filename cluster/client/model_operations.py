"""Operations on vectors, on the models composed of them, and queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

from cluster.api.limits import told_of_each
from cluster.api.service import Question
from cluster.client.arguments import listed, parted, raw_inputs
from cluster.client.keywords import CompositionKeywords, Rows
from cluster.client.session import Session, asking
from cluster.client.waiting import through_restarts
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import PAGE, RequestContext
from cluster.domain.compositions import Composition, Method
from cluster.domain.explanations import Explanations
from cluster.domain.names import did_you_mean
from cluster.domain.operations import Answers
from cluster.domain.receipts import MovedAlias
from cluster.domain.reports import AliasReport, VectorStatus
from cluster.domain.status import CompositionRun, CompositionState, RunStatus
from cluster.domain.tasks import ANY
from cluster.domain.work import Evaluated, Refreshed
from tacl.errors import NoComposition, RunFailed, UnknownRun, UnknownVector

if TYPE_CHECKING:
    from cluster.data.answers import Table
    from cluster.data.sources import Data

R = TypeVar("R")
POLL = 0.5  # seconds between two requests for the status of a run


class ModelOperations(Session):
    def vectors(self, name: str | None = None) -> Sequence[VectorStatus]:
        """All versions of all vectors, without their curves, or those of one task. Raises
        UnknownTask."""
        found: list[VectorStatus] = []
        after = ""
        while page := self.coordinator.vectors(self.context(), name, after):
            found += page
            after = page[-1].name
        return found

    compare = asking(CoordinatorAPI.compare)

    def aliases(self, name: str) -> AliasReport:
        """The versions that a task's aliases mean, and all changes of them. Raises UnknownTask."""
        ask, context = self.coordinator.aliases, self.context()
        found = ask(context, name)
        history = [*found.history]
        # A server of an earlier version returns all of them each time.
        while len(history) >= PAGE and (page := ask(context, name, len(history)).history):
            if page[0] == history[0]:
                break
            history += page
        return found.model_copy(update={"history": tuple(history)})

    interference = asking(CoordinatorAPI.interference)
    interference_of = asking(CoordinatorAPI.interference_of)

    def move_alias(
        self,
        name: str,
        alias: str,
        version: int,
        expected: int | None = ANY,
        request_id: str | None = None,
    ) -> MovedAlias:
        """Move NAME@ALIAS to a version, if it means `expected` now (None: nothing yet; ANY: not
        checked). Raises AliasMoved if somebody moved it meanwhile."""
        context = self.context(request_id)
        return self.coordinator.move_alias(context, name, alias, version, expected)

    def roll_back(self, name: str, alias: str) -> MovedAlias:
        """Move an alias back to the version before. Raises UnknownVector if it never meant another
        one, AliasMoved if somebody moves it meanwhile."""
        moves = [move for move in self.aliases(name).history if move.name == alias]
        if not moves or moves[-1].came_from is None:
            raise UnknownVector(f"{name}@{alias} meant no other version to go back to")
        return self.move_alias(name, alias, moves[-1].came_from, moves[-1].version)

    # -- models

    users = asking(CoordinatorAPI.users)

    def composition(self, user: str) -> Composition:
        """The user's model. Raises NoComposition, or Erased if it needs what was purged."""
        with self._naming(user):
            return self.coordinator.composition(self.context(), user)

    update_composition = asking(CoordinatorAPI.update_composition)
    composition_run = asking(CoordinatorAPI.composition_run)
    cancel_compositions = asking(CoordinatorAPI.cancel_compositions)
    accuracy_history = asking(CoordinatorAPI.accuracy_history)

    def compose(
        self,
        user: str,
        terms: Sequence[str],
        request_id: str | None = None,
        *,
        progress: Callable[[CompositionRun], None] | None = None,
        method: Method = "sum",
        **data: Unpack[CompositionKeywords],
    ) -> Composition:
        """Make `terms`, such as +faces or -0.5*digits, the user's model; versions are pinned.

        With a `method` other than sum, and its data, start a run and wait for the model; see
        `start_composition`.
        """
        terms = listed(terms, "terms")
        if method == "sum" and not data:
            return self.coordinator.compose(self.context(request_id), user, terms)
        asked = self.start_composition(user, terms, method, request_id=request_id, **data)
        model = self.wait_composition(user, asked.run_id, progress).model
        assert model is not None  # it is ready
        return model

    def start_composition(
        self,
        user: str,
        terms: Sequence[str],
        method: Method,
        *,
        request_id: str | None = None,
        progress: Rows | None = None,
        **data: Unpack[CompositionKeywords],
    ) -> CompositionRun:
        """Queue a composition by a method of `cluster.domain.methods`, without waiting for it. When
        it is ready it becomes the user's model, unless they compose something else meanwhile.

        Args:
            progress: receives how many rows are checked, and how many there are; not over HTTP,
                where the server checks them.
            data: `fit`, labelled rows of a new task, and `shots`, how many of each class are
                learned from; or `adapt`, unlabelled inputs; `select`, such as blockwise:2;
                input_column, label_column and classes as for `submit`.

        Raises BadConfig, BadRecipe, MixedRegimes, and the errors of bad data and of `compose`.
        """
        context, terms = self.context(request_id), listed(terms, "terms")
        reading, rest = parted(data)
        if self._server is not None:
            return self._server.start_composition(context, user, terms, method, reading, rest)
        from cluster.data.compositions import prepared

        how = prepared(self.home, terms, method, reading=reading, progress=progress, **rest)
        return self.coordinator.start_composition(context, user, terms, how)

    def wait_composition(
        self,
        user: str,
        run_id: str,
        progress: Callable[[CompositionRun], None] | None = None,
        poll: float = POLL,
    ) -> CompositionRun:
        """Wait until a composition run is ready. Raises UnknownRun, and RunFailed with the cause if
        it failed or was cancelled."""
        look = through_restarts(partial(self.composition_run, user, run_id))
        while (found := look()).is_owed:
            if progress is not None:
                progress(found)
            time.sleep(poll)
        if found.state != CompositionState.READY:
            raise RunFailed(f"{found.label} {found.state}: {found.reason}")
        return found

    def evaluating(
        self,
        user: str,
        materialized: bool = False,
        without: bool = False,
        terms: Sequence[str] = (),
    ) -> str:
        """Start an evaluation of the user's model, as `evaluate`; returns the id of the run, for
        `evaluation`. Raises NoComposition."""
        asked = (user, materialized, without, listed(terms, "terms"))
        with self._naming(user):
            return self.coordinator.evaluate(self.context(), *asked).run_id

    def evaluate(
        self,
        user: str,
        progress: Callable[[RunStatus], None] | None = None,
        materialized: bool = False,
        without: bool = False,
        terms: Sequence[str] = (),
    ) -> Evaluated:
        """Evaluate the user's model on the test splits of its tasks; waits for the accuracies.

        With `terms`, such as +faces, those of their sum instead; the model stays unchanged. With
        `materialized`, also those of one ordinary model, theta0 + sum c tau; with `without`, also
        those with each vector left out. Raises NoComposition, RunFailed, and BadRecipe if the
        vectors were merged.
        """
        return self.evaluation(self.evaluating(user, materialized, without, terms), progress)

    @contextmanager
    def _naming(self, user: str) -> Generator[None]:
        """Add to NoComposition the user whose name is close, of those whose models the caller sees:
        the name may be misspelt."""
        try:
            yield
        except NoComposition as error:
            close = did_you_mean(user, [model.user for model in self.users()])
            raise NoComposition(f"{error}{close}") from None

    def evaluation(
        self, run_id: str, progress: Callable[[RunStatus], None] | None = None
    ) -> Evaluated:
        """Wait for the result of an evaluation. Raises RunFailed with the cause."""
        return self._result(self.coordinator.evaluation, run_id, progress)

    def refreshed(
        self, run_id: str, progress: Callable[[RunStatus], None] | None = None
    ) -> Refreshed:
        """Wait for the result of a refresh. Raises RunFailed with the cause."""
        return self._result(self.coordinator.refreshed, run_id, progress)

    def _result(
        self,
        ask: Callable[[RequestContext, str], R | None],
        run_id: str,
        progress: Callable[[RunStatus], None] | None,
    ) -> R:
        def look() -> R | None:
            found = ask(self.context(), run_id)
            if found is None and progress is not None:
                with suppress(UnknownRun):  # the run is of another user with the same model
                    progress(self.coordinator.run(self.context(), run_id))
            return found

        again = through_restarts(look)
        while (found := again()) is None:
            time.sleep(POLL)
        return found

    def query(
        self,
        user: str,
        inputs: Sequence[str | bytes | Path],
        tasks: Sequence[str] | None = None,
    ) -> Answers:
        """Ask the user's model for the task and class of each input; with `tasks`, for the class
        within each of these.

        An input is a text, or the path or bytes of a picture, whichever the base reads. A task that
        the model subtracts is an answer only if it is named. Raises NoComposition, DataNotFound,
        BadSample, UnknownTask, and BadRecipe if none is named and all are subtracted.
        """
        raw = raw_inputs(inputs, self.base().modality)
        tasks = tasks and listed(tasks, "tasks")
        if self._server is not None:
            return self._server.query(user, raw, tasks)
        told = told_of_each(raw)
        started, asked = time.monotonic(), Question(self.composition(user), raw, tasks, told=told)
        return self.predictor.ask(asked).to_reply(asked, time.monotonic() - started)

    def predict(
        self, user: str, data: Data, task: str | None = None, input_column: str | None = None
    ) -> Table:
        """Ask the user's model about every row of a data set, many in one request. Returns a table
        of `task`, `label`, `probability` and, if no task is named, `belongs` and `none`, which are
        the fields of `Belonging`; the metadata of its schema has the digests of the model and of
        its heads.

        Args:
            data: a pyarrow.Table or RecordBatch, a frame of pandas or polars, a datasets.Dataset,
                a list of inputs, or a file of rows, as for `submit`.
            task: whose classes compete; default those of all tasks.
            input_column: the column of inputs, if its type does not show which one it is.

        Raises what `query` raises, and the errors of bad data.
        """
        from cluster.data.answers import answer_table, likeliest, schema_metadata
        from cluster.data.ingest import inputs_of
        from cluster.data.predicting import predicted

        server, tasks = self._server, None if task is None else [task]
        inputs = inputs_of(data, self.base().modality, input_column)
        if server is not None:
            return predicted(inputs, lambda part: server.predict(user, part, task))
        model = self.composition(user)

        def ask(part: Sequence[bytes | str]) -> Table:
            found = self.predictor.ask(Question(model, part, tasks, told=1))
            first = likeliest(found.answers, task)
            return answer_table(first, found.belonging, schema_metadata(model))

        return predicted(inputs, ask)

    def explain(
        self, user: str, inputs: Sequence[str | bytes | Path], task: str | None = None
    ) -> Explanations:
        """What each vector of the user's model adds to each answer, and the answer without it. The
        classes of all tasks compete, or those of `task`. Inputs and errors are those of `query`.
        For the effect of vectors on accuracies, see `evaluate` with `without`."""
        raw = raw_inputs(inputs, self.base().modality)
        if self._server is not None:
            return self._server.explain(user, raw, task)
        tasks = None if task is None else [task]
        asked = Question(self.composition(user), raw, tasks, explain=True)
        return self.predictor.ask(asked).explained(asked)
