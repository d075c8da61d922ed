"""Checks submissions and results before anything is recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import closing

from cluster.coordinator.recovery import cells_of
from cluster.domain import work as orders
from cluster.domain.base import Base
from cluster.domain.compositions import CompositionMethod, Fitted
from cluster.domain.names import checked_task
from cluster.domain.outcomes import Finished, Gone, Outcome, Raised
from cluster.domain.tasks import Pair, Submission, VectorRef
from cluster.registry import Found, Registry
from cluster.scheduler.queue import describe, needs_of, placeable, resources
from cluster.scheduler.state import Effect, MatrixCell, Node, Row
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home
from cluster.storage.listed import listed_tasks
from tacl.errors import (
    BadConfig,
    CorruptBlob,
    EmptySplit,
    ModalityMismatch,
    NameTaken,
    NotPlaceable,
    TooFewClasses,
)

RESULTS = {
    "train": orders.Trained,
    "refresh": orders.Refreshed,
    "measure": orders.Measured,
    "fit": Fitted,
    "evaluate": orders.Evaluated,
    "compose": orders.Composed,
}


def require_startable(home: Home) -> None:
    """Raises, before a coordinator is started, what would keep every one from starting.

    BadConfig for a registry of another version, BaseMismatch for one of another base.
    """
    settings = home.founded()
    with closing(Registry(home.registry_url)) as registry:
        registry.founded(settings.base, settings.generic)


# -- submissions


def require_sound(
    submission: Submission, base: Base, taken: Iterable[str], blobs: Blobs, nodes: tuple[Node, ...]
) -> None:
    """Raises what is wrong with a submission: BadName, NameTaken, ModalityMismatch, TooFewClasses,
    EmptySplit, CorruptBlob, NotPlaceable."""
    name = checked_task(submission.name, submission.owner, submission.private)
    if name in taken:
        raise NameTaken(f"there is a task {name} already; submit under another name")
    if submission.modality != base.modality:
        raise ModalityMismatch(
            f"{name} is a task on {submission.modality}s, and the base {base.spec} of "
            f"this home reads {base.modality}s; use a home with another base"
        )
    if len(set(submission.classes)) < 2:
        raise TooFewClasses(f"{name} has the classes {submission.classes}; two are needed")
    _require_rows(submission, blobs)
    needs = needs_of("train", submission.options)
    if not placeable(nodes, needs):
        raise NotPlaceable(
            f"{name} asks for {resources(needs)}; {describe(nodes)}. Ask for less with "
            "--workers, --cpus-per-worker and --gpus-per-worker, add nodes, or let `tacl serve` "
            "have less"
        )


def _require_rows(submission: Submission, blobs: Blobs) -> None:
    for part, blob in submission.parts.items():
        if blob.rows < 1:
            raise EmptySplit(f"the {part} rows of {submission.name} are empty; give more rows")
        if not blobs.exists(blob.digest):
            raise CorruptBlob(
                f"the {part} rows of {submission.name} are not in the blob store: there is no "
                f"{blob.digest}. Submit again."
            )
    if submission.vector_blob is not None and not blobs.exists(submission.vector_blob):
        raise CorruptBlob(f"the vector of {submission.name} is not in the blob store; import again")


def require_given(making: CompositionMethod, base: Base, blobs: Blobs) -> None:
    """Check that the rows that a composition is to learn from exist, and that classes can have a
    head. Raises BadConfig, TooFewClasses, EmptySplit, CorruptBlob."""
    for blob in making.rows:
        if blob.rows < 1:
            raise EmptySplit("there are no rows to learn the composition from; give some")
        if not blobs.exists(blob.digest):
            raise CorruptBlob(
                f"the rows to learn from are not in the blob store: there is no {blob.digest}. "
                "Compose again."
            )
    new = making.fit or making.adapt
    if new and (new.classes or making.fit) and len(set(new.classes)) < 2:
        raise TooFewClasses(f"the new task has the classes {new.classes}; two are needed")
    if making.adapt and making.adapt.classes and base.head_kind == "prototype":
        raise BadConfig(
            f"the base {base.spec} makes the head of a task from labelled rows, not from the names "
            "of its classes; give labelled rows (--fit), or adapt without --classes to the tasks "
            "of the recipe"
        )


# -- results


def checked(work: orders.Work, outcome: Finished, blobs: Blobs) -> Outcome:
    """The outcome if its result is what was requested and its blobs are whole; else an error."""
    result = outcome.result
    if not isinstance(result, RESULTS[work.kind]):
        return Raised(f"a {work.kind} was answered with {type(result).__name__}")
    if isinstance(result, orders.Trained | orders.Refreshed) and not _is_finite(result):
        return Raised(
            "what its vector is, or does to inputs, is no finite number. A training diverged: "
            "submit it with a smaller --learning-rate; of an import, give another checkpoint"
        )
    if isinstance(work, orders.MeasureWork) and set(cells_of(work)) - values_of(result).keys():
        return Raised("not every pair was measured")
    if isinstance(work, orders.FitWork) and isinstance(result, Fitted):
        asked = [(one.vector.task, one.vector.digest) for one in listed_tasks(blobs, work.listed)]
        if asked != [(head.task, head.vector) for head in result.heads]:
            return Raised("heads were fitted of other vectors than were asked for")
    if isinstance(result, orders.Refreshed) and result.accepted and result.vector_blob is None:
        return Raised("a refresh was accepted and brought no vector")
    if isinstance(result, orders.Composed) and _is_foreign(work, result):
        return Raised("a composition was made of other vectors than it was asked for")
    files = {*blobs_of(result)}
    try:
        blobs.verify_all(files)
    except CorruptBlob as error:
        # One that was stored before may have been deleted since, as a file of nobody's model.
        return Raised(str(error)) if blobs.existing(files) == files else Gone(str(error))
    return outcome


def _is_finite(result: orders.Trained | orders.Refreshed) -> bool:
    """Of a refresh that kept the old vector the metrics may be infinite: it may have diverged."""
    told = [one for pair in result.pairs for one in (pair.tau_jp, pair.logits or 0.0)]
    if isinstance(result, orders.Trained) or result.accepted:
        told += [result.norm or 0.0, *result.metrics.values()]
    return all(map(math.isfinite, told))


def effect(pair: Pair | Found) -> Effect:
    return Effect(pair.tau_jp, pair.logits)


def row_of(pairs: Iterable[Pair | Found]) -> Row:
    """The effects that were measured of one vector."""
    return {(one.on, one.shard_digest, one.head): effect(one) for one in pairs}


def values_of(result: orders.Result) -> dict[MatrixCell, Effect]:
    """The cells of the matrix that a result has measured."""
    pairs = getattr(result, "pairs", ())
    return {
        MatrixCell(p.task, p.vector_digest, p.on, p.shard_digest, p.head): effect(p) for p in pairs
    }


def blobs_of(result: orders.Result) -> list[str]:
    """The digests that a result says are in the blob store."""
    named = [getattr(result, name, None) for name in ("vector_blob", "head_blob")]
    if isinstance(result, orders.Composed):
        named = [result.merged and result.merged.blob, result.target and result.target.head_blob]
    fitted = result.fitted if isinstance(result, orders.Composed) else result
    if isinstance(fitted, Fitted):
        named += [blob for one in fitted.heads for blob in (one.head, one.frozen)]
        named.append(fitted.novelty)
    return [digest for digest in named if digest is not None]


def _is_foreign(work: orders.Work, result: orders.Composed) -> bool:
    asked = work.terms if isinstance(work, orders.ComposeWork) else ()
    return [term.vector for term in asked] != [term.vector for term in result.terms]


# -- what was accepted before


def missing_files(vectors: Iterable[VectorRef], blobs: Blobs) -> dict[str, str]:
    """By the name of a vector whose file is missing, the digest of that file."""
    wanted = [(ref.name, digest) for ref in vectors for digest in (ref.blob, ref.head_blob)]
    there = blobs.existing({digest for _, digest in wanted})
    return {name: digest for name, digest in wanted if digest not in there}
