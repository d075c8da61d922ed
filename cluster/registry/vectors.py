"""Published vectors.

A vector gets a row only once its blob is in the blob store; the row and the move of its alias are
one transaction. Versions of a task count 1, 2, ... without gaps.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import JsonValue

from cluster.domain.compositions import Fitted
from cluster.domain.reports import MeasuredVector
from cluster.domain.tasks import CHAMPION, Pair, VectorRef
from cluster.domain.work import Evaluated, Measured, Refreshed, RefreshWork, Trained
from cluster.registry.aliases import is_champion, move
from cluster.registry.balance import change_balance
from cluster.registry.database import change, equals_param, in_params, insert_once, of, put, value
from cluster.registry.effects import Effects, add_effects
from cluster.registry.erasure import owe_lists
from cluster.registry.journal import log
from cluster.registry.runs import RunRecord, RunTable, end, is_done, run_of
from cluster.registry.samples import present
from cluster.registry.schema import ALIAS, ARRIVAL, NEAR, OF_SHARD, RUN, SHARD, STRING, TASK, VECTOR
from cluster.registry.tasks import is_private
from tacl.errors import UnknownVector

SAME_KIND = "another task has samples of the same kind: neither is held against the other"

_VECTOR = sa.select(VECTOR.c.reference).where(*equals_param(VECTOR.c.task, VECTOR.c.version))
_REFERENCES = (
    sa.select(VECTOR.c.reference).where(*equals_param(VECTOR.c.task)).order_by(VECTOR.c.version)
)
_PINNED = sa.select(VECTOR.c.task, VECTOR.c.version, VECTOR.c.reference).where(
    in_params(VECTOR.c.task), in_params(VECTOR.c.version)
)
_NAME, _NUMBER = sa.bindparam("of_task", type_=STRING), sa.bindparam("of_version")
_NO_CURVES = sa.literal("{}").label("curves")
# By EXISTS for each version: otherwise a list of all tasks would be made for every page.
_OF_PRESENT = sa.exists().where(TASK.c.name == VECTOR.c.task, TASK.c.removed.is_(None))
_NEXT = (
    sa.select(*(_NO_CURVES if column is VECTOR.c.curves else column for column in VECTOR.c))
    .where(_OF_PRESENT, VECTOR.c.task >= _NAME)
    .where(sa.or_(VECTOR.c.task > _NAME, VECTOR.c.version > _NUMBER))
    .order_by(VECTOR.c.task, VECTOR.c.version)
    .limit(sa.bindparam("of_most", type_=sa.Integer))
)
_NEXT_OF = (
    sa.select(VECTOR)
    .where(_OF_PRESENT, VECTOR.c.task == _NAME, VECTOR.c.version > _NUMBER)
    .order_by(VECTOR.c.version)
    .limit(sa.bindparam("of_most", type_=sa.Integer))
)
_FIRST = sa.select(VECTOR.c.reference).where(VECTOR.c.version == 1).order_by(VECTOR.c.task)
_FIRST_OF = _FIRST.where(in_params(VECTOR.c.task))
_COUNTED = (
    sa.select(ARRIVAL.c.run_id, sa.func.count())
    .where(in_params(ARRIVAL.c.run_id))
    .group_by(ARRIVAL.c.run_id)
)
_TOLD = (
    sa.select(ARRIVAL.c.run_id, ARRIVAL.c.step, ARRIVAL.c.left, ARRIVAL.c.task, ARRIVAL.c.version)
    .join(SHARD, OF_SHARD)
    .where(in_params(ARRIVAL.c.run_id))
    .order_by(ARRIVAL.c.step, SHARD.c.ordinal)
)
# By ids alone: with their kind SQLite would scan all runs of that kind.
_WORKS = sa.select(RUN.c.run_id, RUN.c.kind, RUN.c.work).where(in_params(RUN.c.run_id))
_MET = sa.select(SHARD.c.digest).join(ARRIVAL, OF_SHARD).where(*equals_param(ARRIVAL.c.run_id))


@dataclass(frozen=True)
class VectorRecord:
    """A published version with what made it."""

    reference: VectorRef
    norm: float | None
    config: dict[str, JsonValue]
    curves: dict[str, list[float]]
    created: float


class Met(NamedTuple):
    """Samples that a run saw from `step` on, until their task left at step `left`."""

    step: int
    left: int | None
    task: str
    version: int


class VectorTable(RunTable, Effects):
    """Every version of every task's vector."""

    def finish(
        self, run_id: str, result: Measured | Evaluated | Fitted | Refreshed, written: str = ""
    ) -> None:
        """Record a result that publishes no vector; measured pairs join the rows of their vectors.
        `written`: the result as JSON, if it exists already."""
        with self._write() as db:
            if is_done(db, run_id):
                return
            row = end(db, run_id, result, written)
            if isinstance(result, Measured):
                add_effects(db, result.pairs)
                log(db, "measured", f"{len(result.pairs)} pairs", row.task, run_id)
            elif isinstance(result, Fitted):
                owe_lists(db, [run_id])
                log(db, "fitted", f"the heads of {len(result.heads)} tasks", None, run_id)
            elif isinstance(result, Evaluated):
                log(db, "evaluated", f"accuracy {result.absolute:.3f}", None, run_id)
            elif isinstance(result, Refreshed):
                log(db, "refused", f"the refresh was refused: {result.reason}", row.task, run_id)

    def publish(self, run_id: str, result: Trained | Refreshed, grant: int = 0) -> VectorRef:
        """Record the run's vector as the next version, with its pairs and what is granted for it;
        it becomes champion if its parent is.

        The blobs are in the blob store already. Published before: returns the same version.
        """
        with self._write() as db:
            if is_done(db, run_id):
                return VectorRef.model_validate_json(value(db, VECTOR.c.reference, run_id=run_id))
            reference = _reference(db, run_of(end(db, run_id, result)), result)
            row = reference.model_dump(include={"task", "version", "run_id"})
            row |= {"reference": reference.model_dump_json(), "norm": result.norm}
            row |= {"config": json.dumps(result.config), "curves": json.dumps(result.curves)}
            put(db, VECTOR, **row)
            change_balance(db, grant)
            change(db, TASK, {"name": reference.task}, head=reference.head_blob)
            add_effects(db, [_filled(pair, reference) for pair in result.pairs])
            for other in result.near if isinstance(result, Trained) else ():
                insert_once(db, NEAR, task=reference.task, other=other)
                both = reference.task, other  # told to who sees both
                for one_of in [one for one in both if is_private(db, one)] or both:
                    log(db, "near", SAME_KIND, one_of, run_id)
            old = value(db, ALIAS.c.version, task=reference.task, name=CHAMPION)
            moved = old == reference.parent
            if moved:
                move(db, reference.task, CHAMPION, old, reference.version, "published")
            champion = "the champion" if moved else "not the champion: that was moved meanwhile"
            text = f"version {reference.version}, {champion}"
            log(db, "published", text, reference.task, run_id)
        return reference

    def near(self) -> set[tuple[str, str]]:
        """Pairs of tasks whose samples are the same kind of data, each both ways."""
        found = {(row.task, row.other) for row in self._rows(sa.select(NEAR))}
        return found | {(other, task) for task, other in found}

    def vector(self, task: str, version: int) -> VectorRef:
        """Raises UnknownVector, whose message names the versions that exist."""
        for text in self._values(_VECTOR, task=task, version=version):
            return VectorRef.model_validate_json(text)
        versions = len(self.references(task))
        there_is = ("none yet", "v1")[versions] if versions < 2 else f"v1 to v{versions}"
        raise UnknownVector(f"{task} has no version v{version}; there is {there_is}")

    def pinned(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], VectorRef]:
        """(task, version) -> vector, of those that exist."""
        tasks, versions = {task for task, _ in places}, {version for _, version in places}
        found, wanted = self._rows(_PINNED, task=tasks, version=versions), set(places)
        rows = (row for row in found if (row.task, row.version) in wanted)
        return {(r.task, r.version): VectorRef.model_validate_json(r.reference) for r in rows}

    def references(self, task: str) -> list[VectorRef]:
        """Every version, the oldest first."""
        texts = self._values(_REFERENCES, task=task)
        return [VectorRef.model_validate_json(text) for text in texts]

    def vectors(
        self, task: str | None = None, version: int | None = None, newest: int | None = None
    ) -> list[VectorRecord]:
        """Of one task or all, by task's name and version: all, this version, or the `newest`."""
        wanted = {VECTOR.c.task: task, VECTOR.c.version: version}
        these = (column == value for column, value in wanted.items() if value is not None)
        last = VECTOR.c.task.desc(), VECTOR.c.version.desc()
        rows = self._rows(sa.select(VECTOR).where(*these).order_by(*last).limit(newest))
        return [_vector(row) for row in reversed(rows)]

    def vectors_after(self, task: str | None, after: str, most: int) -> list[VectorRecord]:
        """The next versions after TASK@vN, by task's name and version, of one task or of all that
        were not removed; of all, without their curves."""
        name, _, number = after.rpartition("@v")
        place = {"task": task or name, "version": int(number or 0), "most": most}
        return [_vector(row) for row in self._rows(_NEXT if task is None else _NEXT_OF, **place)]

    def champions_with_norms(self, tasks: Collection[str]) -> dict[str, MeasuredVector]:
        """The champions of these tasks, by task; removed tasks are left out."""
        query = _of_champions(tasks, VECTOR.c.task, VECTOR.c.version, VECTOR.c.norm)
        return {row.task: MeasuredVector(**row._mapping) for row in self._rows(query)}

    def champion_references(self, tasks: Collection[str] | None = None) -> dict[str, VectorRef]:
        """Champions by task, of all tasks or of these; removed tasks are left out."""
        query = _of_champions(tasks, VECTOR.c.reference).order_by(VECTOR.c.task)
        return _by_task(self._values(query))

    def first_references(self, tasks: Collection[str] | None = None) -> dict[str, VectorRef]:
        """First versions, as they were trained, by task: of all tasks, or of these."""
        texts = self._values(_FIRST) if tasks is None else self._values(_FIRST_OF, task=tasks)
        return _by_task(texts)

    def champion_versions(self, tasks: Collection[str]) -> dict[str, int]:
        """The versions of champions of these tasks, by task; removed tasks are left out."""
        query = _of_champions(tasks, VECTOR.c.task, VECTOR.c.version)
        return {row.task: row.version for row in self._rows(query)}

    def met_counts(self, run_ids: Collection[str]) -> Counter[str]:
        """How many shards each of these runs was told of one by one."""
        return Counter({row[0]: row[1] for row in self._rows(_COUNTED, run_id=run_ids)})

    def met(self, run_ids: Collection[str]) -> dict[str, list[Met]]:
        """The samples that each of these runs made its version against: told one by one, by step
        and arrival, or all at the start."""
        found: dict[str, list[Met]] = {run_id: [] for run_id in run_ids}
        with self._read() as db:
            for run_id, kind, work in db.execute(_WORKS, of(run_id=run_ids)):
                others = json.loads(work)["others"] if kind == "refresh" else ()
                found[run_id] = [Met(0, None, one["task"], one["version"]) for one in others]
            for run_id, step, left, task, version in db.execute(_TOLD, of(run_id=run_ids)).all():
                found[run_id].append(Met(step, left, task, version))
        return found

    def seen(self, run_id: str) -> frozenset[str]:
        """Digests of the shards that the vector of this run was trained or refreshed against, those
        of its earlier versions included."""
        refreshed = set[str]()
        with self._read() as db:
            while (work := _work(db, run_id))["kind"] == "refresh":
                refreshed |= {shard["blob"]["digest"] for shard in work["others"]}
                run_id = work["vector"]["run_id"]
            if work["submission"]["options"]["penalty"] == "none":
                return frozenset(refreshed)
            return frozenset(refreshed.union(db.scalars(_MET, of(run_id=run_id)).all()))


