"""The registry: every write whole or not at all, repeatable, and on the disk when it returns."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import pytest
from sqlalchemy import Engine, event

from cluster.domain.base import BlobRef
from cluster.domain.compositions import Composition, CompositionMethod, Merged, RecipeTerm, Report
from cluster.domain.methods import model_of
from cluster.domain.status import RunState
from cluster.domain.tasks import CHAMPION, GENERIC, Arrival, Shard
from cluster.domain.work import (
    Composed,
    ComposeWork,
    EvaluateWork,
    Measured,
    MeasureWork,
    Progress,
    Trained,
)
from cluster.registry import Found, Registry, Request, database
from cluster.registry.effects import BLOCK
from cluster.registry.erasure import LATER
from tacl.errors import NameTaken, UnknownRun, UnknownTask, UnknownVector
from tests.support.registry_scene import (
    BASE,
    accept,
    pair,
    publish,
    refresh,
    refreshed,
    trained,
    training,
)
from tests.support.statements import statements

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
    with pytest.raises(UnknownRun, match="no run"):
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
    registry.grow(grown, "new", Request("one", "asked", "answer"))
    registry.grow(grown, "new", Request("two", "asked", "answer"))
    assert [shard.blob.digest for shard in registry.shards("a")] == ["a 1", "a 2"]
    assert registry.due_files(time.time() + 2 * LATER).keys() == {"new"}


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
    assert [run.run_id for run in registry.runs(tasks=["a"])] == ["train a", "refresh a 1"]
    assert [run.run_id for run in registry.runs(kinds=("train",))] == ["train a", "train b"]


def test_what_a_run_was_told_is_kept(registry: Registry) -> None:
    accept(registry, "a", "b")
    generic, b = registry.shards(GENERIC)[0], registry.shards("b")[0]
    registry.grant_lease("train a", 4, None, 0, [generic])
    registry.grant_lease("train a", 6, Progress(step=5, steps=9, loss=0.25, penalty=0.1), 5, [b])
    registry.grant_lease("train a", 3, Progress(step=3, steps=9, loss=0.5))
    told = [Arrival(step=0, shard=generic), Arrival(step=5, shard=b)]
    assert registry.arrivals("train a") == told
    run = registry.run("train a")
    assert run.reached == 6
    assert run.progress == Progress(step=3, steps=9, loss=0.5)
    registry.grant_lease("train a", 8, None, 7, left=["b"])
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
    (stored,) = registry.effects("a", 1)
    assert stored == Found(GENERIC, "generic", "", 1, 0.25, math.inf, None, None)
    assert list(registry.champion_effects(["a", "b", GENERIC])) == [("a", [stored])]
    (entry,) = registry.vectors("a")
    assert (entry.norm, entry.config) == (2.0, {"steps": 3})
    assert math.isnan(entry.curves["loss"][1])
    assert registry.run("train a").state == "done"
    found = registry.result("train a", Trained)
    assert found is not None
    assert found.norm == 2.0
    with pytest.raises(UnknownVector, match="there is v1$"):
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
    assert {one.on: one.tau_jp for one in registry.effects("a", 1)} == {GENERIC: 0.5, "a": 0.75}
    ((task, row),) = registry.champion_effects(["a"])
    assert (task, [one.on for one in row]) == ("a", ["a"])
    registry.publish(refresh(registry, "a", 1).run_id, refreshed(1))
    assert list(registry.champion_effects()) == []  # version 2 is another vector


def test_a_block_of_tasks_is_written_and_not_the_others(registry: Registry) -> None:
    names = [f"t{number}" for number in range(BLOCK + 2)]
    accept(registry, *names)
    pairs = [pair(name, f"{name} 1", 0.5) for name in names]
    registry.publish("train t0", trained("t0", *pairs))
    blocks = list(registry.champion_effects())
    assert [len(block) for _, block in blocks] == [BLOCK - 1, 3]  # the generic samples are number 0
    assert [one.on for _, block in blocks for one in block] == names
    last = list(registry.champion_effects(["t0", names[-1]]))
    assert [one.on for _, block in last for one in block] == ["t0", names[-1]]
    written: list[str] = []

    def note(*told: Any) -> None:
        _, _, statement, *_ = told
        written.extend(
            [statement] if re.match(r"(INSERT|UPDATE|DELETE).* effect\b", statement) else []
        )

    event.listen(Engine, "before_cursor_execute", note)
    work = MeasureWork(run_id="again", base=BASE, pairs=(), attempt=0)
    registry.add_run(work, None)
    of_t0 = {"task": "t0", "version": 1, "vector_digest": "t0 v1", "head": "of it"}
    registry.finish("again", Measured(pairs=(pairs[-1].model_copy(update=of_t0),)))
    event.remove(Engine, "before_cursor_execute", note)
    assert [statement.split()[:2] for statement in written] == [["UPDATE", "effect"]]


def test_a_pair_is_replaced_only_by_one_behind_a_head(registry: Registry) -> None:
    publish(registry, "a")
    accept(registry, "b")
    vector, names = registry.vector("a", 1), {"task": "a", "version": 1, "vector_digest": "a v1"}

    def measured(number: int, **found: Any) -> list[tuple[str, float, str, float | None]]:
        shard = registry.shards("b")[0]
        run_id = f"measure {number}"
        registry.add_run(
            MeasureWork(run_id=run_id, base=BASE, pairs=((vector, shard),), attempt=0), None
        )
        one = pair("b", "b 1", 0.25 * number).model_copy(update=names | found)
        registry.finish(run_id, Measured(pairs=(one,)))
        return [(e.on, e.tau_jp, e.head, e.logits) for e in registry.effects("a", 1)[1:]]

    behind = {"head": "head of b", "logits": 2.0, "logits_error": 0.5}
    assert measured(1) == measured(2) == [("b", 0.25, "", None)]
    registry.publish("train b", trained("b"))
    assert measured(3, **behind) == measured(4) == [("b", 0.75, "head of b", 2.0)]
    assert measured(5, **behind) == [("b", 1.25, "head of b", 2.0)]


def test_what_a_vector_has_met(registry: Registry) -> None:
    accept(registry, "a", "b")
    accept(registry, "unpenalised", penalty="none")
    for name in ("a", "unpenalised"):
        told = [*registry.shards(GENERIC), *registry.shards("b")]
        registry.grant_lease(f"train {name}", 0, None, 0, told)
        registry.publish(f"train {name}", trained(name))
    assert registry.seen(registry.vector("a", 1).run_id) == {"generic", "b 1"}
    assert registry.seen(registry.vector("unpenalised", 1).run_id) == frozenset()
    reference = registry.publish(refresh(registry, "a", 1).run_id, refreshed(1))
    assert registry.seen(reference.run_id) == {"generic", "b 1"}  # by the refresh, and before


def test_tasks_with_the_same_options_have_them_in_common(registry: Registry) -> None:
    """Of thousands of tasks they are kept in memory."""
    accept(registry, "a", "b")
    accept(registry, "c", steps=3)
    a, b, c = (task.submission.options for task in registry.tasks())
    assert a is b
    assert a != c


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
    assert registry.compositions_after("") == [model(registry, "alice", 1.0), second]
    assert registry.compositions_after("alice") == [second]
    assert registry.compositions("carol") == []


def test_recipes_that_became_a_model_since_an_event_are_found_once(registry: Registry) -> None:
    publish(registry, "a")
    registry.compose(model(registry, "bob", 1.0), Request("1", "asked", "answer"))
    before = registry.events_after(-1)[0]
    assert registry.recipes_since(before) == []
    for user in ("alice", "bob"):
        registry.compose(model(registry, user, 0.5), Request(user, "asked", "answer"))
    assert [m.digest for m in registry.recipes_since(before)] == [model(registry, "", 0.5).digest]
    assert len(registry.recipes_since(0)) == 2


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


def test_what_stopped_is_found_where_somebody_has_or_awaits_the_model(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(registry, "a", "b")
    registry.compose(model(registry, "alice", 1.0), Request("alice", "asked", "answer"))
    for number in (1.0, 0.5):  # nobody has the second
        given = {"composition": model(registry, "alice", number), "tasks": (), "attempt": 0}
        work = EvaluateWork(run_id=f"judge {number}", base=BASE, **given)  # type: ignore[arg-type]
        registry.add_run(work, None)
        registry.fail(work.run_id, "no")
    for user in ("alice", "bob"):  # who gives it up
        work, _ = made_of(registry, user)
        registry.make(work, False, Request(f"make {user}", "asked", "answer"))
        registry.fail(work.run_id, "no")
    registry.compose(model(registry, "bob", 0.25), Request("bob", "asked", "answer"))
    for found in (registry.stopped_and_wanted(), registry.stopped_with("a")):
        assert {run.run_id for run in found} == {"judge 1.0", "make alice"}
    assert registry.stopped_with("b") == []
    ids = ["judge 1.0", "judge 0.5", "make alice", "make bob"]
    monkeypatch.setattr(database, "NAMED", 3)  # names in a statement: thousands may be asked about
    asked = statements(registry, lambda: registry.still_wanted(ids))
    assert sum("UNION" in said for said, _ in asked) == 2
    assert registry.still_wanted(ids) == {"judge 1.0", "make alice"}
    registry.fail("judge 1.0", "again")
    assert registry.run("judge 1.0").cause == "no"


def test_of_thousands_of_runs_that_end_with_a_task_a_statement_names_some(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL takes 65,535 values at once."""
    publish(registry, "a", "b")
    works = [made_of(registry, user)[0] for user in ("ann", "bob", "cid", "dan", "eve")]
    ids = [work.run_id for work in works]
    for work in works:
        registry.make(work, False, Request(f"make {work.user}", "asked", "answer"))
    monkeypatch.setattr(database, "NAMED", 2)
    purge = Request("purge", "asked", "answer")
    asked = statements(registry, lambda: registry.remove("a", "purged", ids, (), (), purge))
    chosen = [str(values) for said, values in asked if "WHERE" in said]
    assert max(sum(one in values for one in ids) for values in chosen) == 2
    assert {registry.run(one).state for one in ids} == {RunState.WITHDRAWN}
    assert registry.still_wanted(ids) == set()
