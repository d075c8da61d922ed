"""vectors, alias, interference, compose, evaluate, query: what is made of the vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from jobs.cli.app import Home, Json, User, client, tell, telling, verb

Method = Literal["sum", "grid", "atlas", "adamerging", "ties", "tsv", "iso"]


@verb("models")
def vectors(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of this task only.")] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="vN,vM", help="What is different between two versions.")
    ] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Every version of every vector: its accuracy, what it was made from, and whose samples it
    met."""
    from jobs.console import tables
    from tacl.errors import BadConfig

    if compare is None:
        tell(client(home).vectors(name), as_json, tables.vectors)
        return
    versions = [_version(one.strip()) for one in compare.split(",")]
    if name is None or len(versions) != 2:
        raise BadConfig("name a task and two of its versions: tacl vectors NAME --compare v1,v2")
    tell(client(home).compare(name, *versions), as_json, tables.differences)


def _version(text: str) -> int:
    from tacl.errors import BadConfig

    if not text.removeprefix("v").isdecimal():
        raise BadConfig(f"{text!r} is no version; write v1, v2, ...")
    return int(text.removeprefix("v"))


@verb("models")
def alias(
    name: Annotated[str, typer.Argument(metavar="NAME[@ALIAS]", help="digits@champion")],
    version: Annotated[
        str | None, typer.Argument(metavar="[vN]", help="Let it mean this version.")
    ] = None,
    expected: Annotated[
        str | None,
        typer.Option("--from", metavar="vN", help="Only if it means this version now."),
    ] = None,
    back: Annotated[bool, typer.Option("--back", help="To what it meant before.")] = False,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Show a task's aliases and their history, or move one.

    The champion is what recipes mean by a bare name. Models that are pinned stay as they are.
    """
    from cluster.domain.tasks import ANY, CHAMPION
    from jobs.console import tables
    from tacl.errors import BadConfig

    asked = client(home)
    task, _, called = name.partition("@")
    if back and version is not None:
        raise BadConfig("give a version, or --back")
    if back:
        found = asked.roll_back(task, called or CHAMPION)
    elif version is not None:
        before = ANY if expected is None else _version(expected)
        found = asked.move_alias(task, called or CHAMPION, _version(version), before)
    else:
        tell(asked.aliases(task), as_json, lambda f: tables.aliases(f, called))
        return
    tell(found, as_json, lambda f: f"{f['task']}@{f['name']} means v{f['version']} now")


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

    Changes of the answers (logits) and of the inputs (tau_jp) as tables, the first as a picture
    too: a row per vector, a column per task's samples.
    """
    from jobs.console import tables
    from jobs.console.plots import heat_map

    asked = client(home)
    found = asked.interference()
    if found["vectors"]:
        path = heat_map(found, picture or asked.home.path / "interference.png")
        found = found | {"picture": str(path)}
    tell(found, as_json, tables.interference)


@verb("models", context_settings={"ignore_unknown_options": True})
def compose(
    user: User,
    terms: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TERM...", help="[+|-][COEFFICIENT*]NAME[@vN]: +faces -digits -0.5*signs@v1"
        ),
    ] = None,
    method: Annotated[
        Method,
        typer.Option(help="How one model comes out of the vectors; all but sum are computed."),
    ] = "sum",
    fit: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Labelled rows of a new task to fit to: atlas, grid."),
    ] = None,
    shots: Annotated[
        int | None, typer.Option(metavar="K", help="Rows of each class to fit to; others judge.")
    ] = None,
    adapt: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Unlabelled inputs to adapt to: atlas, adamerging."),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Of the data; with --adapt, those of a new task.",
            show_default="from the data; with --adapt, those of the recipe's tasks",
        ),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            metavar="blockwise:B", help="atlas: learn B vectors for each block (or whole:B)."
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="The same recipe with the champions of now.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Stop what is being made for the user.")
    ] = False,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Make vectors, most often their sum, a user's model.

    Versions are pinned: a newer one is used only when you compose again, or --update.
    """
    from jobs.console import tables
    from jobs.console.progress import saying
    from tacl.errors import BadRecipe

    given = {"fit": fit, "shots": shots, "adapt": adapt, "select": select}
    given["classes"] = None if classes is None else [one.strip() for one in classes.split(",")]
    how = {name: value for name, value in given.items() if value is not None}
    if update + cancel + bool(terms) != 1 or (not terms and (how or method != "sum")):
        raise BadRecipe("give the terms of a recipe, or --update the one there is, or --cancel")
    asked = client(home)
    if cancel:
        tell(asked.cancel_making(user), as_json, _stopped)
    elif update:
        tell(asked.update_composition(user), as_json, tables.composition)
    elif method == "sum" and not how:
        tell(asked.compose(user, terms or []), as_json, tables.composition)
    else:
        run_id = asked.composing(user, terms or [], method, **how)["run_id"]
        with saying(f"composing by {method}") as say:
            made = asked.composed(user, run_id, telling(say))
        tell(made, as_json, tables.made)


def _stopped(found: dict[str, Any]) -> str:
    count = len(found["cancelled"])
    return f"{found['user']}: {count or 'nothing'} in the making{' cancelled' if count else ''}"


@verb("models")
def evaluate(user: User, home: Home = None, as_json: Json = False) -> None:
    """Accuracy of a user's model on its tasks' test rows.

    zero-shot: the base alone; individual: each task's vector alone, as first trained; composed: the
    model. normalized is the mean of composed / individual.
    """
    from jobs.console import tables
    from jobs.console.progress import saying

    with saying("evaluating") as say:
        found = client(home).evaluate(user, telling(say))
    tell(found, as_json, tables.evaluation)


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
    from jobs.console import tables
    from jobs.console.progress import saying

    with saying("asking"):
        found = client(home).query(user, inputs, task)
    tell(found, as_json, lambda f: tables.answers(inputs, f, top))
