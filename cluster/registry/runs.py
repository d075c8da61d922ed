"""Runs: pieces of work, how far they are, and what they were told."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, TypeVar

import sqlalchemy as sa
from pydantic import Field, TypeAdapter

from cluster.domain import work as orders
from cluster.domain.base import PAGE, Message
from cluster.domain.compositions import Fitted
from cluster.domain.status import OWED, STOPPED, RunKind, RunState
from cluster.domain.tasks import Arrival, Shard
from cluster.registry.balance import change_balance
from cluster.registry.database import (
    Database,
    Request,
    chunks,
    equals_param,
    exists,
    in_params,
    of,
    one,
    put,
)
from cluster.registry.erasure import dismiss, owe_lists
from cluster.registry.journal import log, log_all
from cluster.registry.run_times import add_run_time
from cluster.registry.samples import shard_of, with_head
from cluster.registry.schema import ARRIVAL, AWAITED, EVENT, FITTED, OF_SHARD, RUN, SHARD
from tacl.errors import UnknownRun

R = TypeVar("R", bound=Message)
Stopped = Literal[RunState.CANCELLED, RunState.WITHDRAWN]
_WORK: TypeAdapter[orders.Work] = TypeAdapter(Annotated[orders.Work, Field(discriminator="kind")])
# Without results: that of a fit names the heads of thousands of tasks.
COLUMNS = [column for column in RUN.c if column is not RUN.c.result]
_RUN = sa.select(*COLUMNS).where(*equals_param(RUN.c.run_id))
_CHANGE = RUN.update().where(*equals_param(RUN.c.run_id))
_STATE = sa.select(RUN.c.state).where(*equals_param(RUN.c.run_id))
_RESULT = sa.select(RUN.c.result).where(*equals_param(RUN.c.run_id))
_LAST = sa.bindparam("last", type_=sa.Integer)
_UNTOLD = ARRIVAL.delete().where(*equals_param(ARRIVAL.c.run_id))
REACHED = _CHANGE.values(reached=sa.case((RUN.c.reached < _LAST, _LAST), else_=RUN.c.reached))
STEPPED = REACHED.values(progress=sa.bindparam("told"))
_SEVERAL = (
    sa.select(RUN.c.run_id, RUN.c.task, RUN.c.user, RUN.c.started, RUN.c.state)
    .where(in_params(RUN.c.run_id))
    .order_by(RUN.c.number)
)
_CHANGE_ALL = RUN.update().where(in_params(RUN.c.run_id))
_PROGRESSED = RUN.update().where(*equals_param(RUN.c.run_id, RUN.c.attempt, RUN.c.state))
_OWED = (
    sa.select(RUN.c.user, sa.func.count())
    .where(in_params(RUN.c.user), RUN.c.state.in_(OWED))
    .group_by(RUN.c.user)
)
_TOLD = (
    with_head(sa.select(ARRIVAL.c.step, ARRIVAL.c.left, SHARD).join(SHARD, OF_SHARD))
    .where(*equals_param(ARRIVAL.c.run_id))
    .order_by(ARRIVAL.c.step, SHARD.c.ordinal)
)


@dataclass(frozen=True)
class RunRecord:
    """A piece of work and how far it is; the columns of RUN."""

    number: int
    run_id: str
    kind: RunKind
    task: str | None
    state: RunState
    attempt: int
    deaths: int
    cause: str | None
    reached: int
    progress: orders.Progress | None
    created: float
    started: float | None
    ended: float | None
    user: str | None
    model: str | None
    version: int | None
    written: str

    @cached_property
    def work(self) -> orders.Work:
        """Parsed when it is first needed: that of a refresh in a large home names a thousand
        shards."""
        return _WORK.validate_json(self.written).model_copy(update={"attempt": self.attempt})


class RunTable(Database):
    """Runs that are owed, that run, and that ended."""

    def add_run(
        self,
        work: orders.Work,
        task: str | None,
        request: Request | None = None,
        cost: int = 0,
        user: str | None = None,
    ) -> None:
        """Queue a piece of work, and take its cost from the balance. A run of that id that exists
        stays as it is, unless it failed or was cancelled and a request asks for it. `user`: who
        requested what the plan orders too."""
        with self._write(request=request) as db:
            is_new = add_run(db, work, task)
            if is_new and cost:
                change_balance(db, -cost)
            if user is not None:
                db.execute(_CHANGE, of(run_id=work.run_id) | {"user": user})
            if request is not None and not is_new:
                retry(db, work.run_id, user or orders.asked_by(work), work)

    def listed(self, work: orders.FitWork) -> None:
        """Record that the tasks of a fit are listed in a blob, which is owed if the fit stopped."""
        with self._write() as db:
            db.execute(_CHANGE, of(run_id=work.run_id) | {"work": work.model_dump_json()})
            if db.scalar(_STATE, of(run_id=work.run_id)) not in OWED:
                owe_lists(db, [work.run_id])

    def start(self, run_id: str, gpus: float = 0) -> orders.Work:
        """Mark a run as running. Returns its work with the number of this attempt, and with its
        part of a GPU where the plan chooses that."""
        with self._write() as db:
            row = _row(db, run_id)
            if row.reached < 0:  # may be of thousands of tasks: not done while a purge waits
                db.execute(_UNTOLD, of(run_id=run_id))
            attempt = row.attempt + 1
            _change(db, row, state=RunState.RUNNING, attempt=attempt, started=time.time())
            log(db, "started", f"attempt {attempt} of {row.kind}", row.task, run_id)
            work = run_of(row).work.model_copy(update={"attempt": attempt})
            if isinstance(work, orders.VectorWork) and work.gpus != gpus:
                work = work.model_copy(update={"gpus": gpus})
                db.execute(_CHANGE, of(run_id=run_id) | {"work": work.model_dump_json()})
        return work

    def interrupted(self, run_ids: Iterable[str]) -> None:
        """Queue runs again whose processes are gone. Since when is not known: the time since the
        last event counts for nobody."""
        newest = sa.select(EVENT.c.at).order_by(EVENT.c.number.desc()).limit(1)
        with self._write() as db:
            last = db.scalar(newest) or 0.0
            for these in chunks(run_ids):
                chosen = of(run_id=these)
                rows = db.execute(_SEVERAL, chosen).all()
                _count_time(db, rows, last)
                db.execute(_CHANGE_ALL, chosen | {"state": RunState.QUEUED})
                known = [(row.run_id, row.task) for row in rows]
                log_all(db, "queued", "again: no process does it", known)

    def requeue(self, run_id: str, cause: str | None, died: bool = True) -> None:
        """Queue a run again: its process `died`, which is counted, or was ended; or, without a
        cause, it gave way. Harmless when that is recorded already."""
        with self._write() as db:
            row = _row(db, run_id)
            if row.state != RunState.RUNNING:
                return None
            if cause is None:
                _change(db, row, state=RunState.QUEUED)
                return log(db, "gave way", "somebody waits for its place", row.task, run_id)
            _change(db, row, state=RunState.QUEUED, deaths=row.deaths + died, cause=cause)
            kind, text = ("died", cause) if died else ("queued", f"again: {cause}")
            log(db, kind, text, row.task, run_id)

    def fail(self, run_id: str, cause: str) -> RunKind:
        """Record a failure; returns the run's kind. Harmless if the run is no longer owed: it was
        cancelled, or its task was removed."""
        with self._write() as db:
            row = _row(db, run_id)
            if row.state in OWED:
                _change(db, row, state=RunState.FAILED, cause=cause, ended=time.time())
                owe_lists(db, [run_id])
                log(db, "failed", cause, row.task, run_id)
        return row.kind

    def cancel(
        self,
        run_ids: Collection[str],
        dismissed: Collection[str],
        who: str,
        request: Request,
        unspent: int = 0,
    ) -> None:
        """Stop runs that `who` cancelled; they can be queued again. Dismissed compositions are no
        longer awaited, and the balance gets back what is `unspent`."""
        with self._write(request=request) as db:
            change_balance(db, unspent)
            stop(db, run_ids, RunState.CANCELLED, f"cancelled by {who}")
            dismiss(db, AWAITED.c.run_id, dismissed)

    def retry(self, run_ids: Collection[str], request: Request | None = None) -> None:
        """Queue runs that failed or were cancelled again, with a fresh budget of deaths."""
        with self._write(request=request) as db:
            for run_id in run_ids:
                retry(db, run_id)

    def grant_lease(
        self,
        run_id: str,
        last: int,
        progress: orders.Progress | None = None,
        step: int = 0,
        newcomers: Sequence[Shard] = (),
        left: Collection[str] = (),
    ) -> None:
        """Let a run do its steps up to `last`; from `step` on it sees the newcomers, and no longer
        the tasks in `left`.

        A power cut may lose the latest of these, as it loses the steps themselves.
        """
        with self._write("relaxed") as db:
            leave = of(run_id=run_id) | {"last": last}
            if progress is None:
                db.execute(REACHED, leave)
            else:
                db.execute(STEPPED, leave | {"told": progress.model_dump_json()})
            if newcomers:
                rows = [{"task": shard.task, "version": shard.version} for shard in newcomers]
                db.execute(ARRIVAL.insert().values(run_id=run_id, step=step), rows)
            if left:
                told = one(ARRIVAL, run_id=run_id, left=None)
                gone = ARRIVAL.update().where(*told, ARRIVAL.c.task.in_(left))
                db.execute(gone.values(left=step))

    def report_progress(self, run_id: str, attempt: int, progress: orders.Progress) -> bool:
        """Record how far a run is, if that attempt is the one that runs; returns whether it is."""
        this = of(run_id=run_id, attempt=attempt, state=RunState.RUNNING)
        with self._write("relaxed") as db:
            told = {"progress": progress.model_dump_json()}
            return db.execute(_PROGRESSED, this | told).rowcount == 1

    def is_running(self, run_id: str, attempt: int) -> bool:
        """Whether that attempt is the one that runs."""
        with self._read() as db:
            return exists(db, RUN, run_id=run_id, attempt=attempt, state=RunState.RUNNING)

    def run(self, run_id: str) -> RunRecord:
        """Raises UnknownRun when there is none."""
        for row in self._rows(_RUN, run_id=run_id):
            return run_of(row)
        raise UnknownRun(f"there is no run {run_id}")

    def runs(
        self,
        states: Sequence[RunState] | None = None,
        tasks: Collection[str] | None = None,
        kinds: Sequence[RunKind] | None = None,
        run_ids: Collection[str] | None = None,
        user: str | None = None,
        newest: int | None = None,
        naming: str | None = None,
        models: Collection[str] | None = None,
    ) -> list[RunRecord]:
        """In order of acceptance: all, or the `newest`. `naming`: those whose work has this name
        somewhere; the database alone reads the others. `models`: those that evaluate one of
        these."""
        wanted: dict[str, Collection[Any] | None] = {"state": states, "kind": kinds, "task": tasks}
        wanted |= {"run_id": run_ids, "model": models, "user": None if user is None else [user]}
        key = {name: values for name, values in wanted.items() if values is not None}
        query = _among(*key)
        if newest is not None:
            query = query.limit(newest)
        if naming is not None:
            query = query.where(RUN.c.work.contains(f'"{naming}"', autoescape=True))
        return [run_of(row) for row in reversed(self._rows(query, **key))]

    def owed_of(self, users: Collection[str]) -> Counter[str]:
        """How many runs that wait or run each of these users requested."""
        return Counter({row[0]: row[1] for row in self._rows(_OWED, user=users)})

    def evaluations(
        self, user: str | None, models: Collection[str]
    ) -> Iterator[tuple[RunRecord, orders.MeasuredAccuracies]]:
        """Evaluations with a result: all, or those that this user requested and those of these
        models. The latest first, read by PAGE."""
        done = sa.select(RUN).where(*one(RUN, kind="evaluate", state=RunState.DONE))
        if user is not None:  # by numbers: otherwise SQLite would scan everybody's
            theirs = sa.or_(RUN.c.user == user, RUN.c.model.in_(models))
            done = done.where(RUN.c.number.in_(sa.select(RUN.c.number).where(theirs)))
        done = done.order_by(RUN.c.number.desc()).limit(PAGE)
        rows = self._rows(done)
        while rows:
            for row in rows:
                yield run_of(row), orders.MeasuredAccuracies.model_validate_json(row.result)
            older = done.where(RUN.c.number < rows[-1].number)
            rows = self._rows(older) if len(rows) == PAGE else ()

    def run_ids(self, state: RunState, kind: RunKind) -> list[str]:
        """Ids of runs, in order of acceptance."""
        query = sa.select(RUN.c.run_id).where(*one(RUN, state=state, kind=kind))
        return list(self._values(query.order_by(RUN.c.number)))

    def that_met(self, task: str) -> list[str]:
        """Trainings without a result that were told of a task's samples."""
        unfinished = sa.and_(RUN.c.kind == "train", RUN.c.state.in_((*OWED, *STOPPED)))
        unfinished = sa.and_(unfinished, RUN.c.reached >= 0)
        told = sa.exists().where(ARRIVAL.c.run_id == RUN.c.run_id, ARRIVAL.c.task == task)
        query = sa.select(RUN.c.run_id).where(unfinished, told).order_by(RUN.c.number)
        return list(self._values(query))

    def result(self, run_id: str, kind: type[R]) -> R | None:
        """None while there is none."""
        with self._read() as db:
            text = db.scalar(_RESULT, of(run_id=run_id))
        return None if text is None else kind.model_validate_json(text)

    def fits(self) -> list[tuple[str, Fitted]]:
        """Heads that were fitted again, by run, in the order in which the fits ended."""
        ended = sa.select(EVENT.c.run_id, sa.func.max(EVENT.c.number).label("number"))
        ended = ended.where(FITTED).group_by(EVENT.c.run_id)  # clocks may err
        told = ended.subquery()
        done = sa.select(RUN.c.run_id, RUN.c.result).join(told, told.c.run_id == RUN.c.run_id)
        rows = self._rows(done.where(RUN.c.state == RunState.DONE).order_by(told.c.number))
        return [(row.run_id, Fitted.model_validate_json(row.result)) for row in rows]

    def forget_fits(self, run_ids: Collection[str]) -> None:
        """Delete fits whose heads nobody needs; they may be ordered again."""
        with self._write() as db:
            done = one(RUN, kind="fit", state=RunState.DONE)
            db.execute(RUN.delete().where(*done, RUN.c.run_id.in_(run_ids)))
            for run_id in run_ids:  # so that readers beside the coordinator learn of it
                log(db, "forgotten", "no model answers with these heads", None, run_id)

    def arrivals(self, run_id: str) -> list[Arrival]:
        """What the run was told, and when: by step, then by arrival of the task."""
        rows = self._rows(_TOLD, run_id=run_id)
        return [Arrival(step=row.step, shard=shard_of(row), left=row.left) for row in rows]


