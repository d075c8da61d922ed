"""The registry: every write whole or not at all, repeatable, and on the disk when it returns."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from cluster.domain.base import Base, BlobRef
from cluster.domain.compositions import Composition, CompositionMethod, Merged, RecipeTerm, Report
from cluster.domain.methods import model_of
from cluster.domain.status import RunState
from cluster.domain.tasks import CHAMPION, GENERIC, Arrival, Options, Pair, Shard, Submission
from cluster.domain.work import (
    Composed,
    ComposeWork,
    Measured,
    MeasureWork,
    Progress,
    Refreshed,
    RefreshWork,
    Trained,
    TrainWork,
)
from cluster.registry import Registry, Request
from tacl.errors import (
    BadConfig,
    BaseMismatch,
    NameTaken,
    RunFailed,
    UnknownTask,
    UnknownVector,
)
from tests.support.places import ROOT

BASE = Base(spec="fake:encoder", digest="ba5e", modality="text", head_kind="text")
GENERIC_BLOB = BlobRef(digest="generic", rows=9)


@pytest.fixture
def registry(registry_url: str) -> Iterator[Registry]:
    registry = Registry(registry_url)
    registry.founded(BASE, GENERIC_BLOB)
    yield registry
    registry.close()


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
    """A refresh of the champion, accepted to run; its result is `refreshed(number)`."""
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


# -- opening


def test_a_registry_is_opened_again(registry_url: str) -> None:
    first = Registry(registry_url)
    first.founded(BASE, GENERIC_BLOB)
    accept(first, "a")
    first.close()
    again = Registry(registry_url)
    again.founded(BASE, GENERIC_BLOB)
    assert [task.name for task in again.tasks()] == ["a"]
    assert [shard.task for shard in again.shards()] == [GENERIC, "a"]
    with pytest.raises(BaseMismatch, match="fake:encoder"):
        again.founded(BASE.model_copy(update={"digest": "another"}), GENERIC_BLOB)


def test_a_newer_schema_is_refused(registry_url: str) -> None:
    Registry(registry_url).close()
    with sa.create_engine(registry_url).begin() as db:
        db.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(BadConfig, match="schema 9999.*Use the version"):
        Registry(registry_url)


def test_a_commit_of_sqlite_is_on_the_disk(tmp_path: Path) -> None:
    registry = Registry(f"sqlite:///{tmp_path / 'r.sqlite'}")
    with registry._write() as db:
        assert db.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert db.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    with registry._write("relaxed") as db:
        assert db.exec_driver_sql("PRAGMA synchronous").scalar() == 1
    with registry._write() as db:
        assert db.exec_driver_sql("PRAGMA synchronous").scalar() == 2


WRITER = """
import sys
from cluster.registry import Registry
from tests.unit.cluster.registry.test_registry import accept, training
registry = Registry(sys.argv[1])
for number in range(10_000):
    accept(registry, f"t{number}")
    print(number, flush=True)
