"""submit, wait, status, logs, retry, cancel, remove, refresh: tasks and their training."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs import console
from jobs.cli import app as cli
from jobs.cli import asking, names
from jobs.cli.options import argument, data_options, flag, option, training_options
from tacl.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.data.ingest import Ingested
    from cluster.domain.receipts import RemovedTask
    from cluster.domain.reports import UserModel, VectorStatus
    from cluster.domain.status import Resources
    from cluster.domain.work import Refreshed


GROWN = ("input_column", "seed")  # options that apply to added samples
AGAIN = 10  # looks after which models are requested again even if the status is not new

LabelledData = Annotated[
    str | None,
    option(
        "DATA",
        "Labelled data: a Parquet, CSV or JSON Lines file, a folder of them, a folder of "
        "images (one sub-folder per class), or a hub id, ID[:CONFIGURATION].",
    ),
]
SomeTasks = Annotated[
    list[str] | None, argument("[NAME]...", "These tasks alone; default: all.", names.tasks)
]
NewSamples = Annotated[
    str | None, option("DATA", "Instead of --data: unlabelled samples to add to those of a task.")
]


@cli.verb("tasks", declared=[data_options, training_options])
def submit(
    client: cli.Client,
    name: Annotated[
        str, argument("NAME", "Name of a new task, or of the one that --add-samples adds to.")
    ],
    data: LabelledData = None,
    add_samples: NewSamples = None,
    template: cli.Prompts = None,
    watch: Annotated[bool, flag("--watch", "Follow the training to its end.")] = False,
    owner: cli.Owner = None,
    private: cli.Private = False,
    again: asking.Again = False,
    as_json: cli.Json = False,
    **options: Any,
) -> cli.Told:
    """Check a data set, store it and queue its training.

    Needs --data. Returns when the data are stored; --watch follows the training. "By rule" means
    that a default follows from the number of rows and classes.
    """
    if (data is None) == (add_samples is None):
        raise BadConfig("give the task's data: --data DATA (or --add-samples DATA, not both)")
    if add_samples is not None:
        others = {"--watch": watch, "--private": private, "--owner": owner, "--again": again}
        _require_unsaid(others | {"--template": template}, options)
        how = {one: options[one] for one in GROWN}
        return _grown(client, name, add_samples, **how)
    room = client.cluster()
    understood: list[Ingested] = []
    with console.progress.counting("checking rows") as count:
        submitted = client.submit(
            name,
            str(data),
            owner=owner,
            private=private,
            templates=template or (),
            progress=count,
            read=understood.append,
            again=again or partial(asking.asked_again, count),
            **options,
        )
    from cluster.domain.names import namespace

    private_to = namespace(name) if private else None
    said = _summary(understood[-1], options, private_to, room)
    if private_to not in (None, client.user):  # the user who submits it may see no more
        return submitted, lambda s: f"{said}\n{s.task}: only {private_to} can see more"
    if not watch:
        return submitted, lambda s: f"{said}\n{s.task} is {s.state}"
    if not as_json:
        print(said)
    found, _ = _followed(client, name)
    return found, console.tables.trained


def _require_unsaid(flags: Mapping[str, object], options: Mapping[str, object]) -> None:
    """Raise for flags about the training of a new task: they have no effect on added samples."""
    from cluster.domain.tasks import Options, Reading

    fields = {**Reading.model_fields, **Options.model_fields}
    said = [flag for flag, value in flags.items() if value]
    said += [
        f"--{name.replace('_', '-')}"
        for name, value in options.items()
        if name not in GROWN and value != fields[name].default
    ]
    if said:
        raise BadConfig(f"{', '.join(said)}: not with --add-samples, which trains nothing")


def _grown(client: cli.Client, name: str, samples: str, **how: Any) -> cli.Told:
    with console.progress.counting("checking rows") as count:
        grown = client.add_samples(name, samples, **how, progress=count)
    return grown, lambda g: f"{name}: {g.added} new samples, {g.rows} in all"


def _shared(rows: int, share: str, owner: str | None) -> str:
    """What happens to the unlabelled rows; `owner`: of a private task."""
    if share == "none":
        return "none of them is shared"
    if share == "statistics":
        return f"statistics of {rows} of the training rows are shared, and no row"
    whose = f"the other tasks of {owner}" if owner else "other tasks"
    return f"{rows} of the training rows are shared, unlabelled, with {whose}"


def _summary(
    found: Ingested, options: Mapping[str, Any], private_to: str | None, room: Resources
) -> str:
    shared = _shared(found.shard.rows, options["share"], private_to)
    idle = console.tables.idle_gpus(room, options["gpus_per_worker"])
    train, validation, test = found.train.rows + found.probe, found.validation.rows, found.test.rows
    lines = [
        f"{found.modality}s from column {found.input_column!r}; {len(found.classes)} classes from "
        f"{found.label_column!r}: {console.tables.listed(found.classes)}",
        f"rows: {train + validation + test} = {train} training + {validation} validation + {test} "
        f"test; {shared}; {found.probe} are probe rows, never trained on",
    ]
    return "\n".join([*lines, *found.notes, *filter(None, [idle])])


def _followed(client: cli.Client, *names: str) -> cli.Told:
    with cli.detachable(), console.progress.watching() as watch:
        return client.wait(*names, progress=watch), console.tables.status


@cli.verb("tasks")
def wait(
    client: cli.Client,
    names: Annotated[
        list[str] | None, argument("[NAME]...", "Tasks; default: all work.", names.tasks)
    ] = None,
) -> cli.Told:
    """Wait until tasks are trained, or until no work is left.

    With names it fails as soon as one of them has failed; without, at the end, when a task that
    was still to be trained has failed.
    """
    return _followed(client, *(names or ()))


@cli.verb("tasks")
def status(
    client: cli.Client,
    names: SomeTasks = None,
    after: Annotated[str, option("USER", "Of users' models, those after this user.")] = "",
) -> cli.Told:
    """Show tasks, runs, and why they wait or failed; of named tasks, how many others go first.

    Also users' models that could be composed again, for fifty users by name: `--after` the last
    of them shows the next.
    """
    if names and after:
        raise BadConfig("--after is about users' models, which are shown where no task is named")
    found = _Looking(client, names, after)()
    others = found.is_full and bool(client.users(after=found.users[-1].user))
    return found.model_copy(update={"others": others}), console.tables.status


@cli.verb("tasks")
def watch(client: cli.Client, names: SomeTasks = None) -> None:
    """Show tasks, runs, models and accuracies as they change, until Ctrl-C."""
    if names:
        client.status(*names)  # a misspelt name is refused before the screen is cleared
    with cli.detachable():
        console.live.watch(_Looking(client, names))


class _Looking:
    """Repeated views of a cluster. The first page of users' models is requested if the status is
    new; a newly composed sum does not change the status, and is seen within AGAIN looks."""

    def __init__(self, client: cli.Client, names: Sequence[str] | None, after: str = "") -> None:
        self._asked, self._names, self._after = client, names or (), after
        self._version, self._old = "", AGAIN  # the status of these models, and how many looks ago
        self._users: tuple[UserModel, ...] = ()

    def __call__(self) -> console.tables.Overview:
        status = self._asked.status(*self._names)
        self._old += 1
        if not self._names and (status.version != self._version or self._old >= AGAIN):
            self._users = tuple(self._asked.users(after=self._after))
            self._version, self._old = status.version, 0
        return console.tables.Overview(**dict(status), users=self._users)


@cli.verb("tasks")
def logs(client: cli.Client, name: names.TaskName) -> cli.Told:
    """Show the events of a task, oldest first."""
    return client.logs(name), console.tables.logs


@cli.verb("tasks")
def retry(client: cli.Client, name: names.TaskName) -> cli.Told:
    """Queue a task's failed or cancelled runs again.

    Not its evaluations and compositions: request these again.
    """
    found = client.retry(name)
    runs = console.tables.counted(len(found.retried), "run")
    said = f"{runs} queued again" if found.retried else "nothing had failed"
    return found, lambda _: f"{name}: {said}"


@cli.verb("tasks")
def cancel(
    client: cli.Client,
    name: names.TaskName,
    keep: Annotated[
        bool,
        flag(
            "--keep",
            "Keep the samples, the name and the checkpoints of a task that has no vector yet: "
            "`tacl retry` goes on.",
        ),
    ] = False,
) -> cli.Told:
    """Stop a task's training or refresh and free its resources.

    A task that has no vector yet is withdrawn, unless you --keep it: its samples leave the sample
    store and its name is free.
    """
    found = client.cancel(name, keep)
    runs = console.tables.counted(len(found.cancelled), "run")
    said = f"{runs} cancelled" if found.cancelled else "nothing runs or waits"
    left = "; its samples are out of the sample store and its name is free" if found.left else ""
    return found, lambda _: f"{name}: {said}{left}"


@cli.verb("tasks")
def remove(
    client: cli.Client,
    name: names.TaskName,
    purge: Annotated[
        bool, flag("--purge", "Erase its bytes too: models that use it stop working.")
    ] = False,
) -> cli.Told:
    """Withdraw a task's samples and vectors from later use.

    Models that use it keep working until they are composed again, unless you --purge; their users
    are listed. The name stays taken. On a terminal, --purge asks first.
    """
    if purge and asking.is_person():
        said = f"The bytes of {name} are erased for ever, and models that use it stop working."
        if not asking.confirmed(f"{said}\nErase them?"):
            raise typer.Abort
    with console.progress.saying(f"{'erasing' if purge else 'removing'} {name}"):
        found = client.remove(name, purge)
    return found, _removed


def _removed(found: RemovedTask) -> str:
    how = "removed, and its bytes are erased" if found.purged else "removed"
    if not found.users:
        return f"{found.task} is {how}; no model uses it"
    works = "no longer work" if found.purged else "keep working"
    users = ", ".join(found.users)
    return f"{found.task} is {how}; models that use it {works}: {users}. Compose them again."


@cli.verb("tasks")
def refresh(client: cli.Client, name: names.TaskName) -> cli.Told:
    """Remove a vector's interference on other tasks, without labels.

    A correction keeps what the vector does on its own task. It becomes a new version only if
    held-out rows confirm that interference fell. Waits for the end.
    """
    run_id = client.refresh(name).run_id
    with cli.detachable(), console.progress.saying(f"refreshing {name}") as say:
        found = client.refreshed(run_id, cli.run_reporter(say))
    return found, lambda f: _refreshed(name, f, run_id, client.vectors(name))


def _refreshed(name: str, found: Refreshed, run_id: str, vectors: Sequence[VectorStatus]) -> str:
    """The same refresh may have been made before, and the champion moved since."""
    if not found.accepted:
        return f"{name}: the current version stays: {found.reason}"
    made = next(one.version for one in vectors if one.run_id == run_id)
    champion = next(one.version for one in vectors if one.champion)
    if made == champion:
        return f"{name}: new version v{made} is the champion: {found.reason}"
    return (
        f"{name}: new version v{made}: {found.reason}; the champion is v{champion}. "
        f"To make v{made} the champion: tacl alias {name}@champion v{made}"
    )