def add_run(db: sa.Connection, work: orders.Work, task: str | None) -> bool:
    """Queue a run unless it exists; returns whether it was queued. One that was withdrawn with a
    task starts anew: a task that was cancelled may come again."""
    state = db.scalar(_STATE, of(run_id=work.run_id))
    if state == RunState.WITHDRAWN:
        start_over(db, work.run_id, "its task was withdrawn before")
        queue_again(db, work.run_id, "what it is about is there again")
        asked = {"user": orders.asked_by(work), "work": work.model_dump_json()}
        _update(db, work.run_id, **asked)  # perhaps requested by somebody else
        return True
    if state is not None:
        return False
    model = work.composition.digest if isinstance(work, orders.EvaluateWork) else None
    row = {"run_id": work.run_id, "kind": work.kind, "task": task, "state": RunState.QUEUED}
    version = work.vector.version if isinstance(work, orders.RefreshWork) else None
    row |= {"user": orders.asked_by(work), "model": model, "version": version}
    row |= {"work": work.model_dump_json()}
    put(db, RUN, **row, attempt=0, deaths=0, reached=-1)
    log(db, "queued", work.kind, task, work.run_id)
    return True


@cache
def _among(*names: str) -> sa.Select[Any]:
    """Runs whose columns of these names have any of the values given, the newest first."""
    these = (in_params(RUN.c[name]) for name in names)
    return sa.select(*COLUMNS).where(*these).order_by(RUN.c.number.desc())


