"""submit, wait, status, logs, retry, cancel, remove, refresh: tasks and their training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from jobs.cli.app import Home, Json, TaskName, client, tell, telling, verb

if TYPE_CHECKING:
    from cluster.client.client import Client
    from cluster.data.ingest import Ingested


@verb("tasks")
def submit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A new task, or one to grow.")],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Labelled data: a Parquet, CSV or JSON-lines file or folder, a folder of pictures "
            "(a sub-folder per class), or a hub id, ID[:CONFIGURATION].",
        ),
    ] = None,
    add_samples: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Grow an existing task's store by unlabelled samples."),
    ] = None,
    input_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", show_default="by type", help="Of pictures or texts."),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", show_default="by type", help="Of classes."),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", show_default="from the data", help="Names of the classes 0, 1, ..."
        ),
    ] = None,
    template: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A prompt with {} for the class name; repeatable."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the training to its end.")] = False,
    penalty: Annotated[
        Literal["cyclical", "mixed", "strict", "none"],
        typer.Option(
            help="Against the samples of the others: one per step, the same few rows dealt over "
            "them, all, or none."
        ),
    ] = "cyclical",
    refresh: Annotated[
        Literal["never", "on_arrival"],
        typer.Option(
            help="Refresh this task's vector, without labels, when it disturbs later tasks."
        ),
    ] = "on_arrival",
    share: Annotated[
        Literal["samples", "statistics", "none"],
        typer.Option(help="What other tasks' trainings see of this task's inputs."),
    ] = "samples",
    strength: Annotated[
        float | None, typer.Option(help="Of the penalty.", show_default="by rule")
    ] = None,
    grow_strength: Annotated[
        bool,
        typer.Option(
            "--grow-strength",
            help="With the number of other tasks; the strength is that for eight.",
        ),
    ] = False,
    steps: Annotated[
        int | None, typer.Option(help="Optimizer steps.", show_default="by rule")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Its largest value.", show_default="by rule")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Rows per step.", show_default="by rule")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of splits, batches and samples.")] = 0,
    workers: Annotated[int, typer.Option(help="Processes that share the training.")] = 1,
    cpus_per_worker: Annotated[int, typer.Option(help="CPUs, and threads, of each.")] = 1,
    gpus_per_worker: Annotated[int, typer.Option(help="GPUs of each.")] = 0,
    precision: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option(help="Of the passes; bfloat16 takes half the time where there is hardware."),
    ] = "float32",
    keep_as: Annotated[
        Literal["float32", "bfloat16", "int8", "int4"],
        typer.Option(help="How the vector is kept: a half, a quarter, a seventh of the bytes."),
    ] = "float32",
    engine: Annotated[
        Literal["deepspeed", "plain"], typer.Option(help="What steps the optimizer.")
    ] = "deepspeed",
    zero_stage: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2,
            help="What DeepSpeed spreads over the workers.",
            show_default="0, or 2 on several workers",
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Whose task it is.", show_default="you")] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private", help="Only its owner's tasks see its samples, and only its owner sees it."
        ),
    ] = False,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Check a data set and queue its training.

    Returns when the data are stored; --watch follows the training. Nobody has to turn a knob: what
    has no value follows a rule from the number of rows and classes.
    """
    from jobs.console.progress import counting
    from tacl.errors import BadConfig

    asked = client(home)
    if (data is None) == (add_samples is None):
        raise BadConfig("give the task's data: --data DATA (or --add-samples DATA, not both)")
    if add_samples is not None:
        with counting("checking rows") as count:
            grown = asked.add_samples(
                name, add_samples, input_column=input_column, seed=seed, progress=count
            )
        tell(grown, as_json, lambda g: f"{name}: {g['added']} new samples, {g['rows']} in all")
        return
    understood: list[Ingested] = []
    with counting("checking rows") as count:
        submitted = asked.submit(
            name,
            str(data),
            owner=owner,
            private=private,
            input_column=input_column,
            label_column=label_column,
            classes=None if classes is None else [one.strip() for one in classes.split(",")],
            templates=template or (),
            progress=count,
            read=understood.append,
            penalty=penalty,
            refresh=refresh,
            share=share,
            strength=strength,
            grow_strength=grow_strength,
            steps=steps,
            learning_rate=learning_rate,
            batch=batch,
            seed=seed,
            workers=workers,
            cpus_per_worker=cpus_per_worker,
            gpus_per_worker=gpus_per_worker,
            precision=precision,
            keep_as=keep_as,
            engine=engine,
            zero_stage=zero_stage,
        )
    if not watch:
        tell(submitted, as_json, lambda s: f"{_read(understood[0])}\n{s.task} is {s.state}")
        return
    if not as_json:
        print(_read(understood[0]))
    _follow(asked, (name,), as_json)