"""


def test_writers_wait_for_each_other(registry: Registry, registry_url: str) -> None:
    other = Registry(registry_url)
    wrote: list[str] = []

    def write_too() -> None:
        with other._write() as db:
            wrote.append(str(db.scalar(sa.text("SELECT value FROM meta WHERE name = 'x'"))))

    with registry._write() as db:
        thread = threading.Thread(target=write_too)
        thread.start()
        time.sleep(0.2)
        assert not wrote
        db.execute(sa.text("INSERT INTO meta (name, value) VALUES ('x', 'seen')"))
    thread.join(10)
    assert wrote == ["seen"]
    other.close()


def test_a_reader_sees_one_moment(registry: Registry) -> None:
    accept(registry, "a")
    with registry._read() as db:
        before = db.scalar(sa.text("SELECT count(*) FROM task"))
        accept(registry, "b")
        assert db.scalar(sa.text("SELECT count(*) FROM task")) == before == 1
    assert len(registry.tasks()) == 2


def test_names_are_ordered_by_their_bytes(registry: Registry) -> None:
    publish(registry, "b", "B", "a_1", "a-2", "a")
    names = [entry.reference.task for entry in registry.vectors()]
    assert names == sorted(names) == ["B", "a", "a-2", "a_1", "b"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://nobody:secret@127.0.0.1:1/x", "password"),
        ("postgresql://nobody@127.0.0.1:1/x", "cannot be reached"),
        ("mysql://host/x", "sqlite or postgresql"),
        ("nonsense", "no URL"),
    ],
)
def test_a_url_that_cannot_be_used(url: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says) as refused:
        Registry(url)
    assert "secret" not in str(refused.value)


def test_a_killed_writer_loses_nothing_that_it_acknowledged(registry_url: str) -> None:
    url = registry_url
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert writer.stdout is not None
    for _ in range(20):
        writer.stdout.readline()
    time.sleep(0.05)  # somewhere in a transaction
    writer.send_signal(signal.SIGKILL)
    acknowledged = 20 + len(writer.stdout.read().splitlines())
    writer.wait()
    registry = Registry(url)
    tasks, runs = registry.tasks(), registry.runs()
    assert acknowledged <= len(tasks) <= acknowledged + 1
    assert len(tasks) == len(runs) == len(registry.shards())
    assert [task.ordinal for task in tasks] == list(range(1, len(tasks) + 1))


# -- accepting


def test_what_is_accepted_is_all_there(registry: Registry) -> None:
    accept(registry, "a", "b")
    task = registry.task("b")
    assert (task.ordinal, task.run_id) == (2, "train b")
    assert task.submission == training("b").submission
    assert registry.shards("b") == [
        Shard(task="b", ordinal=2, blob=BlobRef(digest="b 1", rows=4), version=1)
    ]
    run = registry.run("train b")
    assert (run.number, run.state, run.attempt, run.reached) == (2, "queued", 0, -1)
    assert run.work == training("b")
    with pytest.raises(UnknownTask, match="a, b"):
        registry.task("c")
    with pytest.raises(RunFailed, match="no run"):
        registry.run("train c")


def test_a_refused_task_leaves_nothing(registry: Registry) -> None:
    accept(registry, "a")
    other = training("a", seed=7).model_copy(update={"run_id": "another"})
    with pytest.raises(NameTaken):
        registry.accept(other.submission, other, Request("another", "asked", "answer"))
    assert [run.run_id for run in registry.runs()] == ["train a"]
    assert registry.answer("another", "asked") is None


def test_a_request_has_one_answer(registry: Registry) -> None:
    accept(registry, "a")
    assert registry.answer("submit a", "asked") == "answer"
    with pytest.raises(NameTaken, match="submit a"):
        registry.answer("submit a", "something else")


def test_samples_grow_by_versions(registry: Registry) -> None:
    accept(registry, "a")
    grown = Shard(task="a", ordinal=1, blob=BlobRef(digest="a 2", rows=8), version=2)
    registry.grow(grown, Request("one", "asked", "answer"))
    registry.grow(grown, Request("two", "asked", "answer"))
    assert [shard.blob.digest for shard in registry.shards("a")] == ["a 1", "a 2"]


# -- running


def test_a_run_from_start_to_failure_and_back(registry: Registry) -> None:
    accept(registry, "a")
    assert registry.start("train a").attempt == 1
    registry.requeue("train a", "killed")
    assert registry.start("train a").attempt == 2
    run = registry.run("train a")
    assert (run.state, run.deaths, run.cause) == ("running", 1, "killed")
    registry.fail("train a", "bad")
    run = registry.run("train a")
    assert (run.state, run.cause) == ("failed", "bad")
    assert run.ended is not None
    registry.retry(["train a"])
    run = registry.run("train a")
    assert (run.state, run.deaths, run.cause, run.ended) == ("queued", 0, None, None)
    assert registry.start("train a").attempt == 3
    kinds = " ".join(str(event.kind) for event in registry.events("a"))
    assert kinds == "submitted queued started died started failed retried started"


def test_work_is_added_once(registry: Registry) -> None:
    publish(registry, "a")
    first = refresh(registry, "a", 1)
    registry.start(first.run_id)
    registry.add_run(first, "a")
    assert registry.run(first.run_id).state == "running"
    assert len(registry.runs(kinds=("refresh",))) == 1


def test_runs_are_found_by_state_kind_and_task(registry: Registry) -> None:
    publish(registry, "a")
    accept(registry, "b")
    refresh(registry, "a", 1)
    assert [run.run_id for run in registry.runs(states=(RunState.QUEUED,))] == [
        "train b",
        "refresh a 1",
    ]
    assert [run.run_id for run in registry.runs(task="a")] == ["train a", "refresh a 1"]
    assert [run.run_id for run in registry.runs(kinds=("train",))] == ["train a", "train b"]


def test_what_a_run_was_told_is_kept(registry: Registry) -> None:
    accept(registry, "a", "b")
    generic, b = registry.shards(GENERIC)[0], registry.shards("b")[0]
    registry.told("train a", 4, None, 0, [generic])
    registry.told("train a", 6, Progress(step=5, steps=9, loss=0.25, penalty=0.1), 5, [b])
    registry.told("train a", 3, Progress(step=3, steps=9, loss=0.5))
    told = [Arrival(step=0, shard=generic), Arrival(step=5, shard=b)]
    assert registry.arrivals("train a") == told
    run = registry.run("train a")
    assert run.reached == 6
    assert run.progress == Progress(step=3, steps=9, loss=0.5)
    registry.told("train a", 8, None, 7, left=["b"])
    assert registry.arrivals("train a") == [told[0], told[1].model_copy(update={"left": 7})]


# -- publishing


def test_a_vector_is_published_once(registry: Registry) -> None:
    accept(registry, "a")
    result = trained("a", pair(GENERIC, "generic", 0.25))
    first = registry.publish("train a", result)
    assert registry.publish("train a", result) == first == registry.vector("a", 1)
    assert (first.version, first.parent, first.head_blob) == (1, None, "head of a")
    assert first.accepted_metrics == {"validation_accuracy": 0.9}
    assert registry.aliases("a") == {CHAMPION: 1}
    (stored,) = registry.champion_pairs()
    assert (stored.task, stored.version, stored.vector_digest) == ("a", 1, "a v1")
    assert (stored.tau_jp, stored.standard_error) == (0.25, math.inf)
    (entry,) = registry.vectors("a")
    assert (entry.norm, entry.config) == (2.0, {"steps": 3})
    assert math.isnan(entry.curves["loss"][1])
    assert registry.run("train a").state == "done"
    found = registry.result("train a", Trained)
    assert found is not None
    assert found.norm == 2.0
    with pytest.raises(UnknownVector, match="v1 to v1"):
        registry.vector("a", 2)


def test_versions_have_no_gaps_and_the_champion_follows(registry: Registry) -> None:
    publish(registry, "a", "b")
    for number in range(1, 4):
        work = refresh(registry, "a", number)
        reference = registry.publish(work.run_id, refreshed(number))
        assert (reference.version, reference.parent) == (number + 1, number)
        assert reference.head_blob == "head of a"
    assert [entry.reference.version for entry in registry.vectors("a")] == [1, 2, 3, 4]
    assert registry.aliases("a") == {CHAMPION: 4}
    assert registry.aliases("b") == {CHAMPION: 1}
    assert [v.reference.version for v in registry.vectors(version=1)] == [1, 1]


def test_an_alias_that_was_moved_meanwhile_is_left(registry: Registry) -> None:
    publish(registry, "a")
    late, quick = refresh(registry, "a", 1), refresh(registry, "a", 2)
    registry.publish(quick.run_id, refreshed(2))
    reference = registry.publish(late.run_id, refreshed(1))
    assert (reference.version, reference.parent) == (3, 1)
    assert registry.aliases("a") == {CHAMPION: 2}
    assert "moved meanwhile" in str(registry.events("a")[-1].text)


def test_a_result_without_a_vector_publishes_nothing(registry: Registry) -> None:
    publish(registry, "a")
    work = refresh(registry, "a", 1)
    with pytest.raises(ValueError, match="no vector"):
        registry.publish(work.run_id, refreshed(1).model_copy(update={"vector_blob": None}))
    assert registry.run(work.run_id).state == "queued"
    refused = refreshed(1).model_copy(update={"accepted": False, "reason": "worse"})
    registry.finish(work.run_id, refused)
    registry.finish(work.run_id, refused)
    assert len(registry.vectors("a")) == 1
    assert [event.kind for event in registry.events("a")].count("refused") == 1


def test_measured_pairs_belong_to_versions(registry: Registry) -> None:
    publish(registry, "a")
    vector, shard = registry.vector("a", 1), registry.shards("a")[0]
    work = MeasureWork(run_id="measure", base=BASE, pairs=((vector, shard),), attempt=0)
    registry.add_run(work, None)
    names = {"task": "a", "version": 1, "vector_digest": "a v1"}
    measured = Measured(pairs=(pair("a", "a 1", 0.75).model_copy(update=names),))
    registry.finish("measure", measured)
    registry.finish("measure", measured)
    assert {p.on: p.tau_jp for p in registry.champion_pairs()} == {GENERIC: 0.5, "a": 0.75}
    registry.publish(refresh(registry, "a", 1).run_id, refreshed(1))
    assert registry.champion_pairs() == []  # version 2 is another vector


def test_what_a_vector_has_met(registry: Registry) -> None:
    accept(registry, "a", "b")
    accept(registry, "unpenalised", penalty="none")
    for name in ("a", "unpenalised"):
        told = [*registry.shards(GENERIC), *registry.shards("b")]
        registry.told(f"train {name}", 0, None, 0, told)
        registry.publish(f"train {name}", trained(name))
    assert registry.seen(registry.vector("a", 1)) == {"generic", "b 1"}
    assert registry.seen(registry.vector("unpenalised", 1)) == frozenset()
    reference = registry.publish(refresh(registry, "a", 1).run_id, refreshed(1))
    assert registry.seen(reference) == {"generic"}


# -- models


def model(registry: Registry, user: str, coefficient: float) -> Composition:
    terms = (RecipeTerm(coefficient=coefficient, vector=registry.vector("a", 1)),)
    return Composition(digest=f"recipe {coefficient}", user=user, terms=terms)


def test_models_of_users(registry: Registry) -> None:
    publish(registry, "a")
    first, second = model(registry, "bob", 1.0), model(registry, "bob", -0.5)
    registry.compose(first, Request("1", "asked", "answer"))
    registry.compose(model(registry, "alice", 1.0), Request("2", "asked", "answer"))
    registry.compose(second, Request("3", "asked", "answer"))
    assert registry.compositions("bob") == [second]
    assert registry.compositions() == [model(registry, "alice", 1.0), second]
    assert registry.compositions("carol") == []


def made_of(registry: Registry, user: str) -> tuple[ComposeWork, Composed]:
    terms = model(registry, user, 1.0).terms
    making = CompositionMethod(method="ties")
    parts = {"run_id": f"make {user}", "base": BASE, "user": user, "terms": terms}
    work = ComposeWork(**parts, making=making, tasks=(), probes=(), attempt=0)  # type: ignore[arg-type]
    report = Report(accuracies={}, judged_on="nothing", seconds=0.1)
    return work, Composed(terms=terms, merged=Merged(digest="m", blob="merged"), report=report)


def test_a_model_that_is_made_is_its_users_if_that_is_awaited(registry: Registry) -> None:
    publish(registry, "a")
    for user in ("alice", "bob"):
        work, result = made_of(registry, user)
        registry.make(work, False, Request(f"make {user}", "asked", "answer"))
        assert registry.compositions(user) == []
        if user == "bob":
            registry.compose(model(registry, "bob", 1.0), Request("sum", "asked", "answer"))
        registry.composed(work.run_id, result)
        registry.composed(work.run_id, result)  # a result that comes twice is one
    assert registry.compositions("alice") == [model_of(*made_of(registry, "alice"))]
    assert registry.compositions("bob") == [model(registry, "bob", 1.0)]
    assert registry.referenced()["merged"].what == "the merged vector of a model"
    work, result = made_of(registry, "bob")
    registry.make(work, False, Request("again", "asked", "answer"))
    assert registry.compositions("bob") == [model_of(work, result)]  # done before: at once
    registry.make(work, True, Request("anew", "asked", "answer"))
    assert registry.run(work.run_id).state == "queued"
    assert registry.result(work.run_id, Composed) is None