def _row(db: sa.Connection, run_id: str) -> sa.Row:
    return db.execute(_RUN, of(run_id=run_id)).one()


def _update(db: sa.Connection, run_id: str, **values: Any) -> sa.Row:
    """Change a run; returns its row as it was before."""
    row = _row(db, run_id)
    _change(db, row, **values)
    return row


def _change(db: sa.Connection, row: sa.Row, **values: Any) -> None:
    if "state" in values:
        _count_time(db, [row], time.time())
    db.execute(_CHANGE, of(run_id=row.run_id) | values)


def _count_time(db: sa.Connection, rows: Iterable[sa.Row], ended: float) -> None:
    """Count the time of attempts that end for their users; of runs that the plan orders, nobody's
    is counted."""
    seconds: dict[str, float] = defaultdict(float)
    for row in rows:
        if row.state == RunState.RUNNING and None not in (row.user, row.started):
            seconds[row.user] += max(ended - row.started, 0.0)
    add_run_time(db, seconds, ended)


def stop(db: sa.Connection, run_ids: Collection[str], state: Stopped, cause: str) -> None:
    """Stop runs without a result, because a person wished it. A few statements do for hundreds of
    runs, as of a model's evaluations."""
    now = time.time()
    for these in chunks(run_ids):
        chosen = of(run_id=these)
        rows = db.execute(_SEVERAL, chosen).all()
        _count_time(db, rows, now)
        db.execute(_CHANGE_ALL, chosen | {"state": state, "cause": cause, "ended": now})
        owe_lists(db, these)
        log_all(db, state.value, cause, [(row.run_id, row.task) for row in rows])


