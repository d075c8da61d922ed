"""The registry: everything that is kept, in SQL. Only the coordinator writes it.

Every public write is one transaction and can be repeated: what is there already stays as it is.
A vector is a row only after its blob lies in the store; the row and the move of its alias are one
transaction. Versions of a task count 1, 2, ... without gaps.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import Field, TypeAdapter

from cluster.messages import (
    CHAMPION,
    GENERIC,
    Base,
    BlobRef,
    Composition,
    Evaluated,
    Measured,
    Pair,
    Progress,
    RecipeTerm,
    Refreshed,
    RefreshWork,
    Result,
    Shard,
    Submission,
    Trained,
    TrainWork,
    VectorRef,
    Work,
)
from cluster.schema import (
    ALIAS,
    ARRIVAL,
    COMPOSITION,
    EVENT,
    META,
    METADATA,
    PAIR,
    REQUEST,
    RUN,
    SCHEMA,
    SHARD,
    TASK,
    USER,
    VECTOR,
    make_durable,
)
from tacl.errors import BadConfig, BaseMismatch, NameTaken, RunFailed, UnknownTask, UnknownVector

OWED = ("queued", "running")
_WORK: TypeAdapter[Work] = TypeAdapter(Annotated[Work, Field(discriminator="kind")])
_TERMS: TypeAdapter[tuple[RecipeTerm, ...]] = TypeAdapter(tuple[RecipeTerm, ...])


@dataclass(frozen=True)
class Task:
    """An accepted task and the run that trains it."""

    name: str
    ordinal: int
    run_id: str
    submission: Submission
    created: float


@dataclass(frozen=True)
class Run:
    """A piece of work and how far it is; the columns of RUN."""

    number: int
    run_id: str
    kind: str
    task: str | None
    work: Work
    state: str
    attempt: int
    deaths: int
    cause: str | None
    reached: int
    progress: Progress | None
    created: float
    started: float | None
    ended: float | None


@dataclass(frozen=True)
class Vector:
    """A published version with what made it."""

    reference: VectorRef
    norm: float | None
    config: dict[str, object]
    curves: dict[str, list[float]]
    created: float


@dataclass(frozen=True)
class Request:
    """A client's id for what it asked, a digest of that, and the answer it gets every time."""

    request_id: str
    asked: str
    answer: str


