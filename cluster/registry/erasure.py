"""What refers to files in the blob store, and which of these are owed their erasure."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Set
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from cluster.domain.compositions import Fitted, Merged, Target
from cluster.domain.status import OWED, STOPPED, RunState
from cluster.domain.tasks import GENERIC, Submission, VectorRef
from cluster.domain.work import ComposeWork, EvaluateWork, FitWork
from cluster.registry.database import Database, chunks, equals_param, in_params, of
from cluster.registry.schema import (
    ARRIVAL,
    AWAITED,
    COMPOSITION,
    ERASURE,
    HOLDS,
    MADE,
    OF_SHARD,
    OF_TASK,
    RUN,
    SHARD,
    TASK,
    USER,
    VECTOR,
)

LATER = 60.0  # seconds
FEW = 16  # files
_DIGEST = re.compile("[0-9a-f]{64}")


class BlobUse(NamedTuple):
    """Whose file it is, and what it is, for people. Files of users' models are of no task: ''."""

    task: str
    what: str


References = dict[str, BlobUse]  # by digest
Naming = Iterator[tuple[str, BlobUse]]  # the same, as an iterator

Statements = tuple[sa.Select[Any], sa.Select[Any, Any, Any, Any], sa.Select[Any]]  # for `_files`

_SHARDS = sa.select(SHARD.c.task, SHARD.c.version, SHARD.c.digest, SHARD.c.statistics)
# Not purged or cancelled. No index covers this: tasks of given owners are found by owner.
_KEPT = sa.func.coalesce(TASK.c.removed, "removed") == "removed"
_OWN = in_params(TASK.c.owner), _KEPT
_OWNERS = sa.select(TASK.c.name, TASK.c.owner).where(*_OWN)
PURGED = sa.select(TASK.c.name).where(TASK.c.removed == "purged")
_OWN_MODELS = (
    sa.select(USER.c.name.label("user"), MADE)
    .join(MADE, MADE.c.digest == USER.c.composition)
    .where(in_params(USER.c.name))
)
_MADE = sa.select(MADE).where(*equals_param(MADE.c.digest))
_FIT_WORKS = sa.select(RUN.c.work).where(in_params(RUN.c.run_id), RUN.c.kind == "fit")
_OWED = sa.select(ERASURE.c.digest).where(in_params(ERASURE.c.digest))
_OWE = ERASURE.update().where(in_params(ERASURE.c.digest), ERASURE.c.due > 0.0)


