"""The model card of an exported model: README.md with the metadata that model hubs read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.client.cards import base_name, base_on_hub, fetching, importing, percent, shell
from cluster.domain.base import Base
from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.work import Evaluated, TaskAccuracy

POOLINGS = {  # of tokens [B, L, D] and their mask [B, L, 1]
    "mean": "(tokens * mask).sum(1) / mask.sum(1)",
    "cls": "tokens[:, 0]",
    "last": "tokens[torch.arange(len(tokens)), mask[:, :, 0].sum(1) - 1]",
}


@dataclass(frozen=True)
class CardRow:
    """One term of the recipe; `accuracy` as in `tacl evaluate` for its task. `config` and
    `train_rows` are missing if the task was removed."""

    term: RecipeTerm
    classes: tuple[str, ...]
    accuracy: TaskAccuracy
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    train_rows: int | None = None

    @property
    def task(self) -> str:
        return self.term.vector.task


@dataclass(frozen=True)
class Card:
    model: Composition
    format: str
    base: Base
    licence: str | None
    measured: Evaluated  # the model as it was trained
    materialized: float  # mean accuracy of these files
    rows: tuple[CardRow, ...]
    inputs: Mapping[str, Any]  # preprocessing
    answering: tuple[str, ...]  # tasks that an input may be of
    out: str  # a folder's name, or hf:OWNER/NAME
    accepted: bool = False  # whether the loss as one ordinary model was accepted


def text_of(card: Card) -> str:
    """Markdown; the first block of Python runs in the card's folder."""
    base = base_name(card.base)
    parts = [
        f"---\n{_metadata(card)}\n---\n",
        f"# {card.model.user}\n",
        f"A base model, `{base}`, moved by {_count(card)}: {_how(card)}.\n",
        _tasks(card),
        _unnamed(card),
        _exactness(card),
        f"## Use\n\n{fetching(card.out)}```python\n{_snippet(card)}\n```\n",
        f"As one task of another home of this base:\n\n{importing(card.out, card.model.user)}\n",
        _heads(card),
        _origin(card),
        _licence(card),
    ]
    return "\n".join(parts)


def _how(card: Card) -> str:
    method = card.model.method
    return "θ0 + Σ c τ" if method == "sum" else f"θ0 + τ, which {method} made of them"


def _count(card: Card) -> str:
    return "one task vector" if len(card.rows) == 1 else f"{len(card.rows)} task vectors"


def _metadata(card: Card) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type=f"{card.base.modality}-classification",
            dataset_type=task,
            dataset_name=task,
            dataset_split="test",
            metric_type="accuracy",
            metric_value=round(one.materialized, 4),
        )
        for task, one in _measured(card).items()
        if one.materialized is not None
    ]
    data = ModelCardData(
        model_name=card.model.user,
        license=card.licence or "unknown",
        base_model=base_on_hub(card.base),
        library_name=None if card.format == "safetensors" else card.format,
        tags=["task-vectors", "model-merging"],
        eval_results=results,
    )
    return data.to_yaml()  # pyright: ignore[reportUnknownMemberType]


def _measured(card: Card) -> dict[str, TaskAccuracy]:
    """Accuracies by task on its test rows; for the task that a model was fitted to, on the held-out
    rows."""
    found, target = {row.task: row.accuracy for row in card.rows}, card.model.target
    if target is not None and target.name in card.measured.per_task:
        found[target.name] = card.measured.per_task[target.name]
    return found


def _tasks(card: Card) -> str:
    head = (
        f"| task | classes | coefficient | {card.base.untrained} | its own vector | exact model | "
        "these files | test rows |\n|---|---|---|---|---|---|---|---|\n"
    )
    target = card.model.target
    known = {row.task: f"{len(row.classes)} | {_coefficients(card, row.task)}" for row in card.rows}
    known |= {target.name: f"{len(target.classes)} | fitted"} if target else {}
    lines = list[str]()
    for task, one in _measured(card).items():
        shares = one.zero_shot, one.individual, one.composed, one.materialized
        lines.append(_line(task, known[task], *map(percent, shares), f"{one.rows or 0:.0f}"))
    is_judged = target is not None and target.name in card.measured.per_task
    of = f" of {target.name}, which it answers" if target and is_judged else ""
    both = f"{percent(card.measured.absolute)} | {percent(card.materialized)}"
    mean = f"| mean{of} | | | | | {both} | |"
    return f"{head}{chr(10).join([*lines, mean])}\n\nAccuracies in %, each task with its own head."


