"""`tacl VERB`: parse, call, print. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

if TYPE_CHECKING:
    from cluster.client import Client
    from cluster.ingest import Ingested
    from tacl.errors import TaclError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help"], "max_content_width": 100},
    help="Train tasks apart, compose any of them at once.\n\n"
    "Tasks are submitted one after another; each becomes a task vector that leaves the others "
    "alone. Any user composes a model out of any of the vectors and asks it questions.",
)

Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        envvar="TACL_HOME",
        show_default="~/.tacl",
        help="The installation: registry, blobs, settings.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
TaskName = Annotated[str, typer.Argument(metavar="NAME", help="The task.")]
User = Annotated[str, typer.Argument(metavar="USER", help="Whose model.")]


def verb(group: str, **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command of `tacl`, whose errors are one message and the exit code of their class."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def guarded(*args: Any, as_json: bool = False, **options: Any) -> None:
            from tacl.errors import TaclError

            try:
                function(*args, as_json=as_json, **options)
            except TaclError as error:
                refuse(error, as_json)
            except KeyboardInterrupt:
                print("stopped looking; what the cluster does goes on", file=sys.stderr)
                raise typer.Exit(130) from None

        return app.command(rich_help_panel=group, **settings)(guarded)

    return decorate


def refuse(error: TaclError, as_json: bool) -> NoReturn:
    """One message on stderr, and the exit code of the error's class."""
    from cluster.errors import exit_code

    code = exit_code(error)
    if as_json:
        body = {"error": type(error).__name__, "message": str(error), "exit_code": code}
        print(json.dumps(body), file=sys.stderr)
    else:
        print(f"error: {error}", file=sys.stderr)
    raise typer.Exit(code)


def client(home: Path | None) -> Client:
    from cluster.client import Client

    return Client(home)


def tell(found: Any, as_json: bool, table: Callable[[Any], Any]) -> None:
    """The answer on stdout: JSON, or a table or words for a person."""
    from jobs import show

    if as_json:
        plain = found.model_dump(mode="json") if hasattr(found, "model_dump") else found
        print(json.dumps(plain, indent=2))
    elif isinstance(said := table(found), str):
        print(said)
    else:
        show.console().print(said)


# -- the cluster


@verb("cluster")
def up(
    base: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="The pre-trained encoder, the first time: embedded, hf:DIRECTORY_OR_ID, "
            "open_clip:NAME@WEIGHTS, timm:NAME@FILE?size=N.",
        ),
    ] = None,
    generic: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Unlabelled data of the same kind, the first time: what every task leaves alone. "
            "Generated for the embedded encoder.",
        ),
    ] = None,
    cpus: Annotated[int | None, typer.Option(help="CPUs to use.", show_default="all")] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Start the cluster of a home.

    Returns when it answers; it runs until `tacl down`. The first time needs --base, and --generic
    for any but the embedded encoder.
    """
    from jobs.progress import saying

    with saying("starting the cluster") as say:
        found = client(home).up(base, generic, cpus, say)
    tell(found, as_json, _up)


def _up(found: dict[str, Any]) -> str:
    was = "runs" if found["started"] else "ran already"
    return (
        f"the cluster {was}: base {found['base']} ({found['modality']}), "
        f"{found['generic_rows']} generic samples, home {found['home']}"
    )


@verb("cluster")
def down(home: Home = None, as_json: Json = False) -> None:
    """Stop the cluster.

    Work that is owed goes on, from its last checkpoint, at the next `up`.
    """
    from jobs.progress import saying

    with saying("stopping the cluster"):
        stopped = client(home).down()
    said = "the cluster is down" if stopped else "no cluster runs"
    tell({"stopped": stopped}, as_json, lambda _: said)


@verb("cluster")
def doctor(home: Home = None, as_json: Json = False) -> None:
    """Check this machine and this home, and say what to do.

    The exit code is 1 when something is wrong.
    """
    from jobs import show

    found = []
    for check in client(home).doctor():
        found.append(check)
        if not as_json:
            show.console().print(show.check(check))
    if as_json:
        print(json.dumps([check.model_dump() for check in found], indent=2))
    if not all(check.ok for check in found):
        raise typer.Exit(1)


# -- tasks


@verb("tasks")
def submit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A new task, or one to grow.")],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Labelled data: a Parquet, CSV or JSON-lines file or folder, a folder of pictures "
            "(a sub-folder per class), or a hub id.",
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
        Literal["cyclical", "strict", "none"],
        typer.Option(help="Against the samples of the others: one per step, all, or none."),
    ] = "cyclical",
    refresh: Annotated[
        Literal["never", "on_arrival"],
        typer.Option(help="Refresh this task's vector when later tasks disturb it."),
    ] = "never",
    strength: Annotated[
        float | None, typer.Option(help="Of the penalty.", show_default="by rule")
    ] = None,
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
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Check a data set and queue its training.

    Returns when the data are stored; --watch follows the training. Nobody has to turn a knob: what
    has no value follows a rule from the number of rows and classes.
    """
    from jobs.progress import counting
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
            input_column=input_column,
            label_column=label_column,
            classes=None if classes is None else [one.strip() for one in classes.split(",")],
            templates=template or (),
            progress=count,
            read=understood.append,
            penalty=penalty,
            refresh=refresh,
            strength=strength,
            steps=steps,
            learning_rate=learning_rate,
            batch=batch,
            seed=seed,
            workers=workers,
            cpus_per_worker=cpus_per_worker,
            gpus_per_worker=gpus_per_worker,
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
    from jobs.show import joined

    return (
        f"{found.modality}s from column {found.input_column!r}; {len(found.classes)} classes from "
        f"{found.label_column!r}: {joined(found.classes)}\n"
        f"rows: {found.train.rows} to train, {found.validation.rows} to validate, "
        f"{found.test.rows} to test, {found.shard.rows} shared unlabelled"
    )


