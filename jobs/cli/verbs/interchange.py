"""export, import: models for other libraries, and from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from jobs.cli.app import (
    Classes,
    Client,
    InputColumn,
    LabelColumn,
    Owner,
    TaskName,
    Told,
    User,
    class_names,
    verb,
)
from jobs.cli.options import data_options

if TYPE_CHECKING:
    from cluster.domain.operations import Exported, Imported
    from cluster.domain.reports import VectorStatus
    from cluster.domain.status import ClusterStatus


@verb("models")
def export(
    asked: Client,
    user: User,
    out: Annotated[Path, typer.Option(metavar="DIR", help="New directory to write to.")],
    format: Annotated[
        Literal["safetensors", "open_clip", "transformers", "timm"],
        typer.Option(help="Library of the base model, or plain tensors."),
    ] = "safetensors",
    licence: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Licence for the model card.", show_default="unknown"),
    ] = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept", help="Write it even if accuracy is lost; the model card says how much."
        ),
    ] = False,
) -> Told:
    """Write a user's model for another library.

    It becomes one ordinary model, with heads and a model card. For linearized vectors that is an
    approximation: its accuracy on test rows is measured against the exact model's.
    """
    from jobs.console.progress import saying

    with saying("exporting") as say:
        found = asked.export(user, out, format, licence=licence, accept=accept, progress=say)
    return found, _exported


@verb("models", name="import", declared=data_options)
def import_(
    asked: Client,
    name: TaskName,
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT",
            help="A fine-tuned checkpoint of this home's base model: a .safetensors or PyTorch "
            "file, a directory of transformers, open_clip or timm, or of a PEFT LoRA adapter.",
        ),
    ],
    data: Annotated[
        str, typer.Option(metavar="DATA", help="Labelled data of the task, as for `submit`.")
    ],
    input_column: InputColumn = None,
    label_column: LabelColumn = None,
    classes: Classes = None,
    refresh: Annotated[
        Literal["never", "on_arrival"],
        typer.Option(help="Refresh its vector when it interferes with other tasks."),
    ] = "never",
    owner: Owner = None,
    **options: Any,
) -> Told:
    """Import a fine-tuned checkpoint as a task.

    Its difference from the base model becomes the task vector, without training. Vectors add up in
    the linearized model; the accuracy lost by that is measured on validation rows and reported.
    """
    from jobs.console.progress import counting, watching

    with counting(f"checking {data}") as progress:
        submitted = asked.import_checkpoint(
            name,
            checkpoint,
            data,
            input_column=input_column,
            label_column=label_column,
            classes=class_names(classes),
            refresh=refresh,
            owner=owner,
            progress=progress,
            **options,
        )
    with watching() as watch:
        asked.wait(name, progress=lambda status: watch(_only(status, name)))
    vector = min(asked.vectors(name), key=lambda one: one.version)
    measured = {"metrics": vector.metrics, "outside": vector.config["outside"]}
    found = dict(submitted) | {"state": "ready"} | measured
    return found, lambda _: _imported(submitted, vector)


def _only(status: ClusterStatus, name: str) -> ClusterStatus:
    tasks = tuple(task for task in status.tasks if task.name == name)
    return status.model_copy(update={"tasks": tasks, "work": ()})


def _exported(found: Exported) -> str:
    exact, here = 100 * found.exact, 100 * found.materialized
    lines = [f"wrote {found.out}: {', '.join(found.files)}"]
    if found.regime == "linearized":
        lines.append(f"an approximation: {here:.1f} % on test rows; the exact model: {exact:.1f} %")
    return "\n".join(lines)


def _imported(task: Imported, vector: VectorStatus) -> str:
    metrics = vector.metrics
    shown = {
        "base model": "validation_zero_shot",
        "checkpoint, with this task's head": "validation_checkpoint",
        "its vector, in the linearized model": "validation_accuracy",
    }
    rows = f"{metrics['validation_rows']:.0f} validation rows"
    lines = [f"{task.task} is ready; accuracy on {rows}, in %:"]
    lines += [f"  {100 * metrics[key]:5.1f}  {what}" for what, key in shown.items()]
    lost = metrics["validation_checkpoint"] - metrics["validation_accuracy"]
    if lost > 0:
        lines.append(f"{100 * lost:.1f} points are lost by the linearization")
    if vector.config["outside"]:
        share = 100 * metrics["outside"]
        lines.append(f"{share:.1f} % of the change is in parameters that vectors do not change")
    return "\n".join([*lines, *task.notes])
