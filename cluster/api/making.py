"""Compositions that are more than a sum: asked for, then polled until they are ready.

From the recipe alone, from few labelled rows, from unlabelled inputs. What is made becomes the
user's model, unless they compose something else meanwhile. Somebody else's is not there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Path, UploadFile

from cluster.api.access import Asking, Caller
from cluster.api.dependencies import Cluster, Key, request_id, tell
from cluster.api.models import UserName, described
from cluster.api.schemas import Facts, Made, Make, Name
from cluster.api.service import Service
from cluster.api.uploads import DESCRIPTION, laid_down
from cluster.domain.compositions import Composition, CompositionMethod

ROUTER = APIRouter(tags=["compositions"])
RunId = Annotated[str, Path(max_length=64, pattern="^[0-9a-f]+$", examples=["9f2c"])]
User = Annotated[Name | None, Form(description="Default: whoever asks.")]
FormTerms = Annotated[
    list[Annotated[str, Form(min_length=1, max_length=200)]],
    Form(description="One or more.", min_length=1, max_length=1000, examples=[["faces", "signs"]]),
]
Classes = Annotated[str, Form(description="Names, separated by commas.", examples=["ham,spam"])]
Select = Annotated[
    str | None, Form(description="Learn so many vectors for each block.", examples=["blockwise:2"])
]


@ROUTER.post("/making/recipe", status_code=202)
async def make(body: Make, caller: Asking, service: Cluster, key: Key = None) -> Made:
    """Make a composition from vectors, and where its method learns from the validation rows of
    their tasks."""
    making = CompositionMethod(method=body.method, select=body.select)
    return await _made(service, caller, caller.user(body.user), body.terms, making, key)


@ROUTER.post("/making/fit", status_code=202)
async def fit(
    caller: Asking,
    service: Cluster,
    terms: FormTerms,
    shots: Annotated[int, Form(ge=1, le=10_000, description="Rows of each class to learn.")],
    file: Annotated[UploadFile, File(description=DESCRIPTION)],
    method: Annotated[Literal["atlas", "grid"], Form()] = "atlas",
    user: User = None,
    classes: Classes = "",
    select: Select = None,
    key: Key = None,
) -> Made:
    """Fit a composition to few labelled rows of a new task, which it then answers for; the rows
    that are left judge it."""
    whose = caller.user(user)
    given = {"shots": shots, "classes": _names(classes), "select": select}
    async with laid_down(file) as place:
        making = await service.prepare(terms, method, {**given, "fit": place})
    return await _made(service, caller, whose, terms, making, key)


@ROUTER.post("/making/adapt", status_code=202)
async def adapt(
    caller: Asking,
    service: Cluster,
    terms: FormTerms,
    file: Annotated[UploadFile, File(description=DESCRIPTION)],
    method: Annotated[Literal["atlas", "adamerging"], Form()] = "atlas",
    user: User = None,
    classes: Classes = "",
    select: Select = None,
    key: Key = None,
) -> Made:
    """Adapt a composition to unlabelled inputs: of a new task with these classes, or of any task of
    the recipe."""
    whose = caller.user(user)
    given = {"classes": _names(classes), "select": select}
    async with laid_down(file) as place:
        making = await service.prepare(terms, method, {**given, "adapt": place})
    return await _made(service, caller, whose, terms, making, key)


@ROUTER.get("/compositions/{user}/runs/{run_id}")
async def making(user: UserName, run_id: RunId, caller: Asking, service: Cluster) -> Made:
    """How it is with a composition that was asked for: queued, running, ready (then with the model
    and a report), failed (then with the reason) or cancelled."""
    return _told(await tell(service, "making", caller.user(user), run_id, caller.viewer))


@ROUTER.post("/compositions/{user}/cancel")
async def cancel(user: UserName, caller: Asking, service: Cluster, key: Key = None) -> Facts:
    """Stop all that is being made for a user, who keeps the model they have; what failed is listed
    no more."""
    asked = request_id(caller, key)
    return Facts(**await tell(service, "cancel_making", caller.user(user), asked, caller.viewer))


async def _made(
    service: Service,
    caller: Caller,
    whose: str,
    terms: list[str],
    making: CompositionMethod,
    key: str | None,
) -> Made:
    asked = request_id(caller, key)
    return _told(await tell(service, "make", whose, terms, making, asked, caller.viewer))


def _told(found: dict[str, Any]) -> Made:
    model = found.pop("model")
    shown = None if model is None else described(Composition.model_validate(model))
    return Made(**found, model=shown)


def _names(text: str) -> list[str] | None:
    return [name.strip() for name in text.split(",")] if text else None
