"""Tasks, their vectors and aliases, and how they interfere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

from fastapi import APIRouter, File, Form, UploadFile
from fastapi import Path as InPath
from pydantic import Json

from cluster.api.access import SUBMITTERS, Asking, Caller, Guarded
from cluster.api.dependencies import Cluster, Key, tell
from cluster.api.schemas import AliasMove, Name, Reference
from cluster.api.service import Service, Upload
from cluster.api.uploads import DESCRIPTION, laid_down
from cluster.domain.api import CoordinatorAPI
from cluster.domain.receipts import CancelledTask, MovedAlias, RetriedTask
from cluster.domain.reports import AliasReport, InterferenceReport, VectorStatus
from cluster.domain.status import (
    ClusterStatus,
    Event,
    RunStatus,
    ShardStatus,
    TaskDetail,
    TaskStatus,
)
from cluster.domain.tasks import Options, Submitted
from tacl.errors import RunFailed, UnknownRun

ROUTER = APIRouter(route_class=Guarded, tags=["tasks"])
TaskName = Annotated[Name, InPath(examples=["faces"])]
RunId = Annotated[str, InPath(max_length=64, pattern="^[0-9a-f]+$", examples=["9f2c"])]
Numbered = TypeVar("Numbered", TaskStatus, ShardStatus, TaskDetail)


@ROUTER.get("/status")
async def status(caller: Asking, service: Cluster) -> ClusterStatus:
    """The base model, every task, the work that is owed, and the resources of the cluster."""
    found = await tell(service, CoordinatorAPI.status, caller.context())
    hidden = found.trouble and caller.role != "admin"
    return found.model_copy(
        update={
            "tasks": tuple(_shown(task, caller) for task in found.tasks),
            "work": tuple(run for run in found.work if caller.may_know(run)),
            "trouble": "something is wrong; an admin sees what" if hidden else found.trouble,
        }
    )


def _shown(found: Numbered, caller: Caller) -> Numbered:
    """Orders of arrival have gaps where there is something that the caller does not see."""
    return found if caller.role == "admin" else found.model_copy(update={"ordinal": None})


@ROUTER.get("/runs/{run_id}")
async def run(run_id: RunId, caller: Asking, service: Cluster) -> RunStatus:
    """Status of a run."""
    try:
        found = await tell(service, CoordinatorAPI.run, caller.context(), run_id)
    except RunFailed:
        found = None
    if found is None or not caller.may_know(found):
        raise UnknownRun(f"there is no run {run_id} here")
    return found


@ROUTER.get("/tasks")
async def list_tasks(caller: Asking, service: Cluster) -> Sequence[TaskStatus]:
    """By arrival."""
    return (await status(caller, service)).tasks


@ROUTER.post("/tasks", status_code=202, openapi_extra=SUBMITTERS)
async def submit(
    caller: Asking,
    service: Cluster,
    name: Annotated[Name, Form(examples=["faces"])],
    file: Annotated[UploadFile, File(description=DESCRIPTION)],
    private: Annotated[bool, Form()] = False,
    options: Annotated[Json[Options] | None, Form(description="JSON of options.")] = None,
    key: Key = None,
) -> Submitted:
    """Submit a labelled data set by upload; it is checked before anything is stored."""
    async with laid_down(file) as place:
        upload = Upload(place, name, caller.name, private, options or Options())
        return await _submit(service, caller, upload, key)


@ROUTER.post("/references", status_code=202, openapi_extra=SUBMITTERS)
async def submit_reference(
    caller: Asking, service: Cluster, body: Reference, key: Key = None
) -> Submitted:
    """Submit a data set that is available on the server."""
    data = service.reference(body.reference)
    upload = Upload(Path(data), body.name, caller.name, body.private, body.options)
    return await _submit(service, caller, upload, key)


async def _submit(service: Service, caller: Caller, upload: Upload, key: str | None) -> Submitted:
    caller.require_own_name(upload.name)
    if key is None:
        await service.ask(CoordinatorAPI.admit, caller.context(), upload.name)
    context = caller.context(key)
    submission = await service.prepare(upload, context.request_id)
    return await service.ask(CoordinatorAPI.submit, context, submission)


@ROUTER.get("/tasks/{name}")
async def task(name: TaskName, caller: Asking, service: Cluster) -> TaskDetail:
    """One task with its runs, and the curves of its vectors."""
    found = await tell(service, CoordinatorAPI.task, caller.context(), name)
    shards = tuple(_shown(shard, caller) for shard in found.shards)
    return _shown(found.model_copy(update={"submission": None, "shards": shards}), caller)


@ROUTER.post("/tasks/{name}/cancel", openapi_extra=SUBMITTERS)
async def cancel(
    name: TaskName, caller: Asking, service: Cluster, key: Key = None
) -> CancelledTask:
    """Stop what is owed of this task; `retry` goes on from its checkpoint."""
    await _require_owner(name, caller, service)
    return await tell(service, CoordinatorAPI.cancel, caller.context(key), name)


@ROUTER.post("/tasks/{name}/retry", openapi_extra=SUBMITTERS)
async def retry(name: TaskName, caller: Asking, service: Cluster, key: Key = None) -> RetriedTask:
    """Queue what failed or was cancelled again."""
    await _require_owner(name, caller, service)
    return await tell(service, CoordinatorAPI.retry, caller.context(key), name)


@ROUTER.get("/tasks/{name}/events")
async def task_events(name: TaskName, caller: Asking, service: Cluster) -> Sequence[Event]:
    """What happened to a task, oldest first."""
    return await tell(service, CoordinatorAPI.logs, caller.context(), name)


@ROUTER.get("/vectors")
async def vectors(
    caller: Asking, service: Cluster, task: Name | None = None
) -> Sequence[VectorStatus]:
    """Every version of every vector, or of one task's."""
    return await tell(service, CoordinatorAPI.vectors, caller.context(), task)


@ROUTER.get("/tasks/{name}/aliases")
async def aliases(name: TaskName, caller: Asking, service: Cluster) -> AliasReport:
    """What the names of this task's versions mean, and what they meant before."""
    return await tell(service, CoordinatorAPI.aliases, caller.context(), name)


@ROUTER.put("/tasks/{name}/aliases/{alias}", openapi_extra=SUBMITTERS)
async def move_alias(
    name: TaskName,
    alias: Annotated[Name, InPath(examples=["champion"])],
    body: AliasMove,
    caller: Asking,
    service: Cluster,
    key: Key = None,
) -> MovedAlias:
    """Let an alias mean a version, if it still means the expected one."""
    await _require_owner(name, caller, service)
    move = (name, alias, body.version, body.expected)
    return await tell(service, CoordinatorAPI.move_alias, caller.context(key), *move)


@ROUTER.get("/interference")
async def interference(caller: Asking, service: Cluster) -> InterferenceReport:
    """What the champions do to each other's tasks (tau_jp, logits), and what that warns of."""
    return await tell(service, CoordinatorAPI.interference, caller.context())


async def _require_owner(name: str, caller: Caller, service: Service) -> None:
    found = await service.ask(CoordinatorAPI.task, caller.context(), name)
    caller.require_owner(found.owner)
