"""A user's model as a checkpoint for another library: measured first, then written whole.

Other libraries run an ordinary model, theta0 + sum c tau. For linearized vectors that is an
approximation: its accuracy is measured beside the exact one, written into the card and told; when
too much is lost the export is refused unless that was accepted.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cluster.client.model_card import Card, Row, text_of
from cluster.domain.compositions import Composition
from cluster.domain.methods import answering, head_blobs
from cluster.domain.operations import Exported
from cluster.domain.work import Evaluated
from cluster.learner.artifacts import Materials
from tacl.backbone import Backbone, BaseSpec
from tacl.errors import BadConfig, BadRecipe, ClusterNotRunning, Inexact
from tacl.interchange import Format, require_writable, write_heads, write_model

if TYPE_CHECKING:
    from cluster.client.client import Client

ACCEPTED_LOSS = 0.02  # of the mean accuracy; a test set of 300 rows tells less apart

Say = Callable[[str], None]


def export(
    client: Client,
    user: str,
    out: Path,
    format: str,
    licence: str | None = None,
    accept: bool = False,
    say: Say | None = None,
) -> Exported:
    """Writes the new folder `out`.

    Raises BadConfig (folder or format), NoComposition, and Inexact when the ordinary model loses
    more than ACCEPTED_LOSS against the exact one and `accept` is not set.
    """
    settings = client.home.settings()
    if settings is None:
        raise ClusterNotRunning(f"{client.home.path} is no home yet; run `tacl up` first")
    require_writable(BaseSpec.parse(settings.base.spec), format)
    _require_new(out)
    say = say or (lambda line: None)
    model = client.composition(user)
    say("measuring the model as an ordinary one")
    measured = client.evaluate(user, materialized=True)
    if client.composition(user) != model:
        raise BadRecipe(f"{user}'s model or its heads became others meanwhile; export again")
    # Exact is the model as it was trained; for ordinary vectors that is the ordinary model.
    exact, shares = measured.absolute, [row["materialized"] for row in measured.per_task.values()]
    materialized = sum(shares) / len(shares)
    _require_faithful(user, exact, materialized, accept)
    say("writing")
    materials = Materials(client.home, settings.base)
    with _whole(out) as folder:
        _write(materials, model, cast(Format, format), folder)
        rows = _rows(client, model, measured)
        card = Card(
            user=user,
            format=format,
            base=settings.base,
            licence=licence,
            regime=model.terms[0].vector.regime,
            digest=model.digest,
            exact=exact,
            materialized=materialized,
            rows=rows,
            inputs=_inputs(materials.backbone),
            answering=answering(model) or tuple(head_blobs(model)),
            method=model.method,
        )
        (folder / "README.md").write_text(text_of(card), encoding="utf-8")
        files = sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())
    return Exported(
        user=user,
        out=str(out),
        format=format,
        digest=card.digest,
        regime=card.regime,
        exact=exact,
        materialized=materialized,
        per_task=measured.per_task,
        files=tuple(files),
    )


def _require_new(out: Path) -> None:
    if out.exists():
        raise BadConfig(f"{out.absolute()} exists; name a new folder")
    if not out.absolute().parent.is_dir():
        raise BadConfig(f"{out.absolute().parent} is no folder; make it, or name another")


def _require_faithful(user: str, exact: float, materialized: float, accept: bool) -> None:
    if exact - materialized > ACCEPTED_LOSS and not accept:
        raise Inexact(
            f"{user}'s model is linearized; as one ordinary model it has a mean accuracy of "
            f"{100 * materialized:.1f} % on the test rows of its tasks, where the exact one has "
            f"{100 * exact:.1f} %. Smaller coefficients lose less; to export it all the same, say "
            "--accept"
        )


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place when all is written."""
    beside = out.absolute().parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    beside.mkdir()
    try:
        yield beside
        os.rename(beside, out)
    except BaseException:
        shutil.rmtree(beside)
        raise


def _write(materials: Materials, model: Composition, format: Format, folder: Path) -> None:
    write_model(materials.backbone, materials.tau(model), format, folder)
    heads = {task: materials.head(blob).narrow() for task, blob in head_blobs(model).items()}
    write_heads(heads, folder)


def _inputs(backbone: Backbone) -> dict[str, Any]:
    """What the card says about preprocessing."""
    pooling = getattr(backbone.encoder, "pooling", None)
    return {**backbone.inputs.description(), "pooling": pooling}


def _rows(client: Client, model: Composition, measured: Evaluated) -> tuple[Row, ...]:
    rows = []
    for term in model.terms:
        ref = term.vector
        submission = client.task(ref.task).submission
        assert submission is not None  # on its own machine it is told
        made = next(v for v in client.vectors(ref.task) if v.version == ref.version)
        rows.append(
            Row(
                task=ref.task,
                classes=submission.classes,
                coefficient=term.coefficient,
                vector=made.name,
                digest=ref.digest,
                config=made.config,
                train_rows=submission.train.rows,
                accuracy=measured.per_task[ref.task],
            )
        )
    return tuple(rows)
