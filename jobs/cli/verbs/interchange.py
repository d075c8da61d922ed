"""export, import: models for other libraries, and from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from jobs.cli.app import Home, Json, TaskName, User, client, tell, verb


@verb("models")
def export(
    user: User,
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new folder.")],
    format: Annotated[
        Literal["safetensors", "open_clip", "transformers", "timm"],
        typer.Option(help="Of the base's own library, or its bare tensors."),
    ] = "safetensors",
    licence: Annotated[
        str | None, typer.Option(metavar="TEXT", help="For the card.", show_default="unknown")
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Also when accuracy is lost; the card says how much.")
    ] = False,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Write a user's model for another library.

    As one ordinary model, with its heads and a card. For linearized vectors that is an
    approximation: its accuracy on test rows is measured beside the exact one.
    """
    from jobs.console.progress import saying

    with saying("exporting") as say:
        found = client(home).export(user, out, format, licence=licence, accept=accept, progress=say)
    tell(found, as_json, _exported)


@verb("models", name="import")
def import_(
    name: TaskName,
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT",
            help="A fine-tuned model of this home's base: a .safetensors or PyTorch file, a folder "
            "of transformers, open_clip or timm, or the folder of a PEFT LoRA adapter.",
        ),
    ],
    data: Annotated[
        str, typer.Option(metavar="DATA", help="Labelled data of its task, as for `submit`.")
    ],
    input_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", show_default="by type")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", show_default="by type")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B,...", show_default="from the data")
    ] = None,
    refresh: Annotated[
        Literal["never", "on_arrival"],
        typer.Option(help="Refresh its vector when it disturbs other tasks."),
    ] = "never",
    owner: Annotated[str | None, typer.Option(help="Whose task it is.", show_default="you")] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Make a model that was fine-tuned elsewhere a task.

    Its change becomes the task's vector, without training. Here vectors add up in the linearized
    model; what the checkpoint loses by that is measured on validation rows and told.
    """
    from jobs.console.progress import counting, watching

    asked = client(home)
    with counting(f"checking {data}") as progress:
        submitted = asked.import_checkpoint(
            name,
            checkpoint,
            data,
            input_column=input_column,
            label_column=label_column,
            classes=classes.split(",") if classes else None,
            refresh=refresh,
            owner=owner,
            progress=progress,
        )
    with watching() as watch:
        asked.wait(name, progress=lambda status: watch(_only(status, name)))
    tell({**submitted, **_measured(asked.vectors(name))}, as_json, _imported)


def _only(status: dict[str, Any], name: str) -> dict[str, Any]:
    tasks = [task for task in status["tasks"] if task["name"] == name]
    return {**status, "tasks": tasks, "work": []}


def _measured(versions: list[dict[str, Any]]) -> dict[str, Any]:
    first = min(versions, key=lambda one: one["version"])
    return {"state": "ready", "metrics": first["metrics"], "outside": first["config"]["outside"]}


def _exported(found: dict[str, Any]) -> str:
    exact, here = 100 * found["exact"], 100 * found["materialized"]
    lines = [f"wrote {found['out']}: {', '.join(found['files'])}"]
    if found["regime"] == "linearized":
        lines.append(f"an approximation: {here:.1f} % on test rows; the exact model: {exact:.1f} %")
    return "\n".join(lines)


def _imported(found: dict[str, Any]) -> str:
    metrics = found["metrics"]
    shown = {
        "the base alone": "validation_zero_shot",
        "the checkpoint, with this task's head": "validation_checkpoint",
        "its vector, in the linearized model": "validation_accuracy",
    }
    rows = f"{metrics['validation_rows']:.0f} validation rows"
    lines = [f"{found['task']} is ready; accuracy on {rows}, in %:"]
    lines += [f"  {100 * metrics[key]:5.1f}  {what}" for what, key in shown.items()]
    lost = metrics["validation_checkpoint"] - metrics["validation_accuracy"]
    if lost > 0:
        lines.append(
            f"{100 * lost:.1f} points are lost: here vectors add up in the linearized model"
        )
    if found["outside"]:
        lines.append(f"{100 * metrics['outside']:.1f} % of the change is not moved by vectors here")
    return "\n".join([*lines, *found["notes"]])
