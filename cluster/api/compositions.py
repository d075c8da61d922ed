"""Compositions: the model of each user, how it is made, and its measured accuracies.

A sum is made at once. A method that learns from rows or merges starts a run, which the client
polls; its result becomes the user's model when it is ready, unless they compose something else
meanwhile. The models of others are answered like ones that do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Path, Query, UploadFile
from fastapi.responses import JSONResponse
from pydantic_core import to_json

from cluster.api.access import Guarded
from cluster.api.dependencies import ApiRequest, ReadRequest, WriteRequest
from cluster.api.limits import without_paths
from cluster.api.schemas import Compose, EvaluationRun, Make, Name, Select
from cluster.api.service import GivenRows
from cluster.api.tasks import RunId
from cluster.api.uploads import DESCRIPTION, FormReading, laid_down
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import identity
from cluster.domain.compositions import (
    Adapting,
    Composition,
    CompositionMethod,
    Fitting,
    LearnedFrom,
    Shots,
)
from cluster.domain.receipts import CancelledCompositions
from cluster.domain.reports import AccuracyHistory, MeasuredModel, UserModel
from cluster.domain.status import NAMED, CompositionRun
from cluster.domain.tasks import CHAMPION
from tacl.compose.terms import parse_term


class Body(JSONResponse):
    """JSON in which numbers that are not finite are null: stored reports contain such numbers."""

    def render(self, content: Any) -> bytes:
        return to_json(content, inf_nan_mode="null")


ROUTER = APIRouter(route_class=Guarded, tags=["compositions"], default_response_class=Body)
UserName = Annotated[Name, Path(examples=["alice"])]
After = Annotated[
    Name | Literal[""], Query(description="Those after this user: the last of the page before.")
]
Whose = Annotated[Name | None, Query(description="Default: whoever asks; of an admin, everybody.")]
User = Annotated[Name | None, Form(description="Default: whoever asks.")]
FormTerms = Annotated[
    list[Annotated[str, Form(min_length=1, max_length=200)]],
    Form(description="One or more.", min_length=1, max_length=1000, examples=[["faces", "signs"]]),
]
QueryTerms = Annotated[
    list[Annotated[str, Query(min_length=1, max_length=200)]] | None,
    Query(description="Of these instead.", min_length=1, max_length=1000, examples=[["+faces"]]),
]


def _uploaded(what: str) -> Any:
    return File(description=f"{LearnedFrom.model_fields[what].description} {DESCRIPTION}")


# -- sums, and the models of users


@ROUTER.post("/compositions")
async def compose(body: Compose, asked: WriteRequest) -> Composition:
    """Make a recipe the user's model, with the versions that its names mean now."""
    user = asked.caller.user(body.user)
    _count(asked, len(body.terms))
    return await asked.ask(CoordinatorAPI.compose, user, body.terms)


@ROUTER.get("/compositions")
async def compositions(
    asked: ReadRequest, whose: Whose = None, after: After = ""
) -> Sequence[UserModel]:
    """The caller's model; an admin sees everybody's, a page at a time."""
    return await asked.ask_without_paths(CoordinatorAPI.users, asked.caller.among(whose), after)


@ROUTER.get("/compositions/{user}")
async def composition(user: UserName, asked: ReadRequest) -> Composition:
    """A user's model."""
    return await asked.ask(CoordinatorAPI.composition, asked.caller.user(user))


@ROUTER.post("/compositions/{user}/update")
async def update(user: UserName, asked: WriteRequest) -> Composition:
    """Move every vector of the model to its task's newest champion. A task that occurs twice
    keeps its versions."""
    whose = asked.caller.user(user)
    _count(asked, len((await asked.ask(CoordinatorAPI.composition, whose)).terms))
    return await asked.ask(CoordinatorAPI.update_composition, whose)


def _count(asked: ApiRequest, terms: int) -> None:
    """Count terms towards the caller's hourly share, since every recipe and its answer are stored
    for ever. Raises TooMany."""
    if asked.caller.role != "admin":
        asked.shares.terms.require(asked.caller.name, terms, "terms of recipes")


# -- compositions that are more than a sum


@ROUTER.post("/making/recipe", status_code=202)
async def make(body: Make, asked: WriteRequest) -> CompositionRun:
    """Make a composition from vectors and, if its method learns, from the validation rows of their
    tasks."""
    _count(asked, len(body.terms))
    how = CompositionMethod(method=body.method, select=body.select)
    return await _started(asked, asked.caller.user(body.user), body.terms, how)


@ROUTER.post("/making/fit", status_code=202)
async def fit(
    asked: WriteRequest,
    reading: FormReading,
    terms: FormTerms,
    shots: Annotated[Shots, Form()],
    file: Annotated[UploadFile, _uploaded("fit")],
    method: Annotated[Fitting, Form()] = "atlas",
    user: User = None,
    select: Annotated[Select, Form()] = None,
) -> CompositionRun:
    """Fit a composition to a few labelled rows of a new task, whose classes it then answers with;
    the remaining rows measure its accuracy."""
    rows = GivenRows(asked.caller.user(user), terms, method, select, shots=shots, reading=reading)
    return await _made_from(file, "fit", rows, asked)


