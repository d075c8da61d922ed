"""vectors, interference, compose, evaluate, query: what is made of the vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jobs.verb import Home, Json, User, client, tell, telling, verb


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
        found = client(home).evaluate(user, telling(say))
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
