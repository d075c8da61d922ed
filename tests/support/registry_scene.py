"""Tasks, runs and vectors written straight into a registry."""

from __future__ import annotations

import math

from cluster.domain.base import Base, BlobRef
from cluster.domain.tasks import CHAMPION, GENERIC, Options, Pair, Submission
from cluster.domain.work import Refreshed, RefreshWork, Trained, TrainWork
from cluster.registry import Registry, Request

BASE = Base(spec="fake:encoder", digest="ba5e", modality="text", head_kind="text")

GENERIC_BLOB = BlobRef(digest="generic", rows=9)


def training(name: str, **options: object) -> TrainWork:
    blob = BlobRef(digest=f"data of {name}", rows=9)
    submission = Submission(
        request_id=f"submit {name}",
        name=name,
        owner="tester",
        modality="text",
        classes=("yes", "no"),
        train=blob,
        validation=blob,
        test=blob,
        shard=BlobRef(digest=f"{name} 1", rows=4),
        options=Options(**options),  # type: ignore[arg-type]
    )
    return TrainWork(run_id=f"train {name}", base=BASE, submission=submission, attempt=0)


def accept(registry: Registry, *names: str, **options: object) -> None:
    for name in names:
        work = training(name, **options)
        request = Request(work.submission.request_id, "asked", "answer")
        registry.accept(work.submission, work, request)


def pair(on: str, shard: str, tau: float = 0.5) -> Pair:
    return Pair(
        task="?",
        version=0,
        vector_digest="?",
        on=on,
        shard_digest=shard,
        tau_jp=tau,
        standard_error=math.inf,
        rows=1,
    )


def trained(name: str, *pairs: Pair) -> Trained:
    return Trained(
        vector_digest=f"{name} v1",
        vector_blob=f"blob of {name} v1",
        head_blob=f"head of {name}",
        config={"steps": 3},
        metrics={"validation_accuracy": 0.9},
        curves={"loss": [1.0, math.nan]},
        norm=2.0,
        pairs=pairs,
    )


def publish(registry: Registry, *names: str) -> None:
    accept(registry, *names)
    for name in names:
        registry.start(f"train {name}")
        registry.publish(f"train {name}", trained(name, pair(GENERIC, "generic")))


def refresh(registry: Registry, name: str, number: int, accepted: bool = True) -> RefreshWork:
    """A refresh of the champion, accepted as a run; its result is `refreshed(number)`."""
    version = registry.aliases(name)[CHAMPION]
    work = RefreshWork(
        run_id=f"refresh {name} {number}",
        base=BASE,
        vector=registry.vector(name, version),
        own=registry.shards(name)[-1],
        others=tuple(registry.shards(GENERIC)),
        options=Options(),
        attempt=0,
    )
    registry.add_run(work, name)
    return work


def refreshed(number: int) -> Refreshed:
    return Refreshed(
        accepted=True,
        reason="better",
        vector_digest=f"refreshed {number}",
        vector_blob=f"blob {number}",
        config={},
        metrics={"own_change": 0.01},
        curves={},
        norm=1.0,
    )
