"""A home as it is after years: its registry filled in bulk, its files real and tiny.

Every row has the form and the size that the coordinator would have given it. Only how it comes
there is other: by thousands in a transaction instead of one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from cluster.domain.base import Base, BlobRef, identity
from cluster.domain.compositions import Composition, RecipeTerm
from cluster.domain.tasks import CHAMPION, GENERIC, Options, Shard, Submission, VectorRef
from cluster.domain.work import RefreshWork, TrainWork, Work
from cluster.registry import Registry
from cluster.registry import schema as table
from cluster.storage.blobs import Blobs
from cluster.storage.home import Home, Settings, write
from cluster.storage.samples import store_rows, store_shard

BASE = Base(spec="fake:encoder", digest="ba5e" * 16, modality="text", head_kind="text")
OPTIONS = Options(workers=1)
TERMS = 5  # vectors in a composition
EARLY = 100  # other tasks that a version before the last was refreshed against
CHUNK = 10_000  # rows in one statement

Say = Callable[[str], None]
Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much there is."""

    tasks: int
    versions: int  # of each task
    compositions: int  # each of another user
    rows: int  # samples of each task


FULL = Size(tasks=1000, versions=10, compositions=100_000, rows=1000)
TENTH = Size(tasks=100, versions=10, compositions=10_000, rows=1000)