def _read(found: Ingested) -> str:
    from jobs.console.tables import joined

    left_out = f"\nleft out, having no labels: {joined(found.left_out)}" if found.left_out else ""
    return (
        f"{found.modality}s from column {found.input_column!r}; {len(found.classes)} classes from "
        f"{found.label_column!r}: {joined(found.classes)}\n"
        f"rows: {found.train.rows} to train, {found.validation.rows} to validate, "
        f"{found.test.rows} to test, {found.shard.rows} shared unlabelled{left_out}"
    )


def _follow(asked: Client, names: tuple[str, ...], as_json: bool) -> None:
    from jobs.console import tables
    from jobs.console.progress import watching

    with watching() as watch:
        found = asked.wait(*names, progress=watch)
    tell(found, as_json, tables.status)


@verb("tasks")
def wait(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Tasks; without: all work.")
    ] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Wait until tasks are trained, or until nothing is left to do."""
    _follow(client(home), tuple(names or ()), as_json)


@verb("tasks")
def status(home: Home = None, as_json: Json = False) -> None:
    """What is trained, what runs, what waits and why."""
    from jobs.console import tables

    asked = client(home)
    tell(asked.status() | {"users": asked.users()}, as_json, tables.status)


@verb("tasks")
def logs(name: TaskName, home: Home = None, as_json: Json = False) -> None:
    """What happened to a task, oldest first."""
    from jobs.console import tables

    tell(client(home).logs(name), as_json, tables.logs)


@verb("tasks")
def retry(name: TaskName, home: Home = None, as_json: Json = False) -> None:
    """Queue again what failed or was cancelled of a task."""
    found = client(home).retry(name)
    count = len(found["retried"])
    said = f"{name}: {_runs(count)} queued again"
    tell(found, as_json, lambda _: said if count else f"{name}: nothing had failed")


def _runs(count: int) -> str:
    return f"{count} {'run' if count == 1 else 'runs'}"


@verb("tasks")
def cancel(name: TaskName, home: Home = None, as_json: Json = False) -> None:
    """Stop a task's training or refresh, at any stage, and free its room.

    What it has reached is kept: `tacl retry` goes on from its last checkpoint.
    """
    found = client(home).cancel(name)
    count = len(found["cancelled"])
    said = f"{name}: {_runs(count)} cancelled" if count else f"{name}: nothing runs or waits"
    tell(found, as_json, lambda _: said)


@verb("tasks")
def remove(
    name: TaskName,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Erase its bytes too: models that use it stop working."),
    ] = False,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Withdraw a task's samples and vectors from later use.

    Models that use it work on until they are composed again, unless you --purge; they are named.
    The name stays taken.
    """
    tell(client(home).remove(name, purge), as_json, _removed)


def _removed(found: dict[str, Any]) -> str:
    how = "removed, and its bytes are erased" if found["purged"] else "removed"
    users = ", ".join(found["users"])
    if not users:
        return f"{found['task']} is {how}; no model uses it"
    works = "do not work any more" if found["purged"] else "work on"
    return f"{found['task']} is {how}; models that use it {works}: {users}. Compose them again."


@verb("tasks")
def refresh(name: TaskName, home: Home = None, as_json: Json = False) -> None:
    """Refresh a task's vector, without labels.

    A correction makes it leave the samples of all other tasks alone and keeps what it does on its
    own; a new version is made only if rows held out say that it is better. Waits for the end.
    """
    from jobs.console.progress import saying

    asked = client(home)
    run_id = asked.refresh(name)
    with saying(f"refreshing {name}") as say:
        found = asked.result(run_id, telling(say))
    tell(found, as_json, lambda f: _refreshed(name, f, run_id, asked.vectors(name)))


def _refreshed(name: str, found: dict[str, Any], run_id: str, vectors: list[dict[str, Any]]) -> str:
    """A refresh of this version may have been made before, and the champion moved since."""
    if not found["accepted"]:
        return f"{name}: the old version stays: {found['reason']}"
    made = next(one["version"] for one in vectors if one["run_id"] == run_id)
    champion = next(one["version"] for one in vectors if one["champion"])
    if made == champion:
        return f"{name}: a new version is the champion: {found['reason']}"
    return (
        f"{name}: version {made} was made: {found['reason']}; the champion is v{champion}. "
        f"To make v{made} the champion: tacl alias {name}@champion v{made}"
    )