def _of_champions(tasks: Collection[str] | None, *columns: sa.Column[Any]) -> sa.Select[Any]:
    """Of the champions of tasks that were not removed (and of these)."""
    query = sa.select(*columns).join(ALIAS, is_champion(VECTOR))
    return query.where(VECTOR.c.task.in_(present(tasks)))


def _by_task(references: Iterable[str]) -> dict[str, VectorRef]:
    found = map(VectorRef.model_validate_json, references)
    return {reference.task: reference for reference in found}


def _work(db: sa.Connection, run_id: str) -> dict[str, Any]:
    """The work as parsed JSON: no objects are built of long lists."""
    return json.loads(value(db, RUN.c.work, run_id=run_id))


def _reference(db: sa.Connection, run: RunRecord, result: Trained | Refreshed) -> VectorRef:
    """The next version of the run's task."""
    assert run.task is not None  # every vector is made for a task
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


def _filled(pair: Pair, ref: VectorRef) -> Pair:
    """Name the version of the vector, which its learner did not know."""
    names = {"task": ref.task, "version": ref.version, "vector_digest": ref.digest}
    return pair.model_copy(update=names)


def _vector(row: sa.Row) -> VectorRecord:
    reference = VectorRef.model_validate_json(row.reference)
    config, curves = json.loads(row.config), json.loads(row.curves)
    return VectorRecord(reference, row.norm, config, curves, row.created)
