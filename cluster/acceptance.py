"""What the coordinator takes in: submissions and results, checked before anything is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.blobs import Blobs
from cluster.home import Home
from cluster.launcher import Finished, Outcome, Raised
from cluster.messages import (
    Base,
    BlobRef,
    Evaluated,
    Measured,
    MeasureWork,
    Refreshed,
    Result,
    Submission,
    Trained,
    VectorRef,
    Work,
)
from cluster.names import checked_name
from cluster.recovery import cells_of
from cluster.registry import Registry
from cluster.room import describe, needs_of, placeable, resources
from cluster.state import Cell, Node
from tacl.errors import (
    ClusterNotRunning,
    CorruptBlob,
    EmptySplit,
    ModalityMismatch,
    NameTaken,
    NotPlaceable,
    TooFewClasses,
)

PARTS = ("train", "validation", "test", "shard")  # of a submission: one blob each
RESULTS = {
    "train": Trained,
    "refresh": Refreshed,
    "measure": Measured,
    "evaluate": Evaluated,
}


def require_startable(home: Home) -> None:
    """Before a coordinator is started: what would keep every one from starting is raised here.

    BadConfig for a registry of another version, BaseMismatch for one of another base.
    """
    settings = home.settings()
    if settings is None:
        raise ClusterNotRunning(f"{home.path} is no home of TACL yet; run `tacl up` first")
    registry = Registry(home.registry_url)
    try:
        registry.founded(settings.base, settings.generic)
    finally:
        registry.close()


# -- submissions


def require_sound(
    submission: Submission, base: Base, taken: Iterable[str], blobs: Blobs, nodes: tuple[Node, ...]
) -> None:
    """Raises what is wrong with it: BadName, NameTaken, ModalityMismatch, TooFewClasses,
    EmptySplit, CorruptBlob, NotPlaceable."""
    name = checked_name(submission.name)
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
            "--workers, --cpus-per-worker and --gpus-per-worker, or add nodes"
        )


def _require_rows(submission: Submission, blobs: Blobs) -> None:
    for part in PARTS:
        blob: BlobRef = getattr(submission, part)
        if blob.rows < 1:
            raise EmptySplit(f"the {part} rows of {submission.name} are empty; give more rows")
        if not blobs.exists(blob.digest):
            raise CorruptBlob(
                f"the {part} rows of {submission.name} are not in the store: there is no blob "
                f"{blob.digest}. Submit again."
            )
    if submission.vector_blob is not None and not blobs.exists(submission.vector_blob):
        raise CorruptBlob(f"the vector of {submission.name} is not in the store. Import again.")


# -- results


def checked(work: Work, outcome: Finished, blobs: Blobs) -> Outcome:
    """A result is taken only when it is what was asked for and its blobs are whole."""
    result = outcome.result
    if not isinstance(result, RESULTS[work.kind]):
        return Raised(f"a {work.kind} was answered with {type(result).__name__}")
    if isinstance(work, MeasureWork) and set(cells_of(work)) - values_of(result).keys():
        return Raised("not every pair was measured")
    if isinstance(result, Refreshed) and result.accepted and result.vector_blob is None:
        return Raised("a refresh was accepted and brought no vector")
    try:
        for digest in _blobs_of(result):
            blobs.verify(digest)
    except CorruptBlob as error:
        return Raised(str(error))
    return outcome


def values_of(result: Result) -> dict[Cell, float]:
    """What it says of the tau_jp matrix."""
    pairs = getattr(result, "pairs", ())
    return {Cell(p.task, p.vector_digest, p.on, p.shard_digest): p.tau_jp for p in pairs}


def _blobs_of(result: Result) -> list[str]:
    """The digests that a result says are in the store."""
    named = [getattr(result, name, None) for name in ("vector_blob", "head_blob")]
    return [digest for digest in named if digest is not None]


# -- what was taken in before


def missing_files(champions: Iterable[VectorRef], blobs: Blobs) -> Mapping[str, str]:
    """What is wrong with a task whose vector's file is not there any more."""
    return {
        ref.task: f"the file of vector {ref.task}@v{ref.version} is missing: blob {digest}"
        for ref in champions
        for digest in (ref.blob, ref.head_blob)
        if not blobs.exists(digest)
    }