def retry(
    db: sa.Connection, run_id: str, user: str | None = None, work: orders.Work | None = None
) -> None:
    """Queue a run again, with a fresh budget of deaths, if it failed or was cancelled. `user` and
    `work`: whose it is from now on, and as they request it, if another requested it before."""
    if db.scalar(_STATE, of(run_id=run_id)) in STOPPED:
        whose = {"user": user} if user else {}
        if isinstance(work, orders.EvaluateWork):  # it names its user
            whose["work"] = work.model_dump_json()
        row = _update(db, run_id, state=RunState.QUEUED, deaths=0, cause=None, ended=None, **whose)
        log(db, "retried", f"{row.kind} is queued again", row.task, run_id)


def queue_again(db: sa.Connection, run_id: str, why: str) -> None:
    """Queue a run again that has no result, or whose result is of no use any more."""
    row = _update(db, run_id, state=RunState.QUEUED, deaths=0, cause=None, result=None, ended=None)
    log(db, "queued", f"again: {why}", row.task, run_id)


def start_over(db: sa.Connection, run_id: str, why: str) -> None:
    """Start a run over, as if it had never had a lease: its next start deletes the shards that it
    was told of. If it runs, it is queued again."""
    row = _update(db, run_id, reached=-1, progress=None)
    log(db, "anew", why, row.task, run_id)
    if row.state == RunState.RUNNING:
        _change(db, row, state=RunState.QUEUED)


def is_done(db: sa.Connection, run_id: str) -> bool:
    return exists(db, RUN, run_id=run_id, state=RunState.DONE)


def end(db: sa.Connection, run_id: str, result: orders.Result, written: str = "") -> sa.Row:
    """Mark a run as done with this result. `written`: the result as JSON, if it exists already."""
    text = written or result.model_dump_json()
    return _update(db, run_id, state=RunState.DONE, result=text, cause=None, ended=time.time())


def run_of(row: sa.Row) -> RunRecord:
    kept = {name: value for name, value in row._mapping.items() if name not in ("work", "result")}
    kept["state"] = RunState(row.state)
    kept["progress"] = row.progress and orders.Progress.model_validate_json(row.progress)
    return RunRecord(**kept, written=row.work)
