"""Compositions: a model per user, and what was measured of it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from cluster.api.access import Asking
from cluster.api.dependencies import Cluster, Key, request_id, tell
from cluster.api.schemas import Compose, Facts, Model, Name
from cluster.domain.compositions import Composition
from tacl.compose.terms import Term

ROUTER = APIRouter(tags=["compositions"])
UserName = Annotated[Name, Path(examples=["alice"])]
Whose = Annotated[Name | None, Query(description="Default: whoever asks.")]


def described(model: Composition) -> Model:
    terms = [Term(t.coefficient, t.vector.task, t.vector.version) for t in model.terms]
    return Model(
        user=model.user,
        digest=model.digest,
        terms=[str(term) for term in terms],
        method=model.method,
        recipe=[term.model_dump(mode="json") for term in model.terms],
        merged=model.merged and model.merged.model_dump(),
        target=model.target and model.target.model_dump(mode="json"),
    )


@ROUTER.post("/compositions")
async def compose(body: Compose, caller: Asking, service: Cluster, key: Key = None) -> Model:
    """Make a recipe the user's model; versions are pinned now."""
    user, asked = caller.user(body.user), request_id(caller, key)
    return described(await service.ask("compose", user, body.terms, asked, caller.viewer))


@ROUTER.get("/compositions")
async def compositions(caller: Asking, service: Cluster) -> list[Facts]:
    """The caller's model; an admin sees everybody's."""
    found = await tell(service, "users", caller.viewer)
    return [Facts(**one) for one in found if caller.role == "admin" or one["user"] == caller.name]


@ROUTER.get("/compositions/{user}")
async def composition(user: UserName, caller: Asking, service: Cluster) -> Model:
    """A user's model."""
    return described(await service.ask("composition", caller.user(user)))


@ROUTER.post("/compositions/{user}/update")
async def update(user: UserName, caller: Asking, service: Cluster, key: Key = None) -> Model:
    """Move every vector of the model to its task's newest champion."""
    user, asked = caller.user(user), request_id(caller, key)
    return described(await service.ask("update_composition", user, asked, caller.viewer))


@ROUTER.post("/compositions/{user}/evaluation", status_code=202)
async def evaluate(
    user: UserName, caller: Asking, service: Cluster, materialized: bool = False
) -> Facts:
    """Have the model evaluated on the test rows of its tasks; ask again until `result` is there."""
    user = caller.user(user)
    run_id = await service.ask("evaluate", user, materialized)
    return Facts(**{"run_id": run_id, "result": await tell(service, "result", run_id)})


@ROUTER.get("/accuracy")
async def accuracy(caller: Asking, service: Cluster, user: Whose = None) -> Facts:
    """What was measured of the models over time: {tasks, rows: [{label, at, accuracies}]}."""
    if user is None and caller.role == "admin":
        everybody = [one["user"] for one in await tell(service, "users", None)]
    else:
        everybody = [caller.user(user)]
    tasks: dict[str, None] = {}
    rows: list[dict[str, Any]] = []
    for name in everybody:
        found = await tell(service, "evaluations", name, caller.viewer)
        tasks |= dict.fromkeys(found["tasks"])
        label = "" if len(everybody) == 1 else f"{name}: "
        rows += [row | {"label": label + _written(row)} for row in found["rows"]]
    return Facts(**{"tasks": list(tasks), "rows": sorted(rows, key=lambda row: row["at"])})


def _written(row: dict[str, Any]) -> str:
    terms = " ".join(row["terms"])
    return terms if row["method"] == "sum" else f"{row['method']} of {terms}"
