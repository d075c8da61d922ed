"""Tasks, and the base that all of them are trained on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import sqlalchemy as sa

from cluster.domain.base import PAGE, Base, BlobRef
from cluster.domain.names import no_such
from cluster.domain.status import OWED, RunState
from cluster.domain.tasks import GENERIC, Options, Shard, Submission
from cluster.domain.visibility import ALL, Visibility
from cluster.domain.work import TrainWork
from cluster.registry.balance import change_balance
from cluster.registry.database import (
    Database,
    Request,
    change,
    equals_param,
    in_params,
    of,
    put,
    value,
)
from cluster.registry.erasure import PURGED, dismiss, owe_erasure, owe_later, parts_of_task
from cluster.registry.journal import log
from cluster.registry.runs import add_run, start_over, stop
from cluster.registry.samples import add_shard, next_version
from cluster.registry.schema import AWAITED, CANCELLED, META, NEAR, RUN, TASK, TOKEN, Removal
from tacl.errors import BaseMismatch, NameTaken, UnknownTask

_TASK = sa.select(TASK).where(*equals_param(TASK.c.name))
_REMOVED = sa.select(TASK.c.removed).where(*equals_param(TASK.c.name))
_GONE = sa.select(TASK.c.name).where(in_params(TASK.c.name), TASK.c.removed.is_not(None))
_NEWEST = sa.select(sa.func.max(TASK.c.ordinal))
_SAME = (
    sa.select(TASK.c.name)
    .where(TASK.c.removed.is_(None), *equals_param(TASK.c.rows))
    .order_by(TASK.c.ordinal)
)


@dataclass(frozen=True)
class TaskRecord:
    """An accepted task and the run that trains it."""

    name: str
    ordinal: int
    run_id: str
    submission: Submission
    created: float
    removed: Removal | None = None


def is_private(db: sa.Connection, name: str) -> bool:
    """Whether the task must not be named where everybody reads."""
    submission = value(db, TASK.c.submission, name=name)
    return submission is not None and Submission.model_validate_json(submission).private


class TaskTable(Database):
    """The tasks that were submitted, by arrival."""

    def founded(self, base: Base, generic: BlobRef) -> None:
        """Record the base on the first call; raises BaseMismatch for another base later."""
        with self._write() as db:
            text = db.scalar(sa.select(META.c.value).where(META.c.name == "base"))
            if text is None:
                put(db, META, name="base", value=base.model_dump_json())
                add_shard(db, Shard(task=GENERIC, ordinal=0, blob=generic))
                log(db, "founded", f"base {base.spec}; {generic.rows} generic samples")
            elif (known := Base.model_validate_json(text)).digest != base.digest:
                raise BaseMismatch(
                    f"this home was made with {known.spec} (digest {known.digest[:12]}), and now "
                    f"{base.spec} (digest {base.digest[:12]}) is asked for. A home has one base: "
                    "use another --home."
                )

    def require_free(self, name: str) -> None:
        """Raises NameTaken as `accept` would."""
        with self._read() as db:
            _had_before(db, name)

    def accept(self, submission: Submission, work: TrainWork, request: Request) -> None:
        """Record task, shard, run and answer. Raises NameTaken when the name is taken; that of a
        task that was cancelled before it had a vector is free."""
        name = submission.name
        with self._write(request=request) as db:
            was_cancelled = _had_before(db, name)
            ordinal = 1 + (db.scalar(_NEWEST) or 0)
            if was_cancelled:
                db.execute(TASK.delete().where(TASK.c.name == name))
            row = {"name": name, "ordinal": ordinal, "run_id": work.run_id, "head": ""}
            row |= {"owner": submission.owner, "submission": submission.model_dump_json()}
            row |= {"rows": submission.rows or None}
            put(db, TASK, **row)
            # Samples of a cancelled task of this name keep their versions: runs have met them.
            version = next_version(db, name)
            add_shard(db, Shard(task=name, ordinal=ordinal, blob=submission.shard, version=version))
            log(db, "submitted", f"{submission.train.rows} training rows", name, work.run_id)
            add_run(db, work, name)

    def remove(
        self,
        name: str,
        how: Removal,
        withdrawn: Collection[str],
        anew: Collection[str],
        erased: Iterable[str],
        request: Request,
        by: str = "",
        unspent: int = 0,
    ) -> None:
        """Withdraw a task, and runs. `how`: CANCELLED frees the name; `by`: the requester. Runs
        that met what is purged start `anew`, the blobs `erased` are owed their erasure, and the
        balance gets back what is `unspent`."""
        with self._write(request=request) as db:
            change_balance(db, unspent)
            change(db, TASK, {"name": name}, removed=how)
            dismiss(db, AWAITED.c.run_id, withdrawn)
            what = "a private task" if is_private(db, name) else name  # runs of others show it
            stop(db, withdrawn, RunState.WITHDRAWN, f"{what} was {how}")
            for run_id in anew:
                start_over(db, run_id, "samples that it met were erased")
            db.execute(NEAR.delete().where(sa.or_(NEAR.c.task == name, NEAR.c.other == name)))
            owe_erasure(db, erased)
            if how == CANCELLED:
                owe_later(db, parts_of_task(db, name))
            log(db, how, f"by {by}" if by else f"{name} is withdrawn from later use", name)

    def task(self, name: str, visibility: Visibility = ALL) -> TaskRecord:
        """Raises UnknownTask, whose message names tasks that exist, of those that are seen."""
        seen = visibility.sees(name)
        for row in self._rows(_TASK, name=name) if seen else ():
            if row.removed is None:
                return _task(row)
            anew = "" if row.removed == CANCELLED else " under another name"
            raise UnknownTask(
                f"the task {name} was {row.removed}; go on without it, or submit it again{anew}"
            )
        raise UnknownTask(no_such("task", name, filter(visibility.sees, self.task_names())))

    def task_names(self) -> list[str]:
        """By arrival, without removed tasks."""
        query = sa.select(TASK.c.name).where(TASK.c.removed.is_(None))
        return list(self._values(query.order_by(TASK.c.ordinal)))

    def by_arrival(self, names: Collection[str]) -> tuple[str, ...]:
        """These names by arrival, removed tasks too."""
        query = sa.select(TASK.c.name).where(TASK.c.name.in_(names)).order_by(TASK.c.ordinal)
        return tuple(self._values(query))

    def removed_of(self, names: Collection[str]) -> set[str]:
        """The tasks among these that were removed."""
        return set(self._values(_GONE, name=names))

    def removed(self, name: str) -> Removal | None:
        """How a task was withdrawn; None if it was not."""
        with self._read() as db:
            return db.scalar(_REMOVED, of(name=name))

    def users_after(self, user: str) -> list[str]:
        """The next PAGE by name of users who own a task, have an owed run, or hold a token."""
        asking = sa.select(RUN.c.user).where(RUN.c.state.in_(OWED))
        each = (sa.select(TASK.c.owner), asking, sa.select(TOKEN.c.user))
        pages = (
            one.where(one.selected_columns[0] > user).distinct().order_by(sa.text("1")).limit(PAGE)
            for one in each
        )
        every = sa.union(*(sa.select(page.subquery()) for page in pages))
        return list(self._values(every.order_by(sa.text("1")).limit(PAGE)))

    def tasks(
        self, with_removed: bool = False, names: Collection[str] | None = None
    ) -> list[TaskRecord]:
        """By arrival, all or those with these names."""
        key = {} if names is None else {"name": names}
        return [_task(row) for row in self._rows(_tasks(with_removed, bool(key)), **key)]

    def with_rows(self, rows: str) -> list[str]:
        """Names of the tasks that have exactly these rows, by their digest."""
        return list(self._values(_SAME, rows=rows))

    def purged(self) -> set[str]:
        """Names of the tasks whose bytes are gone."""
        return set(self._values(PURGED))

    def any_task(self, name: str) -> TaskRecord:
        """A task that may have been removed: models that use it keep working."""
        (row,) = self._rows(_TASK, name=name)
        return _task(row)


def _had_before(db: sa.Connection, name: str) -> bool:
    """Whether a cancelled task had the name. Raises NameTaken if another task has it, or had it."""
    found = db.execute(_REMOVED, of(name=name)).first()
    if found is not None and found.removed != CANCELLED:
        was = f" (it was {found.removed})" if found.removed else ""
        raise NameTaken(f"there is a task {name} already{was}; submit under another name")
    return found is not None


@cache
def _tasks(with_removed: bool, named: bool) -> sa.Select[Any]:
    query = sa.select(TASK).order_by(TASK.c.ordinal)
    query = query if with_removed else query.where(TASK.c.removed.is_(None))
    return query.where(in_params(TASK.c.name)) if named else query


def _task(row: sa.Row) -> TaskRecord:
    submission = Submission.model_validate_json(row.submission)
    submission = submission.model_copy(update={"options": _shared(submission.options)})
    return TaskRecord(row.name, row.ordinal, row.run_id, submission, row.created, row.removed)


@lru_cache(1024)
def _shared(options: Options) -> Options:
    """One object for equal options: most tasks have the same, and thousands of tasks are kept."""
    return options