def _follow(asked: Client, names: tuple[str, ...], as_json: bool) -> None:
    from jobs import show
    from jobs.progress import watching

    with watching() as watch:
        found = asked.wait(*names, progress=watch)
    tell(found, as_json, show.status)


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
    from jobs import show

    asked = client(home)
    tell(asked.status() | {"users": asked.users()}, as_json, show.status)


@verb("tasks")
def logs(name: TaskName, home: Home = None, as_json: Json = False) -> None:
    """What happened to a task, oldest first."""
    from jobs import show

    tell(client(home).logs(name), as_json, show.logs)


@verb("tasks")
def retry(name: TaskName, home: Home = None, as_json: Json = False) -> None:
    """Queue again what failed of a task."""
    found = client(home).retry(name)
    count = len(found["retried"])
    said = f"{name}: {count} failed {'run' if count == 1 else 'runs'} queued again"
    tell(found, as_json, lambda _: said if count else f"{name}: nothing had failed")


@verb("tasks")
def refresh(name: TaskName, home: Home = None, as_json: Json = False) -> None:
    """Refresh a task's vector, without labels.

    A correction makes it leave the samples of all other tasks alone and keeps what it does on its
    own; a new version is made only if rows held out say that it is better. Waits for the end.
    """
    from jobs.progress import saying

    asked = client(home)
    run_id = asked.refresh(name)
    with saying(f"refreshing {name}") as say:
        found = asked.result(run_id, _steps(say))
    tell(found, as_json, lambda f: _refreshed(name, f))


def _refreshed(name: str, found: dict[str, Any]) -> str:
    verdict = "a new version is the champion" if found["accepted"] else "the old version stays"
    return f"{name}: {verdict}: {found['reason']}"


def _steps(say: Callable[[str], None]) -> Callable[[dict[str, Any]], None]:
    """Tell a run's state when it changes."""
    from jobs.progress import said

    told: list[str] = []

    def tell_run(run: dict[str, Any]) -> None:
        if (line := said(run)) not in told[-1:]:
            told.append(line)
            say(line)

    return tell_run


# -- vectors and models


@verb("models")
def vectors(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of this task only.")] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Every version of every vector, and its accuracy."""
    from jobs import show

    tell(client(home).vectors(name), as_json, show.vectors)


@verb("models")
def interference(
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", show_default="interference.png in the home"),
    ] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """How much each vector disturbs the other tasks.

    The tau_jp matrix as a table and as a picture: a row per vector, a column per task's samples.
    """
    from jobs import show
    from jobs.pictures import heat_map

    asked = client(home)
    found = asked.interference()
    if found["vectors"]:
        path = heat_map(found, picture or asked.home.path / "interference.png")
        found = found | {"picture": str(path)}
    tell(found, as_json, show.interference)


@verb("models", context_settings={"ignore_unknown_options": True})
def compose(
    user: User,
    terms: Annotated[
        list[str],
        typer.Argument(
            metavar="TERM...", help="[+|-][COEFFICIENT*]NAME[@vN]: +faces -digits -0.5*signs@v1"
        ),
    ],
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Make a sum of vectors a user's model.

    Versions are pinned: a newer one is used only when you compose again.
    """
    from jobs import show

    tell(client(home).compose(user, terms), as_json, show.composition)


@verb("models")
def evaluate(user: User, home: Home = None, as_json: Json = False) -> None:
    """Accuracy of a user's model on its tasks' test rows.

    zero-shot: the base alone; individual: each task's vector alone, as first trained; composed: the
    model. normalized is the mean of composed / individual.
    """
    from jobs import show
    from jobs.progress import saying

    with saying("evaluating") as say:
        found = client(home).evaluate(user, _steps(say))
    tell(found, as_json, show.evaluation)


@verb("models")
def query(
    user: User,
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="Paths of pictures, or texts.")
    ],
    task: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these tasks; repeatable.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Classes shown per task.")] = 3,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Ask a user's model: classes and probabilities per task."""
    from jobs import show
    from jobs.progress import saying

    with saying("asking"):
        found = client(home).query(user, inputs, task)
    tell(found, as_json, lambda f: show.answers(inputs, f, top))


# -- work of its own


@verb("embedded encoder")
def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            "--home",
            metavar="DIR",
            show_default="a temporary one",
            help="The demo's home, a new directory, to look around in afterwards.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """The whole story on generated pictures.

    No data, no network, no GPU; at most 8 minutes on 2 CPUs, and nothing is left running.
    """
    from jobs.demo import run

    try:
        run(keep, as_json)
    except KeyboardInterrupt:
        print("stopped; nothing is left running", file=sys.stderr)
        raise typer.Exit(130) from None


@verb("embedded encoder")
def pretrain(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="For encoder.safetensors and its record.")
    ],
    steps: Annotated[int | None, typer.Option(show_default="as shipped")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Make the embedded encoder again from a seed.

    At most 30 minutes on 2 CPUs.
    """
    from jobs import show
    from jobs.pretrain import PretrainConfig, pretrain

    chosen = {} if steps is None else {"steps": steps}
    record = pretrain(PretrainConfig(seed=seed, **chosen), out)
    tell(record, as_json, lambda r: show.pretrained(r, out))


def main() -> None:
    app()


if __name__ == "__main__":
    main()