@ROUTER.post("/making/adapt", status_code=202)
async def adapt(
    asked: WriteRequest,
    reading: FormReading,
    terms: FormTerms,
    file: Annotated[UploadFile, _uploaded("adapt")],
    method: Annotated[Adapting, Form()] = "atlas",
    user: User = None,
    select: Annotated[Select, Form()] = None,
) -> CompositionRun:
    """Adapt a composition to unlabelled inputs: of a new task with the given classes, or of any
    task of the recipe."""
    rows = GivenRows(asked.caller.user(user), terms, method, select, reading=reading)
    return await _made_from(file, "adapt", rows, asked)


@ROUTER.get("/compositions/{user}/runs/{run_id}")
async def composition_run(user: UserName, run_id: RunId, asked: ReadRequest) -> CompositionRun:
    """Status of a composition run: queued, running, ready (then with the model and a report),
    failed (then with the reason) or cancelled."""
    return _without_paths(
        await asked.ask(CoordinatorAPI.composition_run, asked.caller.user(user), run_id)
    )


@ROUTER.post("/compositions/{user}/cancel")
async def cancel(user: UserName, asked: WriteRequest) -> CancelledCompositions:
    """Stop every composition run of a user, who keeps their model; failed runs are no longer
    listed."""
    return await asked.ask_without_paths(
        CoordinatorAPI.cancel_compositions, asked.caller.user(user)
    )


async def _made_from(
    file: UploadFile, as_what: Literal["fit", "adapt"], rows: GivenRows, asked: ApiRequest
) -> CompositionRun:
    _count(asked, len(rows.terms))
    await asked.ask(CoordinatorAPI.admit, None)
    async with laid_down(file, asked.service) as place:
        how = await asked.service.prepare(replace(rows, **{as_what: place}))
    return await _started(asked, rows.owner, rows.terms, how)


async def _started(
    asked: ApiRequest, user: str, terms: Sequence[str], how: CompositionMethod
) -> CompositionRun:
    return _without_paths(await asked.ask(CoordinatorAPI.start_composition, user, terms, how))


def _without_paths(found: CompositionRun) -> CompositionRun:
    """The run with no paths of the server in its reason. Only there: class names may look like
    paths."""
    return found.model_copy(update={"reason": without_paths(found.reason)})


# -- measured accuracies


@ROUTER.post("/compositions/{user}/evaluation", status_code=202)
async def evaluate(
    user: UserName,
    asked: WriteRequest,
    materialized: bool = False,
    without: bool = False,
    term: QueryTerms = None,
) -> EvaluationRun:
    """Evaluate the model, or the sum of these terms, on the test rows of its tasks; `without`: also
    with each vector left out. Repeat the request, under the same idempotency key or none, until
    `result` is there, or the error RunFailed with the cause. A new key starts it again."""
    whose = asked.caller.user(user)
    given = (whose, materialized, without, term or [])
    if asked.key is None:  # then a repeated request only polls
        now = {"given": given, "of": await _now(asked, whose, term or [])}
        asked = replace(asked, key=f"evaluate {identity('evaluate', now)}")
    run_id = (await asked.ask(CoordinatorAPI.evaluate, *given)).run_id
    result = await asked.ask(CoordinatorAPI.evaluation, run_id)
    return EvaluationRun(run_id=run_id, result=result)


async def _now(asked: ApiRequest, user: str, terms: Sequence[str]) -> object:
    """What decides an evaluation besides the request: the model with its current heads or, for
    terms, the aliases and versions of their tasks and the accuracies of their heads."""
    if not terms:
        return (await asked.ask(CoordinatorAPI.composition, user)).model_dump(mode="json")
    parsed = [parse_term(term) for term in terms]
    named = sorted({one.name for one in parsed if one.alias not in (None, CHAMPION)})
    found: list[object] = [
        (await asked.ask(CoordinatorAPI.aliases, name)).aliases for name in named
    ]
    names = sorted({one.name for one in parsed})
    for start in range(0, len(names), NAMED):
        some = names[start : start + NAMED]
        told = await asked.ask(CoordinatorAPI.status, "", some)
        found += [(t.name, t.version, t.accuracy_fitted, t.accuracy_frozen) for t in told.tasks]
    return found


@ROUTER.get("/accuracy")
async def accuracy(asked: ReadRequest, user: Whose = None) -> AccuracyHistory:
    """Accuracies of the models over time: {tasks, rows: [{label, at, accuracies, ...}]}."""
    whose = asked.caller.among(user)
    found = await asked.ask_without_paths(CoordinatorAPI.accuracy_history, whose)
    several = whose is None and len({row.user for row in found.rows}) > 1
    rows = (row.model_copy(update={"label": _written(row, several)}) for row in found.rows)
    return found.model_copy(update={"rows": tuple(rows)})


def _written(row: MeasuredModel, with_user: bool) -> str:
    terms = " ".join(row.terms)
    made = terms if row.method == "sum" else f"{row.method} of {terms}"
    return f"{row.user}: {made}" if with_user else made
