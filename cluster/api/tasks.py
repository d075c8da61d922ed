"""Tasks, their vectors and aliases, and how they interfere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, UploadFile
from fastapi import Path as InPath

from cluster.api.access import Asking, Caller
from cluster.api.dependencies import Cluster, Key, request_id, tell, without_ordinals
from cluster.api.schemas import Accepted, AliasMove, Facts, Name, Reference
from cluster.api.service import Service
from cluster.api.uploads import DESCRIPTION, laid_down
from tacl.errors import BadConfig

ROUTER = APIRouter(tags=["tasks"])
TaskName = Annotated[Name, InPath(examples=["faces"])]


@ROUTER.get("/status")
async def status(caller: Asking, service: Cluster) -> Facts:
    """The base, every task, the work that is owed, and the room of the cluster."""
    found = await tell(service, "status", caller.viewer)
    found["work"] = [one for one in found["work"] if _may_know(caller, one)]
    if found["trouble"] and caller.role != "admin":
        found["trouble"] = "something is wrong; an admin sees what"
    return Facts(**without_ordinals(found, caller))


def _may_know(caller: Caller, work: dict[str, Any]) -> bool:
    """An evaluation, or making one, tells that somebody has a model."""
    own = work["about"].endswith(f" of {caller.name}")
    return caller.role == "admin" or work["kind"] not in ("evaluate", "compose") or own


@ROUTER.get("/tasks")
async def list_tasks(caller: Asking, service: Cluster) -> list[Facts]:
    """By arrival."""
    found = await tell(service, "status", caller.viewer)
    return [Facts(**task) for task in without_ordinals(found["tasks"], caller)]


@ROUTER.post("/tasks", status_code=202)
async def submit(
    caller: Asking,
    service: Cluster,
    name: Annotated[Name, Form(examples=["faces"])],
    file: Annotated[UploadFile, File(description=DESCRIPTION)],
    private: Annotated[bool, Form()] = False,
    options: Annotated[str, Form(description="JSON of `cluster.domain.tasks.Options`.")] = "{}",
    key: Key = None,
) -> Accepted:
    """Submit a labelled data set by upload; it is checked before anything is stored."""
    async with laid_down(file) as place:
        return await _submit(service, caller, place, name, private, _fields(options), key)


@ROUTER.post("/references", status_code=202)
async def submit_reference(
    caller: Asking, service: Cluster, body: Reference, key: Key = None
) -> Accepted:
    """Submit a data set that the operator laid ready on the server."""
    data = service.reference(body.reference)
    return await _submit(service, caller, data, body.name, body.private, body.options, key)


async def _submit(
    service: Service,
    caller: Caller,
    data: Path,
    name: str,
    private: bool,
    options: dict[str, Any],
    key: str | None,
) -> Accepted:
    caller.require("submitter")
    caller.require_own_name(name, private)
    fields = {"private": private, "request_id": request_id(caller, key) if key else None}
    found = await service.submit(data, name, caller.name, {**fields, "options": options})
    return Accepted(task=found.task, run_id=found.run_id, state=found.state)


def _fields(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadConfig(f"options: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadConfig("options: give an object of options by their names")
    return found


@ROUTER.get("/tasks/{name}")
async def task(name: TaskName, caller: Asking, service: Cluster) -> Facts:
    """One task with its runs, and the curves of its vectors."""
    found = await tell(service, "task", name, caller.viewer)
    found.pop("submission", None)
    found = without_ordinals(found, caller)
    versions = await tell(service, "vectors", name, caller.viewer)
    curves = {str(one["version"]): one["curves"] for one in versions}
    return Facts(**{**found, "curves": curves})


@ROUTER.post("/tasks/{name}/cancel")
async def cancel(name: TaskName, caller: Asking, service: Cluster, key: Key = None) -> Facts:
    """Stop what is owed of this task; `retry` goes on from its checkpoint."""
    await _require_owner(name, caller, service)
    asked = request_id(caller, key)
    return Facts(**await tell(service, "cancel", name, asked, caller.viewer))


@ROUTER.post("/tasks/{name}/retry")
async def retry(name: TaskName, caller: Asking, service: Cluster) -> Facts:
    """Queue what failed or was cancelled again."""
    await _require_owner(name, caller, service)
    return Facts(**await tell(service, "retry", name, caller.viewer))


@ROUTER.get("/tasks/{name}/events")
async def task_events(name: TaskName, caller: Asking, service: Cluster) -> list[Facts]:
    """What happened to a task, oldest first."""
    return [Facts(**one) for one in await tell(service, "logs", name, caller.viewer)]


@ROUTER.get("/vectors")
async def vectors(caller: Asking, service: Cluster) -> list[Facts]:
    """Every version of every vector."""
    return [Facts(**one) for one in await tell(service, "vectors", None, caller.viewer)]


@ROUTER.get("/tasks/{name}/aliases")
async def aliases(name: TaskName, caller: Asking, service: Cluster) -> Facts:
    """What the names of this task's versions mean, and what they meant before."""
    return Facts(**await tell(service, "aliases", name, caller.viewer))


@ROUTER.put("/tasks/{name}/aliases/{alias}")
async def move_alias(
    name: TaskName,
    alias: Annotated[Name, InPath(examples=["champion"])],
    body: AliasMove,
    caller: Asking,
    service: Cluster,
    key: Key = None,
) -> Facts:
    """Let an alias mean a version, if it still means the expected one."""
    await _require_owner(name, caller, service)
    asked = request_id(caller, key)
    expected = body.expected
    return Facts(
        **await tell(
            service, "move_alias", name, alias, body.version, expected, asked, caller.viewer
        )
    )


@ROUTER.get("/interference")
async def interference(caller: Asking, service: Cluster) -> Facts:
    """What the champions do to each other's tasks (tau_jp, logits), and what that warns of."""
    return Facts(**await tell(service, "interference", caller.viewer))


async def _require_owner(name: str, caller: Caller, service: Service) -> None:
    found = await service.ask("task", name, caller.viewer)
    caller.require_owner(found["owner"])
