"""Exports a user's model as a checkpoint for another library, and a vector for another home.

Other libraries run an ordinary model, theta0 + sum c tau. For linearized vectors that is an
approximation. So its accuracy is measured first, beside the exact one, written into the card and
returned; if too much is lost, the export is refused unless that was accepted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]

from cluster.client.model_card import Card, CardRow, text_of
from cluster.client.places import Place
from cluster.client.vector_card import VectorCard, text_of_vector
from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.methods import answering, head_blobs, judged
from cluster.domain.operations import Exported, ExportedVector
from cluster.domain.reports import VectorStatus
from cluster.domain.status import RunStatus
from cluster.domain.work import Evaluated, TaskAccuracy
from cluster.learner.artifacts import Materials
from tacl.backbone import Backbone, BaseSpec
from tacl.compose.terms import Term, parse_term
from tacl.errors import BadRecipe, Inexact, UnknownTask, UnknownVector
from tacl.heads.head import Head
from tacl.interchange.formats import Format
from tacl.interchange.vector_file import VECTOR
from tacl.interchange.writing import require_writable, write_heads, write_model
from tacl.vectors.vector import TaskVector

if TYPE_CHECKING:
    from cluster.client.client import Client

ACCEPTED_LOSS = 0.02  # of the mean accuracy; 300 test rows cannot tell a smaller difference apart

Say = Callable[[str], None]
Measuring = Callable[[RunStatus], None]


def export(
    client: Client,
    user: str,
    out: str | Path,
    format: Format,
    licence: str | None = None,
    accept: bool = False,
    public: bool = False,
    say: Say | None = None,
    measuring: Measuring | None = None,
) -> Exported:
    """Write the new folder `out`, or push to the repository hf:OWNER/NAME. `say` receives what is
    being done, `measuring` the status of the measurement.

    Raises BadConfig (folder or format), NoComposition, what a hub raises
    (`tacl.interchange.hub`), and Inexact if the ordinary model loses more than ACCEPTED_LOSS
    against the exact one and `accept` is not set.
    """
    settings = client.home.founded()
    require_writable(BaseSpec.parse(settings.base.spec), format)
    place = Place.of(out, public)
    place.require_ready()
    say = say or (lambda line: None)
    say("measuring the model as an ordinary one")
    model, measured, materialized = _measured(client, user, accept, measuring)
    say("writing")
    materials = Materials(client.home, settings.base)
    card = Card(
        model=model,
        format=format,
        base=settings.base,
        licence=licence,
        measured=measured,
        materialized=materialized,
        rows=tuple(
            _row(client, materials, term, measured.per_task[term.vector.task])
            for term in model.terms
        ),
        inputs=_inputs(materials.backbone),
        answering=answering(model) or tuple(head_blobs(model)),
        out=place.name,
        accepted=accept,
    )

    def write(folder: Path) -> None:
        _write(materials, model, format, folder)
        (folder / "README.md").write_text(text_of(card), encoding="utf-8")

    where, files = place.written(write, f"{user}'s model {model.digest[:12]}")
    return Exported(
        user=user,
        out=where,
        format=format,
        digest=model.digest,
        regime=model.terms[0].vector.regime,
        exact=measured.absolute,
        materialized=materialized,
        per_task=measured.per_task,
        files=files,
    )


def export_vector(
    client: Client,
    vector: str,
    out: str | Path,
    licence: str | None = None,
    public: bool = False,
) -> ExportedVector:
    """Write one vector with its head, bit for bit; `vector` is NAME[@ALIAS|@vN], `out` as in
    `export`.

    Raises BadRecipe, also for a sign or a coefficient, UnknownTask, UnknownVector, CorruptBlob, and
    what `export` raises for `out`.
    """
    term, base = parse_term(vector), client.home.founded().base
    if term.coefficient != 1:
        raise BadRecipe(
            f"{vector!r}: a vector is exported as it is, without sign and coefficient; ask for "
            f"{term.vector}"
        )
    found = _vector(client, term)
    place = Place.of(out, public)
    place.require_ready()
    blobs = client.home.blobs()
    file, head_file = blobs.local_path(found.blob), blobs.local_path(found.head_blob)
    digest = TaskVector.load(file).digest  # raises for a damaged file
    head = Head.from_params(load_file(head_file)).narrow()
    task = client.task(found.task)
    first = min(client.vectors(found.task), key=lambda one: one.version)
    card = VectorCard(
        base=base,
        vector=found,
        task=task,
        classes=head.classes,
        imported="imported" in first.config,
        licence=licence,
        out=place.name,
    )

    def write(folder: Path) -> None:
        shutil.copyfile(file, folder / VECTOR)
        write_heads({found.task: head}, folder)
        (folder / "README.md").write_text(text_of_vector(card), encoding="utf-8")

    where, files = place.written(write, found.name)
    return ExportedVector(
        task=found.task, version=found.version, digest=digest, out=where, files=files
    )


def _vector(client: Client, term: Term) -> VectorStatus:
    """The version that a term names. Raises UnknownVector if the task has no such version."""
    version = term.version
    if term.alias is not None:
        version = client.aliases(term.name).aliases.get(term.alias, 0)
    for found in client.vectors(term.name):
        if found.champion if version is None else found.version == version:
            return found
    raise UnknownVector(f"{term.name} has no {term.vector}; `tacl vectors {term.name}` lists them")


def _measured(
    client: Client, user: str, accept: bool, measuring: Measuring | None
) -> tuple[Composition, Evaluated, float]:
    """The model, its accuracies, and their mean as one ordinary model. Raises Inexact, and
    BadRecipe if the model or its heads change meanwhile."""
    model = client.composition(user)
    measured = client.evaluate(user, measuring, materialized=True)
    if client.composition(user) != model:
        raise BadRecipe(f"{user}'s model or its heads became others meanwhile; export again")
    # Exact is the model as it was trained; for ordinary vectors that is the ordinary model.
    rows = (measured.per_task[task] for task in judged(model, measured.per_task))
    materialized = fmean(row.materialized for row in rows if row.materialized is not None)
    exact = measured.absolute
    if exact - materialized > ACCEPTED_LOSS and not accept:
        raise Inexact(
            f"{user}'s model is linearized; as one ordinary model it has a mean accuracy of "
            f"{100 * materialized:.1f} % on the test rows of its tasks, where the exact one has "
            f"{100 * exact:.1f} %. Export it all the same with --accept; or, to lose nothing, "
            "each vector with `tacl export-vector`: programs with TACL add them up exactly"
        )
    return model, measured, materialized


def _write(materials: Materials, model: Composition, format: Format, folder: Path) -> None:
    write_model(materials.backbone, materials.tau(model), format, folder)
    heads = {task: materials.head(blob).narrow() for task, blob in head_blobs(model).items()}
    write_heads(heads, folder, answering(model) or tuple(heads))


def _inputs(backbone: Backbone) -> dict[str, Any]:
    """Preprocessing and pooling, for the card."""
    pooling = getattr(backbone.encoder, "pooling", None)
    return {**backbone.inputs.description(), "pooling": pooling}


def _row(client: Client, materials: Materials, term: RecipeTerm, accuracy: TaskAccuracy) -> CardRow:
    ref = term.vector
    row = CardRow(term, materials.head(ref.head_blob).classes, accuracy)
    try:
        submission = client.task(ref.task).submission
        made = next(v for v in client.vectors(ref.task) if v.version == ref.version)
    except UnknownTask:  # it was removed, and the model keeps working
        return row
    assert submission is not None  # only servers leave it out
    return replace(row, config=made.config, train_rows=submission.train.rows)
