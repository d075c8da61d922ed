"""Vectors, the models that are composed of them, and their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

from cluster.api.limits import told_of_each
from cluster.api.service import Question
from cluster.client.arguments import listed, parted, raw_inputs
from cluster.client.keywords import CompositionKeywords, Rows
from cluster.client.session import Session, asking
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import PAGE, RequestContext
from cluster.domain.compositions import Composition, Method
from cluster.domain.explanations import Explanations
from cluster.domain.names import meant
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
POLL = 0.5  # seconds between two looks at a run


class ModelOperations(Session):
    def vectors(self, name: str | None = None) -> Sequence[VectorStatus]:
        """Every version of every vector, without their curves, or of one task's. Raises
        UnknownTask."""
        found: list[VectorStatus] = []
        after = ""
        while page := self.coordinator.vectors(self.context(), name, after):
            found += page
            after = page[-1].name
        return found

    compare = asking(CoordinatorAPI.compare)

    def aliases(self, name: str) -> AliasReport:
        """What the aliases of a task mean, and every change of them. Raises UnknownTask."""
        ask, context = self.coordinator.aliases, self.context()
        found = ask(context, name)
        history = [*found.history]
        # A server of before tells all of them each time.
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
        """Let NAME@ALIAS mean a version, if it means `expected` now (None: nothing yet; ANY:
        whatever). Raises AliasMoved when somebody moved it meanwhile."""
        context = self.context(request_id)
        return self.coordinator.move_alias(context, name, alias, version, expected)

    def roll_back(self, name: str, alias: str) -> MovedAlias:
        """Let an alias mean again what it meant before. Raises UnknownVector when it never meant
        anything else, AliasMoved when somebody moves it meanwhile."""
        moves = [move for move in self.aliases(name).history if move.name == alias]
        if not moves or moves[-1].came_from is None:
            raise UnknownVector(f"{name}@{alias} meant no other version to go back to")
        return self.move_alias(name, alias, moves[-1].came_from, moves[-1].version)

    # -- models

    users = asking(CoordinatorAPI.users)

    def composition(self, user: str) -> Composition:
        """The user's model. Raises NoComposition, or Erased: it needs what was purged."""
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

        With `method`, anything but a sum, and its data: see `start_composition`; waits for the
        model then.
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
        """Queue a composition by a method of `cluster.domain.methods`; returns at once. When it is
        ready it is the user's model, unless they compose something else meanwhile.

        Args:
            progress: is told how many rows are checked.
            data: `fit`, labelled rows of a new task, and `shots`, how many of each class are
                learned; or `adapt`, unlabelled inputs; `select`, such as blockwise:2; input_column,
                label_column and classes as for `submit`.

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
        """Raises UnknownRun, and RunFailed with the cause when it failed or was cancelled."""
        while (found := self.composition_run(user, run_id)).is_owed:
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
        """Have the user's model evaluated; the run's id, for `evaluation`. NoComposition."""
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
        """Accuracies of the user's model on the test splits of its tasks; waits for them.

        With `terms`, such as +faces, what their sum would give, and the model stays as it is. With
        `materialized`, each task's also as one ordinary model, theta0 + sum c tau; with
        `without`, each task's also with each vector left out. Raises NoComposition, RunFailed, and
        BadRecipe where the vectors were merged.
        """
        return self.evaluation(self.evaluating(user, materialized, without, terms), progress)

    @contextmanager
    def _naming(self, user: str) -> Generator[None]:
        """A user without a model may be a misspelt one, of those whose models the asker sees."""
        try:
            yield
        except NoComposition as error:
            close = meant(user, [model.user for model in self.users()])
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
        while (found := ask(self.context(), run_id)) is None:
            if progress is not None:
                with suppress(UnknownRun):  # somebody with the same model asked for it first
                    progress(self.coordinator.run(self.context(), run_id))
            time.sleep(POLL)
        return found

    def query(
        self,
        user: str,
        inputs: Sequence[str | bytes | Path],
        tasks: Sequence[str] | None = None,
    ) -> Answers:
        """Ask the user's model of which task and class each input is; with `tasks`, of which class
        within each of these.

        An input is a text, or a picture's path or bytes, as the base reads. A task that the model
        subtracts is an answer only where it is named. Raises NoComposition, DataNotFound,
        BadSample, UnknownTask, and BadRecipe where none is named and all are subtracted.
        """
        raw = raw_inputs(inputs, self.base().modality)
        tasks = tasks and listed(tasks, "tasks")
        if self._server is not None:
            return self._server.query(user, raw, tasks)
        told = told_of_each(raw)
        started, asked = time.monotonic(), Question(self.composition(user), raw, tasks, told=told)
        return self.predictor.ask(asked).told(asked, time.monotonic() - started)

    def predict(
        self, user: str, data: Data, task: str | None = None, input_column: str | None = None
    ) -> Table:
        """Ask the user's model about every row of a data set, many in one request: a table of
        `task`, `label`, `probability`, and where no task is named of `belongs` and `none`, as
        `Belonging` has them; the digests of the model and of its heads are in the metadata of its
        schema.

        Args:
            data: a pyarrow.Table or RecordBatch, a frame of pandas or polars, a datasets.Dataset,
                a list of inputs, or a file of rows, as for `submit`.
            task: whose classes compete; default those of all tasks.
            input_column: which column is the input, where its type does not say so.

        Raises what `query` raises, and the errors of bad data.
        """
        from cluster.data.answers import answer_table, likeliest, stated
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
            return answer_table(first, found.belonging, stated(model))

        return predicted(inputs, ask)

    def explain(
        self, user: str, inputs: Sequence[str | bytes | Path], task: str | None = None
    ) -> Explanations:
        """What each vector of the user's model adds to each answer, and what is answered without
        it; the classes of all tasks compete, or those of `task`. Inputs and errors are those of
        `query`. What vectors do to accuracies says `evaluate` with `without`."""
        raw = raw_inputs(inputs, self.base().modality)
        if self._server is not None:
            return self._server.explain(user, raw, task)
        tasks = None if task is None else [task]
        asked = Question(self.composition(user), raw, tasks, explain=True)
        return self.predictor.ask(asked).explained(asked)