class Registry:
    """One database; see the module's docstring. `url` as SQLAlchemy reads it."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)
        if self._engine.dialect.name == "sqlite":
            make_durable(self._engine)
        with self._write() as db:
            METADATA.create_all(db)
            found = db.scalar(sa.select(META.c.value).where(META.c.name == "schema"))
            if found is None:
                db.execute(META.insert().values(name="schema", value=SCHEMA))
            elif found != SCHEMA:
                raise BadConfig(
                    f"the registry {url} has schema {found}; this version of TACL reads schema "
                    f"{SCHEMA}. Use the version of TACL that wrote it."
                )

    def close(self) -> None:
        self._engine.dispose()

    # -- the base and its reference shard

    def founded(self, base: Base, generic: BlobRef) -> None:
        """The first call decides; another base later is BaseMismatch."""
        with self._write() as db:
            text = db.scalar(sa.select(META.c.value).where(META.c.name == "base"))
            if text is None:
                db.execute(META.insert().values(name="base", value=base.model_dump_json()))
                _add_shard(db, Shard(task=GENERIC, ordinal=0, blob=generic))
                _log(db, "founded", f"base {base.spec}; {generic.rows} generic samples")
            elif (known := Base.model_validate_json(text)).digest != base.digest:
                raise BaseMismatch(
                    f"this home was made with {known.spec} (digest {known.digest[:12]}), and now "
                    f"{base.spec} (digest {base.digest[:12]}) is asked for. A home has one base: "
                    "use another --home."
                )

    # -- requests

    def answer(self, request_id: str, asked: str) -> str | None:
        """The answer already given. NameTaken when the id was used to ask something else."""
        with self._read() as db:
            row = db.execute(sa.select(REQUEST).where(REQUEST.c.request_id == request_id)).first()
        if row is not None and row.asked != asked:
            raise NameTaken(f"request id {request_id} was used to ask something else; use a new id")
        return None if row is None else row.answer

    # -- tasks and samples

    def accept(self, submission: Submission, work: TrainWork, request: Request) -> int:
        """Task, shard, run and answer; the task's ordinal. NameTaken when the name is."""
        name = submission.name
        with self._write() as db:
            if db.scalar(sa.select(TASK.c.name).where(TASK.c.name == name)):
                raise NameTaken(f"there is a task {name} already; submit under another name")
            ordinal = 1 + (db.scalar(sa.select(sa.func.max(TASK.c.ordinal))) or 0)
            row = {"name": name, "ordinal": ordinal, "run_id": work.run_id}
            row |= {"submission": submission.model_dump_json(), "created": time.time()}
            db.execute(TASK.insert().values(row))
            _add_shard(db, Shard(task=name, ordinal=ordinal, blob=submission.shard))
            _log(db, "submitted", f"{submission.train.rows} training rows", name, work.run_id)
            _add_run(db, work, name)
            _remember(db, request)
        return ordinal

    def grow(self, shard: Shard, request: Request) -> None:
        """A further version of a task's shard; one that is there already stays as it is."""
        with self._write() as db:
            same = sa.and_(SHARD.c.task == shard.task, SHARD.c.version == shard.version)
            if not _exists(db, same):
                _add_shard(db, shard)
                text = f"version {shard.version} of the samples: {shard.blob.rows} rows"
                _log(db, "samples", text, shard.task)
            _remember(db, request)

    def task(self, name: str) -> Task:
        """UnknownTask says which there are."""
        with self._read() as db:
            row = db.execute(sa.select(TASK).where(TASK.c.name == name)).first()
            names = db.scalars(sa.select(TASK.c.name).order_by(TASK.c.ordinal)) if not row else []
            if row is None:
                there_is = ", ".join(names) or "none yet"
                raise UnknownTask(f"no task is named {name}; there is {there_is}")
        return _task(row)

    def tasks(self) -> list[Task]:
        """By arrival."""
        with self._read() as db:
            return [_task(row) for row in db.execute(sa.select(TASK).order_by(TASK.c.ordinal))]

    def shards(self, task: str | None = None) -> list[Shard]:
        """Every version (of one task), by arrival of the task, then by version."""
        query = sa.select(SHARD).order_by(SHARD.c.ordinal, SHARD.c.version)
        with self._read() as db:
            rows = db.execute(query if task is None else query.where(SHARD.c.task == task))
            return [_shard(row) for row in rows]

    # -- runs

    def add_run(self, work: Work, task: str | None, request: Request | None = None) -> None:
        """Queue a piece of work; one of that id that is there already stays as it is."""
        with self._write() as db:
            _add_run(db, work, task)
            if request is not None:
                _remember(db, request)

    def start(self, run_id: str) -> Work:
        """Mark it running; the work with the number of this attempt."""
        with self._write() as db:
            row = db.execute(sa.select(RUN).where(RUN.c.run_id == run_id)).one()
            attempt = row.attempt + 1
            _update(db, run_id, state="running", attempt=attempt, started=time.time())
            _log(db, "started", f"attempt {attempt} of {row.kind}", row.task, run_id)
        return _run(row).work.model_copy(update={"attempt": attempt})

    def requeue(self, run_id: str, cause: str) -> None:
        """Its process died: queue it again, and count that."""
        with self._write() as db:
            row = _update(db, run_id, state="queued", deaths=RUN.c.deaths + 1, cause=cause)
            _log(db, "died", cause, row.task, run_id)

    def fail(self, run_id: str, cause: str) -> None:
        with self._write() as db:
            row = _update(db, run_id, state="failed", cause=cause, ended=time.time())
            _log(db, "failed", cause, row.task, run_id)

    def retry(self, run_ids: Collection[str]) -> None:
        """Queue what failed again, with a fresh budget."""
        with self._write() as db:
            for run_id in run_ids:
                row = _update(db, run_id, state="queued", deaths=0, cause=None, ended=None)
                _log(db, "retried", f"{row.kind} is queued again", row.task, run_id)

    def finish(self, run_id: str, result: Measured | Evaluated | Refreshed) -> None:
        """A result that publishes no vector; measured pairs become rows."""
        with self._write() as db:
            if _done(db, run_id):
                return
            row = _end(db, run_id, result)
            if isinstance(result, Measured):
                _add_pairs(db, result.pairs)
                _log(db, "measured", f"{len(result.pairs)} pairs", row.task, run_id)
            elif isinstance(result, Refreshed):
                _log(db, "refused", f"the refresh was refused: {result.reason}", row.task, run_id)

    def publish(self, run_id: str, result: Trained | Refreshed) -> VectorRef:
        """The run's vector as the next version, its pairs, and the champion moved from its parent.

        The blobs already lie in the store. Published before: the same version again.
        """
        with self._write() as db:
            if _done(db, run_id):
                text = sa.select(VECTOR.c.reference).where(VECTOR.c.run_id == run_id)
                return VectorRef.model_validate_json(db.scalar(text) or "")
            row = _end(db, run_id, result)
            reference = _reference(db, _run(row), result)
            _add_vector(db, reference, result)
            _add_pairs(db, [_filled(pair, reference) for pair in result.pairs])
            moved = _move(db, reference.task, CHAMPION, reference.parent, reference.version)
            champion = "the champion" if moved else "not the champion: that was moved meanwhile"
            text = f"version {reference.version}, {champion}"
            _log(db, "published", text, reference.task, run_id)
        return reference

    def told(
        self, run_id: str, step: int, newcomers: Sequence[Shard], progress: Progress | None
    ) -> None:
        """A run reached `step`, from which on it knows the newcomers.

        Called at every step: a power cut may lose the latest, as it loses the steps themselves.
        """
        with self._write("relaxed") as db:
            reached = sa.case((RUN.c.reached < step, step), else_=RUN.c.reached)
            values: dict[str, Any] = {"reached": reached}
            if progress is not None:
                values["progress"] = progress.model_dump_json()
            db.execute(RUN.update().where(RUN.c.run_id == run_id).values(values))
            for shard in newcomers:
                row = {"run_id": run_id, "task": shard.task, "version": shard.version}
                db.execute(ARRIVAL.insert().values(row | {"step": step}))

    def run(self, run_id: str) -> Run:
        """RunFailed when there is none."""
        with self._read() as db:
            row = db.execute(sa.select(RUN).where(RUN.c.run_id == run_id)).first()
        if row is None:
            raise RunFailed(f"there is no run {run_id}")
        return _run(row)

    def runs(
        self,
        states: Sequence[str] | None = None,
        task: str | None = None,
        kinds: Sequence[str] | None = None,
    ) -> list[Run]:
        """In order of acceptance."""
        query = sa.select(RUN).order_by(RUN.c.number)
        if states is not None:
            query = query.where(RUN.c.state.in_(states))
        if task is not None:
            query = query.where(RUN.c.task == task)
        if kinds is not None:
            query = query.where(RUN.c.kind.in_(kinds))
        with self._read() as db:
            return [_run(row) for row in db.execute(query)]

    def result(self, run_id: str) -> dict[str, object] | None:
        """None while there is none."""
        with self._read() as db:
            text = db.scalar(sa.select(RUN.c.result).where(RUN.c.run_id == run_id))
        return None if text is None else json.loads(text)

    def arrivals(self, run_id: str) -> list[tuple[int, Shard]]:
        """(step, shard) by step, then by arrival of the task: what the run was told, and when."""
        same = sa.and_(SHARD.c.task == ARRIVAL.c.task, SHARD.c.version == ARRIVAL.c.version)
        query = sa.select(ARRIVAL.c.step, SHARD).join(SHARD, same)
        query = query.where(ARRIVAL.c.run_id == run_id).order_by(ARRIVAL.c.step, SHARD.c.ordinal)
        with self._read() as db:
            return [(row.step, _shard(row)) for row in db.execute(query)]

    # -- vectors

    def vector(self, task: str, version: int) -> VectorRef:
        """UnknownVector says which versions there are."""
        versions = [entry.reference for entry in self.vectors(task)]
        for reference in versions:
            if reference.version == version:
                return reference
        there_is = f"v1 to v{len(versions)}" if versions else "none yet"
        raise UnknownVector(f"{task} has no version v{version}; there is {there_is}")

    def vectors(self, task: str | None = None, version: int | None = None) -> list[Vector]:
        """Of one task or all, of one version or all; by task's name, then by version."""
        query = sa.select(VECTOR).order_by(VECTOR.c.task, VECTOR.c.version)
        if task is not None:
            query = query.where(VECTOR.c.task == task)
        if version is not None:
            query = query.where(VECTOR.c.version == version)
        with self._read() as db:
            return [_vector(row) for row in db.execute(query)]

    def aliases(self, task: str) -> dict[str, int]:
        with self._read() as db:
            rows = db.execute(sa.select(ALIAS).where(ALIAS.c.task == task))
            return {row.name: row.version for row in rows}

    def champions(self) -> list[Vector]:
        """The vector of every task that has one, by task's name."""
        query = sa.select(VECTOR).join(ALIAS, _is_champion(VECTOR)).order_by(VECTOR.c.task)
        with self._read() as db:
            return [_vector(row) for row in db.execute(query)]

    def champion_pairs(self) -> list[Pair]:
        """Every measured pair of the champions, with any version of any shard."""
        query = sa.select(PAIR).join(ALIAS, _is_champion(PAIR))
        with self._read() as db:
            return [Pair(**row._mapping) for row in db.execute(query)]

    def seen(self, reference: VectorRef) -> frozenset[str]:
        """Digests of the shards the vector was trained or refreshed against."""
        work = self.run(reference.run_id).work
        if isinstance(work, RefreshWork):
            return frozenset(shard.blob.digest for shard in work.others)
        if isinstance(work, TrainWork) and work.submission.options.penalty == "none":
            return frozenset()
        return frozenset(shard.blob.digest for _, shard in self.arrivals(reference.run_id))

    # -- models

    def compose(self, model: Composition, request: Request) -> None:
        """Keep the recipe and move the user's model to it."""
        with self._write() as db:
            if not _exists(db, COMPOSITION.c.digest == model.digest):
                terms = _TERMS.dump_json(model.terms).decode()
                row = {"digest": model.digest, "method": model.method, "terms": terms}
                db.execute(COMPOSITION.insert().values(row))
            known = _exists(db, USER.c.name == model.user)
            change = USER.update().where(USER.c.name == model.user) if known else USER.insert()
            db.execute(change.values(name=model.user, composition=model.digest))
            _log(db, "composed", f"{model.user}: {model.digest}")
            _remember(db, request)

    def compositions(self, user: str | None = None) -> list[Composition]:
        """The current model of every user (of one), by name."""
        query = sa.select(USER.c.name.label("user"), COMPOSITION).join(
            COMPOSITION, COMPOSITION.c.digest == USER.c.composition
        )
        query = query.order_by(USER.c.name)
        with self._read() as db:
            rows = db.execute(query if user is None else query.where(USER.c.name == user))
            return [_composition(row) for row in rows]

    # -- what happened

    def events(self, task: str) -> list[dict[str, object]]:
        """Oldest first."""
        columns = (EVENT.c.at, EVENT.c.kind, EVENT.c.task, EVENT.c.run_id, EVENT.c.text)
        query = sa.select(*columns).where(EVENT.c.task == task).order_by(EVENT.c.number)
        with self._read() as db:
            return [dict(row._mapping) for row in db.execute(query)]

    def _write(self, write: str = "durable") -> AbstractContextManager[sa.Connection]:
        return self._engine.execution_options(write=write).begin()

    def _read(self) -> AbstractContextManager[sa.Connection]:
        return self._engine.connect()


