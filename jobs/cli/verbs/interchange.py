"""export, import: models and vectors to and from other libraries and homes, in folders or a hub."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from jobs import console
from jobs.cli import app as cli
from jobs.cli import asking, names
from jobs.cli.options import argument, data_options, flag, import_options, option
from tacl.interchange.formats import Format

if TYPE_CHECKING:
    from cluster.domain.operations import Exported, Imported
    from cluster.domain.reports import VectorStatus


Out = Annotated[
    str,
    option(
        "PLACE",
        "New directory to write to, or hf:OWNER/NAME, a repository of a hub; it needs your "
        "token there (HF_TOKEN, or `hf auth login`).",
    ),
]
Licence = Annotated[
    str | None, option("TEXT", "Licence for the model card.", show_default="unknown")
]
Public = Annotated[bool, flag("--public", "Let everybody read the repository on the hub.")]


@cli.verb("models")
def export(
    client: cli.Client,
    user: names.User,
    out: Out,
    format: Annotated[
        Format,
        typer.Option(help="Library of the base model, or plain tensors."),
    ] = "safetensors",
    licence: Licence = None,
    accept: Annotated[
        bool,
        flag("--accept", "Write it though over 2 points of accuracy are lost; the card tells."),
    ] = False,
    public: Public = False,
) -> cli.Told:
    """Write a user's model for another library.

    It becomes one ordinary model, with heads and a model card. For linearized vectors that is an
    approximation: its accuracy on test rows is measured against the exact model's.
    """
    with console.progress.saying("exporting") as say:
        how = {"licence": licence, "accept": accept, "public": public, "progress": say}
        found = client.export(user, out, format, measuring=cli.run_reporter(say), **how)
    return found, _exported


@cli.verb("models")
def export_vector(
    client: cli.Client,
    vector: Annotated[str, argument("VECTOR", "The vector, NAME\\[@ALIAS|@vN].", names.tasks)],
    out: Out,
    licence: Licence = None,
    public: Public = False,
) -> cli.Told:
    """Write a task's vector, for another home of this base.

    With its head and a model card; `tacl import` reads it, bit for bit.
    """
    with console.progress.saying(f"writing {vector}"):
        found = client.export_vector(vector, out, licence=licence, public=public)
    return found, lambda f: f"wrote {f.out}: {', '.join(f.files)}"


@cli.verb("models", name="import", declared=[data_options, import_options])
def import_(
    client: cli.Client,
    name: names.TaskName,
    checkpoint: Annotated[
        str,
        argument(
            "CHECKPOINT",
            "A fine-tuned checkpoint of this home's base model: a .safetensors or PyTorch "
            "file, a directory of transformers, open_clip or timm, or of a PEFT LoRA adapter; a "
            "vector of another home; or hf:OWNER/NAME\\[@REVISION] of a hub, safetensors only.",
        ),
    ],
    data: Annotated[str, option("DATA", "Labelled data of the task, as for `submit`.")],
    refresh: Annotated[
        Literal["never", "on_arrival"],
        typer.Option(help="Refresh its vector when it interferes with other tasks."),
    ] = "never",
    share: Annotated[
        Literal["samples", "none"],
        typer.Option(help="What training runs of other tasks see of this task's inputs."),
    ] = "samples",
    template: cli.Prompts = None,
    owner: cli.Owner = None,
    private: cli.Private = False,
    again: asking.Again = False,
    **options: Any,
) -> cli.Told:
    """Import a fine-tuned checkpoint as a task.

    Its difference from the base model becomes the task vector, without training. Vectors add up in
    the linearized model; the accuracy lost by that is measured on validation rows and reported.
    """
    from cluster.domain.names import namespace
    from cluster.domain.operations import ReadyImport
    from cluster.domain.status import TaskState

    with console.progress.counting(f"checking {data}") as progress:
        submitted = client.import_checkpoint(
            name,
            checkpoint,
            data,
            refresh=refresh,
            share=share,
            templates=template or (),
            owner=owner,
            private=private,
            progress=progress,
            again=again or partial(asking.asked_again, progress),
            **options,
        )
    if private and (whose := namespace(name)) != client.user:  # the importing user sees no more
        return submitted, lambda s: f"{s.task}: only {whose} can see more"
    with cli.detachable(), console.progress.watching() as watch:
        client.wait(name, progress=watch)
    vector = min(client.vectors(name), key=lambda one: one.version)
    ready = {"metrics": vector.metrics, "outside": vector.config["outside"]}
    found = ReadyImport.model_validate({**dict(submitted), "state": TaskState.READY, **ready})
    return found, lambda _: _imported(submitted, vector)


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
    lines += [
        f"  {100 * metrics[key]:5.1f}  {what}" for what, key in shown.items() if key in metrics
    ]
    lost = metrics.get("validation_checkpoint", 0.0) - metrics["validation_accuracy"]
    if lost > 0:
        lines.append(f"{100 * lost:.1f} points are lost by the linearization")
    if vector.config["outside"]:
        share = 100 * metrics["outside"]
        lines.append(f"{share:.1f} % of the change is in parameters that vectors do not change")
    return "\n".join([*lines, *task.notes])
