"""vectors, alias, interference, compose, evaluate, query, explain: vectors, and models of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jobs import console
from jobs.cli import names
from jobs.cli.app import Client, Told, detachable, run_reporter, verb
from jobs.cli.options import (
    argument,
    composition_options,
    data_options,
    flag,
    number,
    option,
    place,
)
from tacl.errors import BadConfig, BadRecipe, UnknownTask, UnknownVector

if TYPE_CHECKING:
    from cluster.domain.receipts import CancelledCompositions

COMPETE = "the classes of all tasks compete"  # if no task is named


@verb("models")
def vectors(
    client: Client,
    name: Annotated[str | None, argument("[NAME]", "Task; default: all.", names.tasks)] = None,
    compare: Annotated[str | None, option("vN,vM", "Show the differences of two versions.")] = None,
) -> Told:
    """Show all versions of vectors: accuracy, origin, and the tasks they were made against."""
    if compare is None:
        found, base = client.vectors(name), client.base()
        return found, lambda f: console.tables.vectors(f, base.untrained)
    versions = [_version(one.strip()) for one in compare.split(",")]
    if name is None or len(versions) != 2:
        raise BadConfig("name a task and two of its versions: tacl vectors NAME --compare v1,v2")
    return client.compare(name, *versions), console.tables.differences


def _version(text: str) -> int:
    if not re.fullmatch(r"v?[0-9]{1,9}", text):
        raise BadConfig(f"{text!r} is not a version; write v1, v2, ...")
    return int(text.removeprefix("v"))


@verb("models")
def alias(
    client: Client,
    name: Annotated[str, argument("NAME[@ALIAS]", "Task, or one of its aliases.", names.tasks)],
    version: Annotated[
        str | None, argument("[vN]", "Move it to this version; default: show.")
    ] = None,
    expected: Annotated[
        str | None, option("vN", "Move only if the alias is at this version now.", "--from")
    ] = None,
    back: Annotated[bool, flag("--back", "Roll back to the previous version.")] = False,
) -> Told:
    """Show a task's aliases and their history, or move one.

    A bare name in a recipe means its champion. Composed models keep their versions.
    """
    from cluster.domain.tasks import ANY, CHAMPION

    task, _, called = name.partition("@")
    if back and version is not None:
        raise BadConfig("give a version or --back, not both")
    if expected is not None and version is None:
        raise BadConfig("--from goes with a version: tacl alias NAME vN --from vM")
    if back:
        found = client.roll_back(task, called or CHAMPION)
    elif version is not None:
        before = ANY if expected is None else _version(expected)
        found = client.move_alias(task, called or CHAMPION, _version(version), before)
    else:
        found = client.aliases(task)
        if called and called not in found.aliases:
            from cluster.domain.names import no_such

            raise UnknownVector(no_such(f"alias of {task}", called, found.aliases))
        return found, lambda f: console.tables.aliases(f, called)
    return found, lambda f: f"{f.task}@{f.name} is now v{f.version}"


@verb("models")
def interference(
    client: Client,
    name: Annotated[
        str | None,
        argument("[NAME]", "One task and all others; default: the newest tasks.", names.tasks),
    ] = None,
    picture: Annotated[
        Path | None,
        place("FILE.png", "Draw the newest 24 as a heat map there.", show_default="none is drawn"),
    ] = None,
) -> Told:
    """Show the effect of each vector on each task; or of one task's vector, and of others on it.

    Changes of the logits, and tau_jp, on probe rows. Without a name: a row per vector, a column per
    task, of the newest 24, and the pairs of all tasks with the most interference.
    """
    if name is not None and picture is not None:
        raise BadConfig("the heat map is of the matrix: leave the name out, or --picture")
    if name is not None:
        return client.interference_of(name), console.interference.task_interference
    found = console.interference.PlottedInterference(**dict(client.interference()))
    if picture is not None and found.vectors:
        found = found.model_copy(update={"picture": str(console.plots.heat_map(found, picture))})
    return found, console.interference.interference


@verb(
    "models",
    declared=[composition_options, data_options],
    context_settings={"ignore_unknown_options": True},
)
def compose(
    client: Client,
    user: names.User,
    terms: Annotated[
        list[str] | None,
        argument(
            "TERM...",
            "[+|-][COEFFICIENT*]NAME\\[@vN|@ALIAS]: +faces -digits -0.5*signs@v1",
            names.terms,
        ),
    ] = None,
    update: Annotated[
        bool, flag("--update", "Compose the same recipe of the current champions.")
    ] = False,
    cancel: Annotated[bool, flag("--cancel", "Stop the user's composition runs.")] = False,
    **how: Any,
) -> Told:
    """Compose a user's model from vectors.

    Versions are pinned: newer ones are used only once you compose again, or with --update.
    """
    _require_no_flags(terms)
    method = how.pop("method")
    data = {name: value for name, value in how.items() if value is not None}
    if update + cancel + bool(terms) != 1 or (not terms and (data or method != "sum")):
        raise BadRecipe("give the terms of a recipe, or --update the one there is, or --cancel")
    if cancel:
        return client.cancel_compositions(user), _cancelled
    if update:
        return client.update_composition(user), console.tables.composition
    if method == "sum" and not data:
        return client.compose(user, terms or []), console.tables.composition
    run_id = client.start_composition(user, terms or [], method, **data).run_id
    with detachable(), console.progress.saying(f"composing by {method}") as say:
        found = client.wait_composition(user, run_id, run_reporter(say))
    before = client.base().untrained
    return found, lambda f: console.tables.composition_run(f, before)


def _require_no_flags(terms: list[str] | None) -> None:
    """Unknown options arrive as terms, since a term may begin with a minus. Raises BadRecipe."""
    for one in terms or []:
        if one.startswith("--"):
            raise BadRecipe(f"no option is named {one}; --help lists all; a term has one minus")


def _cancelled(found: CancelledCompositions) -> str:
    runs = "run" if len(found.cancelled) == 1 else "runs"
    return f"{found.user}: {len(found.cancelled) or 'no'} composition {runs} cancelled"


@verb("models", context_settings={"ignore_unknown_options": True})
def evaluate(
    client: Client,
    user: names.User,
    terms: Annotated[
        list[str] | None,
        argument("[TERM]...", "A recipe to evaluate; the model stays as it is.", names.terms),
    ] = None,
    classes: Annotated[
        str | None,
        names.of_task(
            "Show all classes of this task, and what each was taken for.", "the worst of all tasks"
        ),
    ] = None,
    materialized: Annotated[
        bool, flag("--materialized", "Also as the one ordinary model that `tacl export` writes.")
    ] = False,
    without: Annotated[
        bool, flag("--without", "Also with each vector left out: what each task owes to it.")
    ] = False,
) -> Told:
    """Evaluate a user's model, or what a recipe would give, on the test rows of its tasks.

    zero-shot: the base model with class names; class means, if it reads none: with the means of
    labelled rows. individual: the first version of the task's own vector, alone, with today's head.
    composed: the user's model. normalised: mean of composed / individual. Means are over the tasks
    that the model adds.

    The classes with the lowest F1 are listed; --classes shows all of a task and, up to 200
    classes, its confusion matrix; --json those of all tasks.
    """
    _require_no_flags(terms)
    if classes is not None:
        _require_task(client, user, terms or [], classes)
    with detachable(), console.progress.saying("evaluating") as say:
        found = client.evaluate(user, run_reporter(say), materialized, without, terms or [])
    before = client.base().untrained
    return found, lambda f: console.evaluations.evaluation(f, before, classes)


def _require_task(client: Client, user: str, terms: list[str], name: str) -> None:
    """Check that it is a task of the recipe, or of the model. Raises UnknownTask."""
    from cluster.domain.methods import head_blobs
    from cluster.domain.names import no_such
    from tacl.compose.terms import parse_recipe

    recipe = [term.name for term in parse_recipe(terms)] if terms else []
    there = recipe or list(head_blobs(client.composition(user)))
    if name not in there:
        raise UnknownTask(no_such(f"task of {user}'s model", name, there))


@verb("models")
def query(
    client: Client,
    user: names.User,
    inputs: Annotated[list[str], argument("INPUT...", "Image files, or texts.")],
    task: Annotated[
        list[str] | None, names.of_task("Answer within this task; repeatable.", COMPETE)
    ] = None,
    top: Annotated[int, number("Classes shown per input, or per task that is named.")] = 3,
) -> Told:
    """Query a user's model: the likeliest task and class of each input, with probabilities.

    All tasks that the model adds compete; one that it subtracts answers only if it is named.
    """
    with console.progress.saying("querying"):
        found = client.query(user, inputs, task)
    return found, lambda f: console.tables.answers(inputs, f, top)


@verb("models")
def explain(
    client: Client,
    user: names.User,
    inputs: Annotated[list[str] | None, argument("[INPUT]...", "Image files, or texts.")] = None,
    task: Annotated[
        str | None, names.of_task("Explain the answer within this task.", COMPETE)
    ] = None,
    top: Annotated[int, number("Classes whose logits are taken apart, the likeliest first.")] = 1,
) -> Told:
    """Explain answers: what each vector of a user's model adds, and what is answered without it.

    Without an input: which vector helps and which harms which task, in points of accuracy on the
    test rows.
    """
    if inputs:
        with console.progress.saying("explaining"):
            found = client.explain(user, inputs, task)
        return found, lambda f: console.explanations.explanations(inputs, f, top)
    if task is not None or top > 1:
        raise BadConfig("--task and --top need an input; give one, or leave them out")
    with detachable(), console.progress.saying("evaluating without each vector") as say:
        measured = client.evaluate(user, run_reporter(say), without=True)
    return measured, console.explanations.left_out