class Erasure(Database):
    """The blobs that the registry refers to, and those that are to be deleted."""

    def referenced(self, asked: Set[str] | None = None) -> References:
        """Every blob that something may still need; none of a purged or cancelled task. With
        `asked`, the result has all of these that are needed, and only some of the others: a large
        home has hundreds of thousands."""
        with self._read() as db:
            purged = set(db.scalars(PURGED))
            models = *_models(db, purged), *_fitted(db, purged, asked)
            return dict((*_asked_of(db), *models, *_files(db, _NEEDED, asked)))

    def references_of(self, task: str) -> References:
        """The files of one task, and of every model that was merged of its vectors. Fitted heads
        that saw its rows are found by `fits_of_purged`, once the task is purged."""
        with self._read() as db:
            return dict((*parts_of_task(db, task), *_models(db, set(), task)))

    def fits_of_purged(self) -> dict[str, set[str]]:
        """Fits of heads that saw the rows of a purged task: digests of their files, by run. Each
        names every task of a home: not to be called under the lock."""
        with self._read() as db:
            purged = set(db.scalars(PURGED))
            return {
                run_id: {digest for digest, _ in _heads_of(result)}
                for run_id, result in (_fits(db) if purged else ())
                if _saw(result, purged)
            }

    def stored_of(self, owners: Collection[str]) -> dict[str, References]:
        """By owner, the files of their tasks that are kept (rows, samples, statistics, vectors and
        heads), those of their model, and rows that the next is made from."""
        found: dict[str, References] = {owner: {} for owner in owners}
        with self._read() as db:
            whose = {row.name: found[row.owner] for row in db.execute(_OWNERS, of(owner=owners))}
            for digest, use in _files(db, _OF_OWNERS, owner=owners) if whose else ():
                if use.task in whose:  # otherwise it came after the first statement
                    whose[use.task][digest] = use
            for row in db.execute(_OWN_MODELS, of(name=owners)):
                found[row.user] |= dict(_parts_of_made(row))
            for row in db.execute(_awaited(AWAITED.c.user), of(user=owners)):
                found[row.user] |= dict(_given_for(row.work))
        return found

    def erasures(self) -> list[str]:
        """Digests of files of purged tasks that are to be deleted."""
        return list(self._values(sa.select(ERASURE.c.digest).where(ERASURE.c.due == 0.0)))

    def due_files(self, until: float) -> dict[str, float]:
        """Digests of files that are to be deleted by `until` unless something needs them, each with
        the time since which it may no longer be needed."""
        due = ERASURE.c.due > 0.0, ERASURE.c.due <= until
        rows = self._rows(sa.select(ERASURE.c.digest, ERASURE.c.due).where(*due))
        return {row.digest: row.due - LATER for row in rows}

    def forget_due(self, digests: Iterable[str]) -> None:
        with self._write() as db:
            for these in chunks(digests):
                db.execute(ERASURE.delete().where(ERASURE.c.digest.in_(these)))

    def owe_refused(self, digests: Iterable[str]) -> None:
        """Have files of a request that was refused deleted soon, unless something needs them."""
        with self._write("relaxed") as db:
            _owe(db, digests, time.time() + LATER)

    def defer_purged(self, digests: Iterable[str]) -> None:
        """Have files of purged tasks that something else needs deleted once that needs them no
        more, as it may need them for a while only."""
        with self._write() as db:
            for these in chunks(digests):
                owed = ERASURE.update().where(ERASURE.c.digest.in_(these))
                db.execute(owed.values(due=time.time() + LATER))

    def postpone(self, digests: Iterable[str], until: float) -> None:
        """Keep files until then at least: something needs them."""
        with self._write() as db:
            for these in chunks(digests):
                chosen = ERASURE.c.digest.in_(these), ERASURE.c.due > 0.0
                db.execute(ERASURE.update().where(*chosen).values(due=until))


def owe_erasure(db: sa.Connection, digests: Iterable[str]) -> None:
    """Files of purged tasks: to be deleted at once."""
    _owe(db, digests, 0.0)


def owe_later(db: sa.Connection, files: Iterable[tuple[str, BlobUse]]) -> None:
    """Files that perhaps nobody needs any more: if so, they are deleted once requests that are
    about them now have been answered."""
    _owe(db, [digest for digest, _ in files], time.time() + LATER)


def owe_lists(db: sa.Connection, run_ids: Collection[str]) -> None:
    """The lists of tasks of the fits among these runs, which have ended or stopped."""
    for work in db.scalars(_FIT_WORKS, of(run_id=run_ids)).all():
        owe_later(db, _listed_of(FitWork.model_validate_json(work)))


def _owe(db: sa.Connection, digests: Iterable[str], due: float) -> None:
    """Record that files are owed; what is owed at once stays so."""
    for these in chunks(set(digests)):
        if known := set(db.scalars(_OWED, of(digest=these))):
            db.execute(_OWE, of(digest=known) | {"due": due})
        if new := [{"digest": one, "due": due} for one in these if one not in known]:
            db.execute(ERASURE.insert(), new)


@cache
def _awaited(column: sa.Column[str]) -> sa.Select[Any, Any]:
    """A query: who awaits a model, and the work that makes it, by values of a column of AWAITED."""
    works = sa.select(AWAITED.c.user, RUN.c.work).join(RUN, RUN.c.run_id == AWAITED.c.run_id)
    return works.where(in_params(column))


