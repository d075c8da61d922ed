"""What vectors do to the inputs of tasks. A version has one SQL row for each BLOCK of tasks, by
arrival; its column `measured` has a record for every probe that the version was measured on.

A row for every pair would be a million in a home of a thousand tasks, each ten times as long as a
record. What an arrival adds is about the newest tasks, and so in the last block of other vectors.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import isnan, nan
from typing import NamedTuple

import sqlalchemy as sa

from cluster.domain.tasks import GENERIC, Pair
from cluster.registry.aliases import is_champion
from cluster.registry.database import Database, equals_param, in_params, of, upsert, value
from cluster.registry.samples import present
from cluster.registry.schema import ALIAS, EFFECT, OF_TASK, SHARD, TASK

BLOCK = 128  # tasks
# Ordinal of the probe's task and version of its samples; rows of the probe; whether the task had a
# head. tau_jp and the change of the logits, each with its error; NaN where there is none.
RECORD = struct.Struct("<4I4d")
PLACE = struct.Struct("<2I")  # the probe of a record: its first two numbers

_OF_VERSION = equals_param(EFFECT.c.task, EFFECT.c.version)
_MEASURED = sa.select(EFFECT.c.measured).where(*_OF_VERSION).order_by(EFFECT.c.block)
_NAMES = sa.select(TASK.c.name).where(in_params(TASK.c.ordinal))
_PLACES = (
    sa.select(SHARD.c.task, SHARD.c.digest, SHARD.c.ordinal, SHARD.c.version)
    .where(in_params(SHARD.c.task))
    .order_by(SHARD.c.version)
)

Place = tuple[int, int]


class Found(NamedTuple):
    """What one version does on one probe; fields as in `Pair`."""

    on: str
    shard_digest: str
    head: str
    rows: int
    tau_jp: float
    standard_error: float
    logits: float | None
    logits_error: float | None


class Effects(Database):
    """The matrix of what vectors do, on samples of tasks that were not removed."""

    def effects(self, task: str, version: int) -> list[Found]:
        """What was measured of one version."""
        with self._read() as db:
            blocks = db.scalars(_MEASURED, of(task=task, version=version)).all()
            ordinals = {n for block in blocks for n, *_ in RECORD.iter_unpack(block)}
            names = db.scalars(_NAMES, of(ordinal=ordinals))
            probes = _probes(db, [GENERIC, *names])
            return [found for block in blocks for found in _found(block, probes)]

    def champion_effects(
        self, tasks: Collection[str] | None = None
    ) -> Iterator[tuple[str, list[Found]]]:
        """(task, a block of what was measured of its champion), by task; of all tasks, or of these
        on each other's samples."""
        query = sa.select(EFFECT).join(ALIAS, is_champion(EFFECT))
        query = query.where(EFFECT.c.task.in_(present(tasks)))
        with self._read() as db:
            probes = _probes(db, tasks)
            if tasks is not None:
                wanted = {ordinal // BLOCK for ordinal, _ in probes}
                query = query.where(EFFECT.c.block.in_(wanted))
            query = query.order_by(EFFECT.c.task, EFFECT.c.version, EFFECT.c.block)
            for row in db.execute(query, execution_options={"yield_per": 100}):
                yield row.task, list(_found(row.measured, probes))


Probes = Mapping[Place, tuple[str, str, str]]  # -> task, digest of its samples, of its head


_PROBES = (
    sa.select(SHARD.c.ordinal, SHARD.c.version, SHARD.c.task, SHARD.c.digest, TASK.c.head)
    .outerjoin_from(SHARD, TASK, OF_TASK)
    .where((SHARD.c.task == GENERIC) | (TASK.c.name.is_not(None) & TASK.c.removed.is_(None)))
)
_PROBES_OF = _PROBES.where(in_params(SHARD.c.task))


def _probes(db: sa.Connection, tasks: Collection[str] | None) -> Probes:
    """The probes of all tasks that were not removed, or of these among them."""
    all_ = tasks is None
    found = db.execute(_PROBES if all_ else _PROBES_OF, {} if all_ else of(task=tasks)).all()
    return {(n, version): (task, digest, head or "") for n, version, task, digest, head in found}


def _found(measured: bytes, probes: Probes) -> Iterator[Found]:
    """Read records. A task's head never changes; a record without one is from before it had one."""
    for ordinal, version, rows, behind, tau, error, logits, spread in RECORD.iter_unpack(measured):
        if (probe := probes.get((ordinal, version))) is not None:
            task, digest, head = probe
            change = (None, None) if isnan(logits) else (logits, spread)
            yield Found(task, digest, head if behind else "", rows, tau, error, *change)


def add_effects(db: sa.Connection, pairs: Sequence[Pair]) -> None:
    """Add pairs; one that is there already is replaced only if the new one has a head."""
    places = _places(db, {pair.on for pair in pairs})
    blocks: dict[tuple[str, int, int], list[Pair]] = {}
    for pair in pairs:
        ordinal, _ = places[pair.on, pair.shard_digest]
        blocks.setdefault((pair.task, pair.version, ordinal // BLOCK), []).append(pair)
    for (task, version, block), added in blocks.items():
        this = {"task": task, "version": version, "block": block}
        old = value(db, EFFECT.c.measured, **this) or b""
        starts = range(0, len(old), RECORD.size)
        known = {old[n : n + PLACE.size]: old[n : n + RECORD.size] for n in starts}
        for pair in added:
            place = PLACE.pack(*places[pair.on, pair.shard_digest])
            if pair.head or place not in known:
                known[place] = _record(pair, places[pair.on, pair.shard_digest])
        upsert(db, EFFECT, this, measured=b"".join(known.values()))


def _places(db: sa.Connection, tasks: Collection[str]) -> dict[tuple[str, str], Place]:
    """(task, digest of its samples) -> (its ordinal, the last version that had them)."""
    rows = db.execute(_PLACES, of(task=tasks))
    return {(task, digest): (n, version) for task, digest, n, version in rows}


def _record(pair: Pair, place: Place) -> bytes:
    change = (nan if size is None else size for size in (pair.logits, pair.logits_error))
    head = bool(pair.head)
    return RECORD.pack(*place, pair.rows, head, pair.tau_jp, pair.standard_error, *change)