def _exists(db: sa.Connection, condition: sa.ColumnElement[bool]) -> bool:
    return bool(db.scalar(sa.select(sa.exists().where(condition))))


def _is_champion(table: sa.Table) -> sa.ColumnElement[bool]:
    same = sa.and_(ALIAS.c.task == table.c.task, ALIAS.c.version == table.c.version)
    return sa.and_(same, ALIAS.c.name == CHAMPION)


def _remember(db: sa.Connection, request: Request) -> None:
    db.execute(REQUEST.insert().values(vars(request)))


def _log(
    db: sa.Connection, kind: str, text: str, task: str | None = None, run_id: str | None = None
) -> None:
    row = {"at": time.time(), "kind": kind, "task": task, "run_id": run_id, "text": text}
    db.execute(EVENT.insert().values(row))


def _add_shard(db: sa.Connection, shard: Shard) -> None:
    row = {"task": shard.task, "version": shard.version, "ordinal": shard.ordinal}
    row |= {"digest": shard.blob.digest, "rows": shard.blob.rows, "created": time.time()}
    db.execute(SHARD.insert().values(row))


def _add_run(db: sa.Connection, work: Work, task: str | None) -> None:
    if _exists(db, RUN.c.run_id == work.run_id):
        return
    row = {"run_id": work.run_id, "kind": work.kind, "task": task, "state": "queued"}
    row |= {"attempt": 0, "deaths": 0, "reached": -1, "created": time.time()}
    db.execute(RUN.insert().values(work=work.model_dump_json(), **row))
    _log(db, "queued", work.kind, task, work.run_id)