def dismiss(db: sa.Connection, column: sa.Column[str], these: Collection[str]) -> None:
    """Drop awaited models, chosen by users or by runs, which are columns of AWAITED; the rows that
    they were to be made from are owed."""
    for some in chunks(these):
        if rows := db.execute(_awaited(column), of(**{column.name: some})).all():
            owe_later(db, (file for row in rows for file in _given_for(row.work)))
            db.execute(AWAITED.delete().where(AWAITED.c.user.in_([row.user for row in rows])))


def _parts_of(submission: Submission) -> Naming:
    name = submission.name
    for part, blob in submission.parts.items():
        yield blob.digest, BlobUse(name, f"the {part} rows of {name}")
    if submission.vector_blob is not None:
        yield submission.vector_blob, BlobUse(name, f"the imported vector of {name}")


def parts_of_task(db: sa.Connection, name: str) -> Naming:
    return _files(db, _OF_TASK, name=name)


def _names(text: str, asked: Set[str] | None) -> bool:
    """Whether the text may name some of these files. Searching it for digests takes a fraction of
    the time of parsing it; searching for a FEW one by one, a fraction of that."""
    if asked is None:
        return True
    if len(asked) <= FEW:
        return any(one in text for one in asked)
    return not asked.isdisjoint(_DIGEST.findall(text))


def _files(
    db: sa.Connection, kept: Statements, asked: Set[str] | None = None, **key: Any
) -> Naming:
    """Files of submissions, samples and vectors that these statements find with these values."""
    submissions, shards, vectors = (db.execute(one, of(**key)) for one in kept)
    for row in submissions:
        if _names(row.submission, asked):
            yield from _parts_of(Submission.model_validate_json(row.submission))
    for row in shards:
        yield row.digest, BlobUse(row.task, f"the samples of {row.task}, version {row.version}")
        if row.statistics is not None:
            yield row.statistics, BlobUse(row.task, f"the statistics of {row.task}")
    for row in vectors:
        if not _names(row.reference, asked):
            continue
        ref = VectorRef.model_validate_json(row.reference)
        yield ref.head_blob, BlobUse(ref.task, f"the head of {ref.task}")
        yield ref.blob, BlobUse(ref.task, f"the vector {ref.name}")


def _kept(*which: sa.ColumnElement[bool]) -> Statements:
    """Statements for the tasks that these conditions choose."""
    names = sa.select(TASK.c.name).where(*which)
    shards = _SHARDS.where(SHARD.c.task.in_(names))
    vectors = sa.select(VECTOR.c.reference).where(VECTOR.c.task.in_(names))
    return sa.select(TASK.c.submission).where(*which), shards, vectors


def _needed() -> Statements:
    """Statements for all tasks; of cancelled ones, for samples that runs are told again as they
    continue."""
    goes_on = RUN.c.state.in_((*OWED, *STOPPED)), RUN.c.reached >= 0
    unfinished = sa.select(RUN.c.run_id).where(*goes_on)
    met = sa.exists().where(OF_SHARD, ARRIVAL.c.run_id.in_(unfinished))
    stays = sa.and_(TASK.c.name.is_not(None), _KEPT) | (SHARD.c.task == GENERIC) | met
    shards = _SHARDS.outerjoin(TASK, OF_TASK)
    submissions, _, vectors = _kept(_KEPT)
    return submissions, shards.where(stays, TASK.c.removed.is_distinct_from("purged")), vectors


_OF_TASK, _OF_OWNERS, _NEEDED = _kept(*equals_param(TASK.c.name)), _kept(*_OWN), _needed()


def _asked_of(db: sa.Connection) -> Naming:
    """Files that compositions, fits and evaluations still need: those that are owed, and
    compositions that stopped while their user awaits them."""
    awaited = RUN.c.run_id.in_(sa.select(AWAITED.c.run_id))
    left = sa.or_(RUN.c.state.in_(OWED), sa.and_(RUN.c.state.in_(STOPPED), awaited))
    for text in db.scalars(sa.select(RUN.c.work).where(RUN.c.kind == "compose", left)):
        yield from _given_for(text)
    owed = sa.select(RUN.c.work).where(RUN.c.state.in_(OWED))
    for text in db.scalars(owed.where(RUN.c.kind == "fit")):  # a retried one is listed again
        yield from _listed_of(FitWork.model_validate_json(text))
    for text in db.scalars(owed.where(RUN.c.kind == "evaluate")):
        for digest in _judged_by(EvaluateWork.model_validate_json(text)):
            if digest is not None:
                yield digest, BlobUse("", "of a model that is to be evaluated")