def _line(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def _coefficients(card: Card, task: str) -> str:
    """Those of all versions of the task's vector that the model adds."""
    terms = [row.term for row in card.rows if row.task == task]
    if len(terms) == 1:
        return _coefficient(terms[0])
    return ", ".join(f"{_coefficient(term)} (v{term.vector.version})" for term in terms)


def _coefficient(term: RecipeTerm) -> str:
    if term.by_block is None:
        return f"{term.coefficient:g}"
    values = [*term.by_block.values()] or [0.0]
    return f"{min(values):.3g} to {max(values):.3g}, by block"


def _unnamed(card: Card) -> str:
    """Accuracies with the task known and unknown, and those of a classifier on the frozen base."""
    found = card.measured
    base = "a classifier on the frozen base, fitted on the same rows"
    lines = [
        _line("these files", percent(card.materialized), percent(found.materialized_unknown)),
        _line("exact model", percent(found.absolute), percent(found.unknown)),
        _line(base, percent(found.frozen_known), percent(found.frozen_unknown)),
    ]
    head = "\nMeans over the tasks, in %:\n\n| | task known | task unknown |\n|---|---|---|\n"
    return f"{head}{chr(10).join(lines)}\n"


def _exactness(card: Card) -> str:
    if card.rows[0].term.vector.regime == "ordinary":
        return "\nThe vectors are of ordinary fine-tuning: these files are the exact model.\n"
    return (
        "\n**These files are an approximation.** The vectors were trained in the linearized model "
        "f(x; θ0) + J(x) τ, which other libraries do not run; here is f(x; θ0 + τ). Its mean "
        f"accuracy above is {percent(card.materialized)} %, and that of the exact "
        f"model {percent(card.measured.absolute)} %.\n"
    )


# -- how to use it


LOADED = {  # code by format, for formats whose code depends on nothing else
    "open_clip": """import json
import open_clip
import torch
from PIL import Image
from safetensors import safe_open

model, _, preprocess = open_clip.create_model_and_transforms("local-dir:./")
with torch.no_grad():
    features = model.eval().encode_image(preprocess(Image.open("picture.png")).unsqueeze(0))
""",
    "timm": """import json
import timm
import torch
from PIL import Image
from safetensors import safe_open

model = timm.create_model("local-dir:./", pretrained=True).eval()
settings = timm.data.resolve_model_data_config(model)
preprocess = timm.data.create_transform(**settings, is_training=False)
with torch.no_grad():
    features = model(preprocess(Image.open("picture.png").convert("RGB")).unsqueeze(0))
""",
    "safetensors": """from safetensors.torch import load_file

tensors = load_file("model.safetensors")  # named as in the library's own model of the base
print(len(tensors))""",
}


def _snippet(card: Card) -> str:
    load = LOADED.get(card.format) or _transformers(card)
    return load if card.format == "safetensors" else load + _classify(card)


def _classify(card: Card) -> str:
    return f"""
tasks = {json.dumps(card.answering)}  # one of these; name a single one to ask within it
unit = torch.nn.functional.normalize(features, dim=-1)
with safe_open("heads.safetensors", "pt") as file:
    heads = json.loads(file.metadata()["heads"])
    logits = [heads[t]["scale"] * unit @ file.get_tensor(f"{{t}}.weight").T for t in tasks]
chances = torch.cat(logits, -1)[0].softmax(-1)
columns = [(task, name) for task in tasks for name in heads[task]["classes"]]
print(*columns[chances.argmax()], round(chances.max().item(), 4))"""


def _transformers(card: Card) -> str:
    return f"""import json
import torch
from safetensors import safe_open
from transformers import AutoModel, AutoTokenizer

model, tokenizer = AutoModel.from_pretrained("./").eval(), AutoTokenizer.from_pretrained("./")
settings = {{"padding": True, "truncation": True, "max_length": {card.inputs["size"]}}}
batch = tokenizer(["Which text is it?"], return_tensors="pt", **settings)
mask = batch["attention_mask"].unsqueeze(-1)
with torch.no_grad():
    tokens = model(input_ids=batch["input_ids"], attention_mask=mask[:, :, 0]).last_hidden_state
features = {POOLINGS[str(card.inputs["pooling"])]}
"""


def _heads(card: Card) -> str:
    classes = {row.task: ", ".join(row.classes) for row in card.rows}
    shown = "\n".join(f"- {task}: {names}" for task, names in classes.items())
    return (
        "`heads.safetensors` holds a matrix for every task, `TASK.weight` [classes, D], and "
        "classes and scales s as JSON in its metadata; logits are s · W f / |f|.\n\n"
        f"Classes:\n\n{shown}\n"
    )


# -- where it comes from


def _origin(card: Card) -> str:
    lines = list[str]()
    for row in card.rows:
        ref, rows = row.term.vector, row.train_rows
        of = "of a task that was removed" if rows is None else f"from {rows} training rows"
        about = f"- `{ref.name}`, digest `{ref.digest}`, {made(ref.parent)}, {of}"
        lines.append(about + settings(row.config))
    return (
        "## Made of\n\n"
        f"- base `{base_name(card.base)}`, digest `{card.base.digest}`\n"
        f"{chr(10).join(lines)}\n- recipe, digest `{card.model.digest}`\n\n"
        f"by\n\n{_commands(card)}\n\n{_repeating(card)}\n"
    )


def _commands(card: Card) -> str:
    """The commands that make the model again. A factor that a grid found is already in the
    coefficients: their plain sum is the model, unless the grid was fitted to a new task, whose head
    a sum does not have."""
    method, target = card.model.method, card.model.target
    is_sum = method == "sum" or (method == "grid" and target is None)
    how = [] if is_sum else ["--method", method]
    terms = [str(row.term) for row in card.rows]
    out = ["--out", card.out, "--format", card.format]
    out += ["--licence", card.licence] if card.licence else []
    out += ["--accept"] if card.accepted else []
    return shell(
        ["tacl", "compose", card.model.user, *terms, *how],
        ["tacl", "export", card.model.user, *out],
    )


def _repeating(card: Card) -> str:
    """What the commands need to make the same model again."""
    parts = [
        "in the home of these versions. Elsewhere the same task becomes another vector, since a "
        "training and a refresh see samples of the tasks that are there then; "
        "`tacl export-vector` takes a version along as it is."
    ]
    learned, target = any(row.term.by_block is not None for row in card.rows), card.model.target
    if learned or target is not None:
        what = f"The head of {target.name} is" if target else ""
        if learned:
            what = f"The coefficients, which {card.model.method} learned for each block, are"
        parts.append(
            f"{what} found again only with the --fit or --adapt rows, --shots, --classes and "
            "--select that were given, which are not kept."
        )
    return " ".join(parts)


def made(parent: int | None) -> str:
    """How a version of a vector came about."""
    return f"refreshed from v{parent}" if parent else "as first made"


def settings(config: Mapping[str, object]) -> str:
    if config.get("imported"):
        return "; imported from a checkpoint"
    shown = [f"{key} {config[key]}" for key in ("penalty", "steps", "seed") if key in config]
    return f"; {', '.join(shown)}" if shown else ""


def _licence(card: Card) -> str:
    said = card.licence or "unknown: nobody has said"
    return (
        f"## Licence\n\n- of these files: {said}\n"
        f"- of the base `{base_name(card.base)}`: see where it comes from\n"
        + "\n".join(f"- of the data of {row.task}: unknown" for row in card.rows)
    ) + "\n"