class Population:
    """What lies in a home of that size."""

    def __init__(self, folder: Path, size: Size, registry: str | None = None) -> None:
        self.size = size
        self.home = Home(folder)
        folder.mkdir(parents=True)
        self.blobs = Blobs(folder / "blobs")
        generic = store_shard(self.blobs, ["a", "b"], [False, True])
        self.generic = Shard(task=GENERIC, ordinal=0, blob=generic)
        settings = Settings(
            base=BASE, generic=generic, blobs=str(folder / "blobs"), registry=registry
        )
        write(self.home.settings_file, settings)
        self._head = self.blobs.put(b"a head")
        self._data = store_rows(self.blobs, ["yes", "no"], [0, 1])
        self.shards: list[Shard] = []

    def fill(self, say: Say) -> None:
        say("writing samples")
        self.shards = [self._shard(number) for number in range(1, self.size.tasks + 1)]
        self._vectors = [
            self.blobs.put(f"vector of {shard.task}".encode()) for shard in self.shards
        ]
        registry = Registry(self.home.registry_url)
        registry.founded(BASE, self.generic.blob)
        parts: dict[str, Iterator[tuple[Any, Row]]] = {
            "tasks": self._tasks(),
            "versions": self._versions(),
            "pairs": self._pairs(),
            "arrivals": self._arrivals(),
            "compositions": self._compositions(),
        }
        for name, rows in parts.items():
            say(f"writing {name}")
            for some in chunks(rows):
                with registry._write("relaxed") as db:
                    for target, values in some.items():
                        db.execute(target.insert(), values)
        registry.close()

    def submission(self, name: str, shard: BlobRef) -> Submission:
        return Submission(
            request_id=f"submit {name}",
            name=name,
            owner=f"owner {len(name)}",
            modality="text",
            classes=tuple(f"class {number}" for number in range(10)),
            train=self._data,
            validation=self._data,
            test=self._data,
            shard=shard,
            options=OPTIONS,
        )

    def reference(self, number: int, version: int) -> VectorRef:
        """Version `version` of task `number`, both from 1."""
        task = self.shards[number - 1].task
        return VectorRef(
            task=task,
            version=version,
            digest=identity("vector", {"task": task, "version": version}),
            blob=self._vectors[number - 1],
            head_blob=self._head,
            run_id=identity("run", {"task": task, "version": version}),
            parent=version - 1 or None,
            accepted_metrics={"validation_zero_shot": 0.5, "validation_accuracy": 0.875},
        )

    def user(self, number: int) -> str:
        return f"user{number}"

    def _shard(self, number: int) -> Shard:
        name, rows = f"task{number}", self.size.rows
        inputs = [f"sample {row} of {name}" for row in range(rows)]
        blob = store_shard(self.blobs, inputs, [row % 16 == 0 for row in range(rows)])
        return Shard(task=name, ordinal=number, blob=blob, head=self._head)

    def _tasks(self) -> Iterator[tuple[Any, Row]]:
        for shard in self.shards:
            submission = self.submission(shard.task, shard.blob)
            work = TrainWork(
                run_id=self.reference(shard.ordinal, 1).run_id,
                base=BASE,
                submission=submission,
                attempt=1,
            )
            row = {"name": shard.task, "ordinal": shard.ordinal, "run_id": work.run_id}
            row |= {"submission": submission.model_dump_json(), "created": time.time()}
            yield table.TASK, row | {"removed": None, "head": shard.head}
            row = {"task": shard.task, "version": 1, "ordinal": shard.ordinal}
            row |= {"digest": shard.blob.digest, "rows": shard.blob.rows, "created": time.time()}
            yield table.SHARD, row
            yield from self._version(shard, 1, work)

    def _versions(self) -> Iterator[tuple[Any, Row]]:
        everybody = (self.generic, *self.shards)
        for shard in self.shards:
            for version in range(2, self.size.versions + 1):
                last = version == self.size.versions
                known = everybody if last else everybody[:EARLY]
                work = RefreshWork(
                    run_id=self.reference(shard.ordinal, version).run_id,
                    base=BASE,
                    vector=self.reference(shard.ordinal, version - 1),
                    own=shard,
                    others=tuple(other for other in known if other is not shard),
                    options=OPTIONS,
                    attempt=1,
                )
                yield from self._version(shard, version, work)
            row = {"task": shard.task, "name": CHAMPION, "version": self.size.versions}
            yield table.ALIAS, row

    def _version(self, shard: Shard, version: int, work: Work) -> Iterator[tuple[Any, Row]]:
        reference, now = self.reference(shard.ordinal, version), time.time()
        row = {"run_id": work.run_id, "kind": work.kind, "task": shard.task, "state": "done"}
        row |= {"attempt": 1, "deaths": 0, "reached": 300, "created": now, "started": now}
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

    def _pairs(self) -> Iterator[tuple[Any, Row]]:
        """Every champion on every probe."""
        for shard in self.shards:
            champion = self.reference(shard.ordinal, self.size.versions)
            own = {"task": champion.task, "version": champion.version, "rows": 64}
            own |= {"vector_digest": champion.digest, "standard_error": 0.001}
            for other in (self.generic, *self.shards):
                tau_jp = 1.0 if other is shard else 0.01
                row = {"on": other.task, "shard_digest": other.blob.digest, "tau_jp": tau_jp}
                row |= {"head": other.head, "logits": tau_jp, "logits_error": 0.001}
                yield table.PAIR, own | row

    def _arrivals(self) -> Iterator[tuple[Any, Row]]:
        """A training was told of all tasks before it."""
        for shard in self.shards:
            run_id = self.reference(shard.ordinal, 1).run_id
            for other in (self.generic, *self.shards[: shard.ordinal - 1]):
                row = {"run_id": run_id, "task": other.task, "version": 1, "step": 0}
                yield table.ARRIVAL, row | {"left": None}

    def _compositions(self) -> Iterator[tuple[Any, Row]]:
        for number in range(self.size.compositions):
            model = self.composition(number)
            terms = "[" + ",".join(term.model_dump_json() for term in model.terms) + "]"
            row = {"digest": model.digest, "method": model.method, "terms": terms}
            yield table.COMPOSITION, row
            yield table.USER, {"name": model.user, "composition": model.digest}
            row = {"request_id": f"compose {number}", "asked": "asked", "answer": model.digest}
            yield table.REQUEST, row
            row = {"at": time.time(), "kind": "composed", "task": None, "run_id": None}
            yield table.EVENT, row | {"text": f"{model.user}: {model.digest}"}

    def composition(self, number: int) -> Composition:
        """The model of user `number`."""
        tasks, versions = self.size.tasks, self.size.versions
        terms = tuple(
            RecipeTerm(
                coefficient=1.0 + number / self.size.compositions,
                vector=self.reference((number * 7 + term * 13) % tasks + 1, versions),
            )
            for term in range(TERMS)
        )
        return Composition(
            digest=identity("sum", {"number": number}), user=self.user(number), terms=terms
        )


def chunks(rows: Iterable[tuple[Any, Row]]) -> Iterator[dict[Any, list[Row]]]:
    """Some thousand rows at a time, by table."""
    iterator = iter(rows)
    while some := list(islice(iterator, CHUNK)):
        by_table: dict[Any, list[Row]] = {}
        for target, row in some:
            by_table.setdefault(target, []).append(row)
        yield by_table
