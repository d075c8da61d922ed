"""A whole home in one process and without Ray: the real coordinator, work that is done at once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from cluster.blobs import Blobs
from cluster.coordinator import Coordinator
from cluster.home import Home, Settings, write
from cluster.launcher import Finished, Outcome, Raised
from cluster.messages import (
    Base,
    Composition,
    Evaluated,
    EvaluateWork,
    Measured,
    MeasureWork,
    Modality,
    Pair,
    Refreshed,
    RefreshWork,
    Result,
    Trained,
    TrainWork,
    Work,
)
from cluster.samples import store_shard
from cluster.state import Needs, Node


def made_home(path: Path, modality: Modality = "text") -> Home:
    """A home as the first `tacl up` leaves it."""
    home = Home(path)
    path.mkdir(parents=True)
    blobs = Blobs(path / "blobs")
    rows = [f"generic {i}" for i in range(8)]
    raw = rows if modality == "text" else [row.encode() for row in rows]
    generic = store_shard(blobs, raw, [i < 2 for i in range(8)])
    base = Base(spec="embedded", digest="0" * 64, modality=modality, head_kind="prototype")
    write(home.settings_file, Settings(base=base, generic=generic, blobs=str(path / "blobs")))
    return home


class Instant:
    """A launcher whose work is done when it is looked at; tasks in `broken` fail."""

    def __init__(self, home: Home) -> None:
        self.blobs = home.blobs()
        self.broken: set[str] = set()

    def nodes(self) -> tuple[Node, ...]:
        return (Node(2),)

    def start(self, work: Work, needs: Needs) -> Work:
        return work

    def cancel(self, handle: Any) -> None:
        pass

    def poll(self, handle: Work) -> Outcome | None:
        if isinstance(handle, TrainWork) and handle.submission.name in self.broken:
            return Raised("the loss is not a number at step 3")
        return Finished(self.result(handle))

    def result(self, work: Work) -> Result:
        if isinstance(work, TrainWork):
            return self.trained(work)
        if isinstance(work, RefreshWork):
            return Refreshed(
                accepted=False, reason="nothing to gain", config={}, metrics={}, curves={}
            )
        if isinstance(work, MeasureWork):
            return Measured(pairs=tuple(pair(vector, shard) for vector, shard in work.pairs))
        return evaluated(work)

    def trained(self, work: TrainWork) -> Trained:
        name = work.submission.name
        return Trained(
            vector_digest=hashlib.sha256(name.encode()).hexdigest(),
            vector_blob=self.blobs.put(f"vector of {name}".encode()),
            head_blob=self.blobs.put(f"head of {name}".encode()),
            config={"steps": 10},
            metrics={"validation_zero_shot": 0.25, "validation_accuracy": 0.875},
            curves={"loss": [1.0, 0.5]},
            norm=2.5,
        )


def pair(vector: Any, shard: Any) -> Pair:
    return Pair(
        task=vector.task,
        version=vector.version,
        vector_digest=vector.digest,
        on=shard.task,
        shard_digest=shard.blob.digest,
        tau_jp=2.0 if vector.task == shard.task else 0.5,
        standard_error=0.01,
        rows=64,
    )


def evaluated(work: EvaluateWork) -> Evaluated:
    row = {"zero_shot": 0.25, "individual": 0.9, "composed": 0.81, "rows": 20.0}
    return Evaluated(
        per_task={task.name: row for task in work.tasks},
        absolute=0.81,
        normalized=0.9,
        class_incremental=0.6,
        seconds=0.1,
    )


class InProcess(Coordinator):
    """The coordinator that looks after its work whenever it is asked how it is."""

    def status(self) -> dict[str, object]:
        self.tick()
        return super().status()

    def result(self, run_id: str) -> dict[str, object] | None:
        self.tick()
        return super().result(run_id)


class Guess:
    """A predictor that always says the same."""

    def predict(
        self, composition: Composition, inputs: list[bytes | str], tasks: list[str] | None = None
    ) -> list[dict[str, list[tuple[str, float]]]]:
        names = tasks or [term.vector.task for term in composition.terms]
        return [{name: [("a", 0.75), ("b", 0.25)] for name in names} for _ in inputs]