def _listed_of(work: FitWork) -> Naming:
    if digest := work.listed.digest:
        yield digest, BlobUse("", "the tasks whose heads are to be fitted")


def _given_for(work: str) -> Naming:
    for blob in ComposeWork.model_validate_json(work).making.rows:
        yield blob.digest, BlobUse("", "rows that a model is to be made from")


def _judged_by(work: EvaluateWork) -> Iterator[str | None]:
    """What an evaluation needs that vectors and tasks do not keep: the user's model may change."""
    model = work.composition
    yield from (model.merged and model.merged.blob, model.novelty)
    yield from (digest for one in work.tasks for digest in (one.fitted_head, one.frozen_head))
    if model.target is not None:
        yield from (model.target.head_blob, model.target.held_out and model.target.held_out.digest)


def _fitted(db: sa.Connection, without: set[str], asked: Set[str] | None) -> Naming:
    for _, result in _fits(db, asked):
        if not _saw(result, without):
            yield from _heads_of(result)


def _fits(db: sa.Connection, asked: Set[str] | None = None) -> Iterator[tuple[str, Fitted]]:
    """Heads that were fitted together, by run; with `asked`, if they may name one of the files."""
    done = RUN.c.kind == "fit", RUN.c.state == RunState.DONE
    for run_id, text in db.execute(sa.select(RUN.c.run_id, RUN.c.result).where(*done)):
        if _names(text, asked):
            yield run_id, Fitted.model_validate_json(text)


def _saw(result: Fitted, tasks: set[str]) -> bool:
    return any(one.task in tasks for one in result.heads)


def _heads_of(result: Fitted) -> Naming:
    if result.novelty is not None:
        yield result.novelty, BlobUse("", "what tells inputs of none of the tasks")
    for one in result.heads:
        yield one.head, BlobUse(one.task, f"the fitted head of {one.task}")
        yield one.frozen, BlobUse(one.task, f"the head of {one.task} on the base")


def _models(db: sa.Connection, without: set[str], task: str | None = None) -> Naming:
    """Files of users' models; with a task, of every model that was ever made of its vectors."""
    query = sa.select(MADE, COMPOSITION.c.terms).join(
        COMPOSITION, COMPOSITION.c.digest == MADE.c.digest
    )
    if task is None:
        query = query.join(USER, USER.c.composition == MADE.c.digest)
    else:
        holds = sa.select(HOLDS.c.composition).where(HOLDS.c.task == task)
        query = query.where(MADE.c.digest.in_(holds))
    for row in db.execute(query):
        of = {term["vector"]["task"] for term in json.loads(row.terms)}
        if not of & without:
            yield from _parts_of_made(row, target=task is None)


def parts_of_model(db: sa.Connection, digest: str | None) -> Naming:
    """The files of a composition beside those of its terms."""
    for row in db.execute(_MADE, of(digest=digest)):
        yield from _parts_of_made(row)


def _parts_of_made(row: sa.Row, target: bool = True) -> Naming:
    """`target`: whether to include files of the model's own task."""
    if row.merged is not None:
        blob = Merged.model_validate_json(row.merged).blob
        yield blob, BlobUse("", "the merged vector of a model")
    if row.target is not None and target:
        found = Target.model_validate_json(row.target)
        yield found.head_blob, BlobUse("", "the head of a model's own task")
        if found.held_out is not None:
            yield found.held_out.digest, BlobUse("", "rows that judge a model's own task")
    if row.fitted is not None:
        yield from _heads_of(Fitted.model_validate_json(row.fitted))