def _update(db: sa.Connection, run_id: str, **values: Any) -> sa.Row:
    db.execute(RUN.update().where(RUN.c.run_id == run_id).values(values))
    return db.execute(sa.select(RUN).where(RUN.c.run_id == run_id)).one()


def _done(db: sa.Connection, run_id: str) -> bool:
    return _exists(db, sa.and_(RUN.c.run_id == run_id, RUN.c.state == "done"))


def _end(db: sa.Connection, run_id: str, result: Result) -> sa.Row:
    text = result.model_dump_json()
    return _update(db, run_id, state="done", result=text, cause=None, ended=time.time())


def _reference(db: sa.Connection, run: Run, result: Trained | Refreshed) -> VectorRef:
    """The next version of the run's task."""
    assert run.task is not None  # whoever makes a vector makes it for a task
    newest = sa.select(sa.func.max(VECTOR.c.version)).where(VECTOR.c.task == run.task)
    parent = run.work.vector if isinstance(run.work, RefreshWork) else None
    head = result.head_blob if isinstance(result, Trained) else parent and parent.head_blob
    if result.vector_digest is None or result.vector_blob is None or head is None:
        raise ValueError(f"run {run.run_id} has no vector to publish")
    return VectorRef(
        task=run.task,
        version=1 + (db.scalar(newest) or 0),
        digest=result.vector_digest,
        blob=result.vector_blob,
        head_blob=head,
        run_id=run.run_id,
        parent=parent and parent.version,
        accepted_metrics=result.metrics,
    )


