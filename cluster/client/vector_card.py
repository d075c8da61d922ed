"""The card of a vector that goes to other homes: README.md with the metadata that hubs read."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.client.cards import base_name, base_on_hub, fetching, importing, percent, shell
from cluster.client.model_card import made, settings
from cluster.domain.base import Base
from cluster.domain.reports import VectorStatus
from cluster.domain.status import TaskDetail


@dataclass(frozen=True)
class VectorCard:
    base: Base
    vector: VectorStatus
    task: TaskDetail
    classes: tuple[str, ...]
    imported: bool  # whether its first version was imported
    licence: str | None
    out: str  # a folder's name, or hf:OWNER/NAME


def text_of_vector(card: VectorCard) -> str:
    """Markdown; the first block of Python runs in the card's folder."""
    vector, base = card.vector, base_name(card.base)
    parts = [
        f"---\n{_metadata(card)}\n---\n",
        f"# {vector.task}\n",
        f"A task vector: what `{vector.task}` changes in the base model `{base}`, for the "
        f"{vector.regime} model f(x) + J(x)τ, in which vectors are added. It says nothing without "
        "that model.\n",
        _accuracies(card),
        f"## Use\n\nBeside the tasks of another home of this base:\n\n"
        f"{importing(card.out, vector.task)}\n\nIn a program of your own:\n\n"
        f"{fetching(card.out)}```python\n{_snippet(card)}\n```\n",
        f"Classes: {', '.join(card.classes)}\n",
        f"## Made of\n\n- base `{base}`, digest `{card.base.digest}`\n"
        f"- `{vector.name}`, digest `{vector.digest}`, "
        f"{made(vector.parent)}{settings(vector.config)}\n"
        f"- {card.task.rows} training rows\n\nby\n\n{_command(card)}\n\n{_repeating(card)}\n",
        f"## Licence\n\n- of these files: {card.licence or 'unknown: nobody has said'}\n"
        f"- of the base `{base}`: see where it comes from\n- of the data: unknown\n",
    ]
    return "\n".join(parts)


def _metadata(card: VectorCard) -> str:
    from huggingface_hub import ModelCardData

    data = ModelCardData(
        model_name=card.vector.task,
        license=card.licence or "unknown",
        base_model=base_on_hub(card.base),
        tags=["task-vectors"],
    )
    return data.to_yaml()  # pyright: ignore[reportUnknownMemberType]


def _accuracies(card: VectorCard) -> str:
    """Accuracies on validation rows; those of the champion also with the fitted heads."""
    metrics, now = card.vector.metrics, card.task if card.vector.champion else None
    fitted, frozen = now and now.accuracy_fitted, now and now.accuracy_frozen
    rows = {
        f"base model, {card.base.untrained}": metrics.get("validation_zero_shot"),
        "classifier on the frozen base": frozen,
        "with this vector, and the head in `heads.safetensors`": metrics.get("validation_accuracy"),
        "with this vector among those of its home, head fitted again": fitted,
    }
    lines = [f"| {what} | {percent(share)} |" for what, share in rows.items()]
    head = "| accuracy on validation rows, in %, task known | |\n|---|---|\n"
    return f"{head}{chr(10).join(lines)}\n\nTask unknown is of a model: `tacl evaluate` says it.\n"


def _command(card: VectorCard) -> str:
    """The command of the training or import, with all options that were chosen."""
    flags: list[str] = []
    for name, value in card.task.options.model_dump(exclude_defaults=True).items():
        flags += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    if card.task.submission is not None:
        flags += [word for one in card.task.submission.templates for word in ("--template", one)]
    task = card.vector.task
    made_by = ["import", task, "CHECKPOINT"] if card.imported else ["submit", task]
    return shell(["tacl", *made_by, "--data", "DATA", *([] if card.imported else flags)])


def _repeating(card: VectorCard) -> str:
    vector = card.vector
    if vector.parent:
        return (
            f"which made its first version. `tacl refresh {vector.task}` then made "
            f"v{vector.version} of v{vector.parent}, against samples of the tasks that its home "
            "had by then: no command repeats it elsewhere, these files are the vector."
        )
    if card.imported:
        return "with the checkpoint that it was imported from."
    return (
        "among the tasks that its home had then: a training sees samples of theirs, and among "
        "others it gives another vector."
    )


def _snippet(card: VectorCard) -> str:
    text = '"Which text is it?"'
    row = text if card.base.modality == "text" else 'Path("picture.png").read_bytes()'
    name = base_name(card.base)
    where = "" if name == card.base.spec else "  # or where this model is on your machine"
    return f"""import json
from pathlib import Path

import torch
from safetensors import safe_open

import tacl

base = tacl.load("{name}"){where}
vector = tacl.TaskVector.load(Path("vector.safetensors"))
assert vector.base == base.digest  # it belongs to this base model alone
model = tacl.linearize(base)
model.load_tau(vector.to_params())  # or tacl.composed([vector, another], [1.0, 1.0])
with safe_open("heads.safetensors", "pt") as file:
    about = json.loads(file.metadata()["heads"])["{card.vector.task}"]
    weight = file.get_tensor("{card.vector.task}.weight")
head = tacl.Head(weight, about["scale"], tuple(about["classes"]))
with torch.no_grad():
    features, tangent = model(base.collate([base.prepare({row})]))
print(head.classes[int(head.logits(features + tangent).argmax())])"""
