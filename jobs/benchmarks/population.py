"""A home as after years of use: its registry is filled in bulk, over the files of its tasks.

Every row has the form and the size that the coordinator would give it. Only the way of writing
differs: thousands in a transaction instead of one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from cluster.api.access import hashed
from cluster.coordinator.recovery import restored
from cluster.coordinator.work_orders import fitting, listed
from cluster.domain.base import Base, BlobRef, identity
from cluster.domain.compositions import Composition, Fitted, FittedHead, RecipeTerm
from cluster.domain.tasks import CHAMPION, GENERIC, Options, Shard, Submission, VectorRef
from cluster.domain.work import FitTask, RefreshWork, TrainWork, Work, asked_by
from cluster.registry import Registry
from cluster.registry import schema as table
from cluster.registry.effects import BLOCK, RECORD
from cluster.scheduler.state import FitHeads
from cluster.scheduler.upkeep import COLUMN, RECENT, upkeep
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home, Settings, write
from cluster.storage.listed import listed_tasks
from cluster.storage.samples import store_rows, store_shard
from tacl.errors import BadConfig

BASE = Base(spec="fake:encoder", digest="ba5e" * 16, modality="text", head_kind="text")
TERMS = 5  # vectors in a composition
CHUNK = 10_000  # rows in memory
BEFORE = (0.25, 0.5, 0.75, 0.25)  # of the open tasks: earlier fits; no model uses the last

Say = Callable[[str], None]
Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """The sizes of a home."""

    tasks: int
    versions: int  # of each task
    compositions: int  # each of another user
    rows: int  # samples of each task
    told: int | None = None  # the newest tasks that a training was informed of; default: all
    private: int | None = None  # tasks with an owner each, private; None: no heads are fitted


FULL = Size(tasks=1000, versions=10, compositions=100_000, rows=1000)
TENTH = Size(tasks=100, versions=10, compositions=10_000, rows=1000)


@dataclass(frozen=True)
class Filed:
    """A task, and the blobs of its vector (the same in every version) and of its head."""

    submission: Submission
    vectors: Sequence[str]  # digests, one for each version
    blob: str
    head: str


class Terms(NamedTuple):
    """The terms of a recipe; `text` as the registry stores it."""

    terms: tuple[RecipeTerm, ...]
    text: str
    tasks: frozenset[str]


class Population:
    """`tasks` in the registry of a home whose settings are written, and models of these tasks."""

    def __init__(
        self, home: Home, tasks: Iterable[Filed], models: int = 0, told: int | None = None
    ) -> None:
        settings = home.settings()
        assert settings is not None
        self.home, self.base, self.models = home, settings.base, models
        self.generic = Shard(task=GENERIC, ordinal=0, blob=settings.generic)
        self.tasks = list(tasks)
        self.shards = [
            Shard(task=one.submission.name, ordinal=n, blob=one.submission.shard, head=one.head)
            for n, one in enumerate(self.tasks, start=1)
        ]
        private = sum(one.submission.private for one in self.tasks)
        self.open = self.shards[private:]  # of the tasks that are not private
        self._told = len(self.shards) if told is None else told

    def fill(self, say: Say = lambda line: None) -> None:
        registry = Registry(self.home.registry_url)
        if there := registry.task_names():
            raise BadConfig(f"the registry holds {len(there):,} tasks already: give an empty one")
        registry.founded(self.base, self.generic.blob)
        parts = self._tasks, self._versions, self._effects, self._arrivals, self._compositions
        with _in_bulk(registry) as db:
            for part in parts:
                say(f"writing {part.__name__.strip('_')}")
                for some in chunks(part()):
                    for target, rows in some.items():
                        _insert(db, target, rows)
            say("making indexes")
        say("writing fits")
        self._fits(registry)
        registry.close()

    def reference(self, number: int, version: int) -> VectorRef:
        """Version `version` of task `number`, both counted from 1."""
        one = self.tasks[number - 1]
        task = one.submission.name
        return VectorRef(
            task=task,
            version=version,
            digest=one.vectors[version - 1],
            blob=one.blob,
            head_blob=one.head,
            run_id=identity("run", {"task": task, "version": version}),
            parent=version - 1 or None,
            accepted_metrics={"validation_zero_shot": 0.5, "validation_accuracy": 0.875},
        )

    def newcomer(self, name: str, shard: BlobRef) -> Submission:
        """A new task like the existing ones."""
        changed = {"request_id": f"submit {name}", "name": name, "shard": shard}
        changed |= {"rows": identity("rows", {"task": name})}
        return self.tasks[-1].submission.model_copy(update=changed)

    def user(self, number: int) -> str:
        return f"user{number}"

    def _tasks(self) -> Iterator[tuple[Any, Row]]:
        for shard, one in zip(self.shards, self.tasks, strict=True):
            work = TrainWork(
                run_id=self.reference(shard.ordinal, 1).run_id,
                base=self.base,
                submission=one.submission,
                attempt=1,
            )
            row = {"name": shard.task, "ordinal": shard.ordinal, "run_id": work.run_id}
            row |= {"submission": one.submission.model_dump_json(), "created": time.time()}
            row |= {"owner": one.submission.owner, "rows": one.submission.rows}
            yield table.TASK, row | {"head": shard.head}
            row = {"task": shard.task, "version": 1, "ordinal": shard.ordinal}
            row |= {"digest": shard.blob.digest, "rows": shard.blob.rows, "created": time.time()}
            yield table.SHARD, row
            yield from self._version(shard, 1, work)

    def _versions(self) -> Iterator[tuple[Any, Row]]:
        for shard, one in zip(self.shards, self.tasks, strict=True):
            versions, others = len(one.vectors), self._near(shard)
            for version in range(2, versions + 1):
                work = RefreshWork(
                    run_id=self.reference(shard.ordinal, version).run_id,
                    base=self.base,
                    vector=self.reference(shard.ordinal, version - 1),
                    own=shard,
                    others=others,
                    options=one.submission.options,
                    attempt=1,
                )
                yield from self._version(shard, version, work)
            yield table.ALIAS, {"task": shard.task, "name": CHAMPION, "version": versions}

    def _version(self, shard: Shard, version: int, work: Work) -> Iterator[tuple[Any, Row]]:
        reference, now = self.reference(shard.ordinal, version), time.time()
        row = {"run_id": work.run_id, "kind": work.kind, "task": shard.task, "state": "done"}
        row |= {"attempt": 1, "deaths": 0, "reached": 300, "created": now, "started": now}
        row |= {"user": asked_by(work)}
        row |= {"version": version - 1} if isinstance(work, RefreshWork) else {}
        yield table.RUN, row | {"ended": now, "result": "{}", "work": work.model_dump_json()}
        row = {"task": shard.task, "version": version, "run_id": work.run_id, "norm": 1.0}
        row |= {"reference": reference.model_dump_json(), "created": now}
        curves = '{"loss": [' + ", ".join(["0.125"] * 300) + "]}"
        yield table.VECTOR, row | {"config": '{"steps": 300}', "curves": curves}
        row = {"at": now, "task": shard.task, "name": CHAMPION, "version": version}
        yield table.MOVE, row | {"came_from": version - 1 or None, "cause": "published"}
        for kind in ("queued", "started", "published"):
            row = {"at": now, "kind": kind, "task": shard.task, "run_id": work.run_id}
            yield table.EVENT, row | {"text": f"version {version}"}

    def _effects(self) -> Iterator[tuple[Any, Row]]:
        """Every champion on its own probe rows and those that the plan measures it on."""
        for shard, one in zip(self.shards, self.tasks, strict=True):
            others = {other.ordinal: other for other in (*self._near(shard), shard)}
            for block, probes in groupby(sorted(others), key=lambda ordinal: ordinal // BLOCK):
                sizes = [(n, 0.01 if n != shard.ordinal else 1.0) for n in probes]
                records = [
                    RECORD.pack(n, 1, 64, bool(others[n].head), size, 0.001, size, 0.001)
                    for n, size in sizes
                ]
                row = {"task": shard.task, "version": len(one.vectors), "block": block}
                yield table.EFFECT, row | {"measured": b"".join(records)}

    def _arrivals(self) -> Iterator[tuple[Any, Row]]:
        """The tasks that each training was informed of: those before it."""
        there = self.generic, *self.shards
        for shard in self.shards:
            run_id = self.reference(shard.ordinal, 1).run_id
            for other in there[max(0, shard.ordinal - self._told) : shard.ordinal]:
                yield table.ARRIVAL, {"run_id": run_id, "task": other.task, "version": 1, "step": 0}

    def _fits(self, registry: Registry) -> None:
        """Earlier fits of fewer tasks, then those that the plan requests: one of all open tasks,
        and one with those of each owner of private ones."""
        state = restored(registry, self.base.digest)
        while newest := next((one for one in upkeep(state) if isinstance(one, FitHeads)), None):
            for part, share in enumerate(() if newest.owner else BEFORE):
                some = islice(newest.champions.items(), round(share * len(newest.champions)))
                self._fit(registry, FitHeads(identity("fit", {"part": part}), "", dict(some)))
            self._fit(registry, newest)
            del state.runs[newest.run_id]
            state.done.add(newest.run_id)

    def _fit(self, registry: Registry, fit: FitHeads) -> None:
        blobs = self.home.blobs()
        work = listed(registry, blobs, fitting(self.base, fit), fit.champions)
        registry.add_run(work, None)
        tasks = listed_tasks(blobs, work.listed)
        registry.finish(work.run_id, fitted(work.run_id, tasks))

    def _near(self, shard: Shard) -> tuple[Shard, ...]:
        """The shards that the plan measures a vector on, and refreshes it against: those of the
        newest tasks when it came, and of the next ones."""
        first = max(0, shard.ordinal - 1 - RECENT)
        near = self.shards[first : shard.ordinal + COLUMN]
        return (self.generic, *(other for other in near if other is not shard))

    def _compositions(self) -> Iterator[tuple[Any, Row]]:
        for number in range(self.models):
            user, digest = self.user(number), self._model(number)
            terms = self._terms(number % len(self.tasks))
            yield table.COMPOSITION, {"digest": digest, "method": "sum", "terms": terms.text}
            for task in terms.tasks:
                yield table.HOLDS, {"task": task, "composition": digest}
            yield table.USER, {"name": user, "composition": digest}
            row = {"request_id": f"compose {number}", "asked": "asked", "answer": digest}
            yield table.REQUEST, row | {"at": time.time()}
            row = {"at": time.time(), "kind": "composed", "text": f"{user}: {digest}"}
            yield table.EVENT, row | {"composition": digest}
            row = {"hash": hashed(user), "user": user, "role": "user", "created": time.time()}
            yield table.TOKEN, row | {"used": time.time()}

    def composition(self, number: int) -> Composition:
        """The model of user `number`."""
        terms = self._terms(number % len(self.tasks)).terms
        return Composition(digest=self._model(number), user=self.user(number), terms=terms)

    def _model(self, number: int) -> str:
        return f"{number:064x}"

    @cache  # noqa: B019 - for as long as the bench
    def _terms(self, first: int) -> Terms:
        """A million users have few different recipes: each is made once."""
        before = len(self.tasks) - len(self.open)
        places = [before + (first * 7 + t * 13) % len(self.open) for t in range(TERMS)]
        vectors = [self.reference(place + 1, len(self.tasks[place].vectors)) for place in places]
        coefficient = 1.0 + first / len(self.tasks)
        terms = tuple(RecipeTerm(coefficient=coefficient, vector=vector) for vector in vectors)
        text = "[" + ",".join(term.model_dump_json() for term in terms) + "]"
        return Terms(terms, text, frozenset(term.vector.task for term in terms))


def fitted(run_id: str, tasks: Iterable[FitTask], blob: str = "") -> Fitted:
    """Heads of the form and the size of a learner's. `blob`: of every head; default: each has a
    file of its own, which does not exist."""

    def head(task: str, kind: str) -> str:
        return blob or identity(kind, {"run": run_id, "task": task})

    heads = tuple(
        FittedHead(
            task=one.vector.task,
            vector=one.vector.digest,
            head=head(one.vector.task, "head"),
            frozen=head(one.vector.task, "frozen"),
            accuracy=0.912345678,
            frozen_accuracy=0.812345678,
        )
        for one in tasks
    )
    figures = {"known": 0.912345678, "unknown": 0.812345678, "seconds": 1234.5}
    return Fitted(heads=heads, novelty=head("", "novelty"), metrics=figures)


@contextmanager
def _in_bulk(registry: Registry) -> Iterator[Any]:
    """One transaction, at whose end the indexes are made. In SQLite it has no journal: an
    interrupted registry is of no use."""
    indexes = [index for one in table.METADATA.tables.values() for index in one.indexes]
    with registry._engine.execution_options(write="relaxed").connect() as db:
        if db.dialect.name == "sqlite":
            driver: Any = db.connection.driver_connection
            for pragma in ("journal_mode=OFF", "cache_size=-500000"):
                driver.execute(f"PRAGMA {pragma}")
        with db.begin():
            for index in indexes:
                index.drop(db)
            yield db
            for index in indexes:
                index.create(db)


def _insert(db: Any, target: Any, rows: Sequence[Row]) -> None:
    """Insert by the driver itself: SQLAlchemy would take longer for each row than the database."""
    asked = target.insert().compile(dialect=db.dialect, column_keys=list(rows[0]))
    if asked.positiontup is None:
        db.exec_driver_sql(str(asked), rows)
    else:
        db.exec_driver_sql(str(asked), list(map(itemgetter(*asked.positiontup), rows)))


def chunks(rows: Iterable[tuple[Any, Row]]) -> Iterator[dict[Any, list[Row]]]:
    """The rows in chunks of CHUNK, by table."""
    iterator = iter(rows)
    while some := list(islice(iterator, CHUNK)):
        by_table: dict[Any, list[Row]] = {}
        for target, row in some:
            by_table.setdefault(target, []).append(row)
        yield by_table


def submitted(name: str, data: BlobRef, **stated: Any) -> Submission:
    """A submission with the same rows in each part."""
    stated |= dict.fromkeys(("train", "validation", "test"), data)
    return Submission(request_id=f"submit {name}", name=name, **stated)


def made_up(
    folder: Path, size: Size, say: Say = lambda line: None, registry: str | None = None
) -> Population:
    """A home of that size, whose blobs are real and tiny; its vectors are not real. `registry`: URL
    of an empty one, default SQLite."""
    folder.mkdir(parents=True)
    blobs = Blobs(folder / "blobs")
    generic = store_shard(blobs, ["a", "b"], [False, True])
    settings = Settings(base=BASE, generic=generic, blobs=str(folder / "blobs"), registry=registry)
    home = Home(folder)
    write(home.settings_file, settings)
    data = store_rows(blobs, ["yes", "no"], [0, 1])
    vector, head = blobs.put(b"a vector"), blobs.put(b"a head")
    probe = [row % 16 == 0 for row in range(size.rows)]

    def filed(number: int) -> Filed:
        is_private = number <= (size.private or 0)
        owner = f"owner{number}" if is_private else f"owner {len(str(number))}"
        name = f"{owner}.task{number}" if is_private else f"task{number}"
        inputs = [f"sample {row} of {name}" for row in range(size.rows)]
        task = submitted(
            name,
            data,
            owner=owner,
            private=is_private,
            modality="text",
            classes=[f"class {number}" for number in range(10)],
            shard=store_shard(blobs, inputs, probe),
            rows=identity("rows", {"task": name}),
            options=Options(workers=1, heads="trained" if size.private is None else "fitted"),
        )
        versions = range(1, size.versions + 1)
        vectors = [identity("vector", {"task": name, "version": version}) for version in versions]
        return Filed(task, vectors, vector, head)

    tasks = map(filed, range(1, size.tasks + 1))
    population = Population(home, tasks, size.compositions, size.told)
    population.fill(say)
    return population