def _add_vector(db: sa.Connection, ref: VectorRef, result: Trained | Refreshed) -> None:
    row = {"task": ref.task, "version": ref.version, "run_id": ref.run_id, "norm": result.norm}
    row |= {"reference": ref.model_dump_json(), "created": time.time()}
    row |= {"config": json.dumps(result.config), "curves": json.dumps(result.curves)}
    db.execute(VECTOR.insert().values(row))


def _filled(pair: Pair, ref: VectorRef) -> Pair:
    """A learner does not know which version its vector will be."""
    names = {"task": ref.task, "version": ref.version, "vector_digest": ref.digest}
    return pair.model_copy(update=names)


def _add_pairs(db: sa.Connection, pairs: Sequence[Pair]) -> None:
    for pair in pairs:
        row = pair.model_dump()
        names = ("task", "version", "on", "shard_digest")
        if not _exists(db, sa.and_(*(PAIR.c[name] == row[name] for name in names))):
            db.execute(PAIR.insert().values(row))


def _move(db: sa.Connection, task: str, name: str, expected: int | None, version: int) -> bool:
    """Compare and swap: only from the expected version (None: from nowhere)."""
    if expected is None:
        if _exists(db, sa.and_(ALIAS.c.task == task, ALIAS.c.name == name)):
            return False
        db.execute(ALIAS.insert().values(task=task, name=name, version=version))
        return True
    held = sa.and_(ALIAS.c.task == task, ALIAS.c.name == name, ALIAS.c.version == expected)
    return db.execute(ALIAS.update().where(held).values(version=version)).rowcount == 1


def _task(row: sa.Row) -> Task:
    submission = Submission.model_validate_json(row.submission)
    return Task(row.name, row.ordinal, row.run_id, submission, row.created)


def _shard(row: sa.Row) -> Shard:
    blob = BlobRef(digest=row.digest, rows=row.rows)
    return Shard(task=row.task, ordinal=row.ordinal, blob=blob, version=row.version)


def _run(row: sa.Row) -> Run:
    values = dict(row._mapping)
    values.pop("result")
    work = _WORK.validate_json(values.pop("work"))
    progress = values.pop("progress")
    return Run(
        **values,
        work=work.model_copy(update={"attempt": row.attempt}),
        progress=None if progress is None else Progress.model_validate_json(progress),
    )


def _vector(row: sa.Row) -> Vector:
    reference = VectorRef.model_validate_json(row.reference)
    config, curves = json.loads(row.config), json.loads(row.curves)
    return Vector(reference, row.norm, config, curves, row.created)


def _composition(row: sa.Row) -> Composition:
    terms = _TERMS.validate_json(row.terms)
    return Composition(digest=row.digest, user=row.user, method=row.method, terms=terms)
