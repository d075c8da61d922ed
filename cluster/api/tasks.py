"""Tasks, their vectors and aliases, and how they interfere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import APIRouter, Body, File, Form, Query, UploadFile
from fastapi import Path as InPath
from pydantic import Json, StrictBool

from cluster.api.access import SUBMITTERS, Caller, Guarded
from cluster.api.dependencies import ApiRequest, ReadRequest, WriteRequest
from cluster.api.schemas import AliasMove, Name, Reference
from cluster.api.service import Upload
from cluster.api.uploads import DESCRIPTION, FormReading, Templates, laid_down
from cluster.domain import status as shown
from cluster.domain.api import CoordinatorAPI
from cluster.domain.receipts import CancelledTask, MovedAlias, RetriedTask, Submitted
from cluster.domain.reports import AliasReport, InterferenceReport, TaskInterference, VectorStatus
from cluster.domain.status_sync import StatusSync
from cluster.domain.tasks import ANY, Options
from tacl.errors import UnknownRun

ROUTER = APIRouter(route_class=Guarded, tags=["tasks"])
TaskName = Annotated[Name, InPath(examples=["faces"])]
Since = Annotated[str, Query(max_length=32, description="The `version` of the answer before.")]
Told = Annotated[int, Query(ge=0, le=10**9, description="How many you were told before.")]
RunId = Annotated[str, InPath(max_length=64, pattern="^[0-9a-f]+$", examples=["9f2c"])]
Numbered = TypeVar("Numbered", shown.TaskStatus, shown.ShardStatus, shown.TaskDetail)


@ROUTER.get("/status")
async def status(
    asked: ReadRequest,
    since: Since = "",
    tasks: Annotated[list[Name] | None, Query(max_length=shown.NAMED)] = None,
) -> shown.ClusterStatus:
    """The base model, the resources of the cluster, and the tasks and owed work that are new since
    the `version` of an earlier answer, a part at a time: while there is `more`, ask again. With
    `tasks`, only these and the work on them, new or not."""
    caller, found = (
        asked.caller,
        await asked.ask_without_paths(CoordinatorAPI.status, since, tasks or ()),
    )
    hidden = found.trouble and caller.role != "admin"
    return found.model_copy(
        update={
            "tasks": tuple(_shown(task, caller) for task in found.tasks),
            "trouble": "something is wrong; an admin sees what" if hidden else found.trouble,
        }
    )


def _shown(found: Numbered, caller: Caller) -> Numbered:
    """The object without its number of arrival, unless the caller is an admin: gaps would reveal
    that there are objects that the caller does not see."""
    return found if caller.role == "admin" else found.model_copy(update={"ordinal": None})


@ROUTER.get("/runs/{run_id}")
async def run(run_id: RunId, asked: ReadRequest) -> shown.RunStatus:
    """Status of a run."""
    found = await asked.ask_without_paths(CoordinatorAPI.run, run_id)
    if not asked.caller.may_know(found):
        raise UnknownRun(f"there is no run {run_id}")
    return found


@ROUTER.get("/tasks")
async def list_tasks(asked: ReadRequest) -> Sequence[shown.TaskStatus]:
    """All tasks, by arrival."""
    following = StatusSync()
    while (told := following.apply(await status(asked, following.version))).more:
        pass
    return told.tasks


@ROUTER.post("/tasks", status_code=202, openapi_extra=SUBMITTERS)
async def submit(
    asked: WriteRequest,
    reading: FormReading,
    name: Annotated[Name, Form(examples=["faces"])],
    file: Annotated[UploadFile, File(description=DESCRIPTION)],
    private: Annotated[bool, Form()] = False,
    again: Annotated[bool, Form(description="Also where a task has the same rows.")] = False,
    templates: Templates = [],  # noqa: B006
    options: Annotated[Json[Options] | None, Form(description="JSON of options.")] = None,
) -> Submitted:
    """Submit a labelled data set by upload. It is checked before anything is stored."""
    async with laid_down(file, asked.service) as place:
        how = (asked.caller.name, private, options or Options(), asked.context.request_id)
        upload = Upload(place, name, *how, reading, templates)
        return await _submit(asked, upload, again)


@ROUTER.post("/references", status_code=202, openapi_extra=SUBMITTERS)
async def submit_reference(asked: WriteRequest, body: Reference) -> Submitted:
    """Submit a data set that is available on the server."""
    data = asked.service.reference(body.reference)
    how = (asked.caller.name, body.private, body.options, asked.context.request_id)
    upload = Upload(data, body.name, *how, body.reading, body.templates)
    return await _submit(asked, upload, body.again)


async def _submit(asked: ApiRequest, upload: Upload, again: bool) -> Submitted:
    asked.caller.require_own_name(upload.name)
    await asked.ask(CoordinatorAPI.admit, upload.name)
    submission = await asked.service.prepare(upload)
    return await asked.ask(CoordinatorAPI.submit, submission, again)


@ROUTER.get("/tasks/{name}")
async def task(name: TaskName, asked: ReadRequest) -> shown.TaskDetail:
    """A task with its runs and the curves of its vectors."""
    found = await asked.ask_without_paths(CoordinatorAPI.task, name)
    shards = tuple(_shown(shard, asked.caller) for shard in found.shards)
    return _shown(found.model_copy(update={"submission": None, "shards": shards}), asked.caller)


@ROUTER.post("/tasks/{name}/cancel", openapi_extra=SUBMITTERS)
async def cancel(
    name: TaskName, asked: WriteRequest, keep: Annotated[StrictBool, Body(embed=True)] = False
) -> CancelledTask:
    """Stop the owed work of this task. A task without a vector is removed unless `keep` is set:
    then `retry` continues from its checkpoint."""
    return await asked.ask_without_paths(CoordinatorAPI.cancel, name, keep)


@ROUTER.post("/tasks/{name}/retry", openapi_extra=SUBMITTERS)
async def retry(name: TaskName, asked: WriteRequest) -> RetriedTask:
    """Queue failed and cancelled work of this task again, except evaluations and compositions:
    request these again."""
    return await asked.ask_without_paths(CoordinatorAPI.retry, name)


@ROUTER.get("/tasks/{name}/events")
async def task_events(name: TaskName, asked: ReadRequest, after: Told = 0) -> Sequence[shown.Event]:
    """Events of a task, oldest first, a page at a time."""
    return await asked.ask_without_paths(CoordinatorAPI.logs, name, after)


@ROUTER.get("/vectors")
async def vectors(
    asked: ReadRequest,
    task: Name | None = None,
    after: Annotated[str, Query(pattern="^$|^[A-Za-z0-9_.-]{1,64}@v[0-9]{1,9}$")] = "",
) -> Sequence[VectorStatus]:
    """Versions of all vectors, without their curves, or of one task's vectors, a part at a time:
    pass the last one, TASK@vN, as `after` until none are left."""
    return await asked.ask_without_paths(CoordinatorAPI.vectors, task, after)


@ROUTER.get("/tasks/{name}/aliases")
async def aliases(name: TaskName, asked: ReadRequest, after: Told = 0) -> AliasReport:
    """The versions that this task's aliases mean, and how they changed, a page of changes at a
    time."""
    return await asked.ask_without_paths(CoordinatorAPI.aliases, name, after)


@ROUTER.put("/tasks/{name}/aliases/{alias}", openapi_extra=SUBMITTERS)
async def move_alias(
    name: TaskName,
    alias: Annotated[Name, InPath(examples=["champion"])],
    body: AliasMove,
    asked: WriteRequest,
) -> MovedAlias:
    """Move an alias to a version, if it still means the expected one."""
    expected = ANY if body.expected == "any" else body.expected
    return await asked.ask_without_paths(
        CoordinatorAPI.move_alias, name, alias, body.version, expected
    )


@ROUTER.get("/interference")
async def interference(
    asked: ReadRequest, tasks: Annotated[list[Name] | None, Query(max_length=24)] = None
) -> InterferenceReport:
    """Interference between the champions of these tasks, by default of the newest (tau_jp, logits),
    with warnings; and the pairs of all tasks with the most interference."""
    return await asked.ask_without_paths(CoordinatorAPI.interference, tasks or ())


@ROUTER.get("/tasks/{name}/interference")
async def interference_of(name: TaskName, asked: ReadRequest) -> TaskInterference:
    """Interference of this task's champion on all other tasks, and of theirs on it, the most
    first."""
    return await asked.ask_without_paths(CoordinatorAPI.interference_of, name)
