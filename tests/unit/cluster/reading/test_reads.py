"""The coordinator, and whoever reads beside it, answer alike: as far as the asker may see, and as
of what was committed last."""

from __future__ import annotations

import time

import pytest

from cluster.coordinator.accounts import DAY
from cluster.domain.api import ReadAPI
from cluster.domain.base import RequestContext, new_id
from cluster.domain.compositions import Composition
from cluster.reading import reports
from cluster.registry import runs
from tacl.errors import (
    Erased,
    NoComposition,
    NotAuthenticated,
    RunFailed,
    StorageUnavailable,
    UnknownRun,
    UnknownTask,
)
from tests.support.fakes import ADMIN, Scene, asks, submission
from tests.support.lost import lost_answer

ANN, BOB = (RequestContext(user=user) for user in ("ann", "bob"))
SECRET = "ann.secret"


def require_unknown(reads: ReadAPI, who: RequestContext) -> None:
    """That there is a secret task is told by nothing that can be asked."""
    for ask in (
        reads.logs,
        reads.aliases,
        reads.vectors,
        lambda who, name: reads.compare(who, name, 1, 1),
    ):
        for name in (SECRET, SECRET[:-1]):
            with pytest.raises(UnknownTask) as refused:
                ask(who, name)
            assert SECRET not in str(refused.value).replace(f"named {name};", "")
    assert SECRET not in {one.task for one in reads.vectors(who, None)}


def digest(reads: ReadAPI, user: str) -> str:
    return reads.composition(ADMIN, user).digest


def compose(scene: Scene, user: str, *terms: str) -> Composition:
    return scene.coordinator.compose(asks(new_id()), user, list(terms))


def test_a_private_task_is_its_owners_alone(scene: Scene, reads: ReadAPI) -> None:
    scene.submit("open", owner="bob")
    scene.submit(SECRET, owner="ann", private=True)
    require_unknown(reads, BOB)
    assert reads.logs(ANN, SECRET)
    scene.settle()
    require_unknown(reads, BOB)
    assert {one.task for one in reads.vectors(ANN, None)} == {"open", SECRET}
    assert reads.aliases(ANN, SECRET).aliases == {"champion": 1}
    compose(scene, "ann", f"+{SECRET}", "+open")
    assert [one.user for one in reads.users(ANN)] == ["ann"]
    assert reads.users(BOB) == []
    run = scene.coordinator.evaluate(asks("evaluate"), "ann").run_id
    with pytest.raises(UnknownRun, match="no run"):
        reads.evaluation(BOB, run)
    assert reads.evaluation(ANN, run) is None
    scene.settle()
    assert reads.evaluation(ANN, run) is not None
    with pytest.raises(RunFailed, match="refresh was asked for"):
        reads.refreshed(ANN, run)
    assert len(reads.accuracy_history(ANN, None).rows) == 1
    assert reads.accuracy_history(BOB, None).rows == ()
    scene.coordinator.remove(asks("remove"), SECRET, False)
    require_unknown(reads, BOB)


def test_evaluations_that_are_not_seen_push_out_none(
    scene: Scene, reads: ReadAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (runs, reports):
        monkeypatch.setattr(module, "PAGE", 2)
    scene.trained("open", "other")
    scene.submit(SECRET, owner="ann", private=True)
    scene.settle()
    for user, terms in (
        ("bob", ["+open"]),
        ("bob", ["+other"]),
        ("bob", ["+open", "+other"]),
        *(("ann", [f"{number}*{SECRET}"]) for number in range(1, 4)),
    ):
        compose(scene, user, *terms)
        scene.coordinator.evaluate(asks(new_id()), user)
        scene.settle()
    seen = [row.terms for row in reads.accuracy_history(BOB, None).rows]
    assert seen == [("+other@v1",), ("+open@v1", "+other@v1")]


def test_a_name_is_anybodys_again_once_its_private_task_was_cancelled(
    scene: Scene, reads: ReadAPI
) -> None:
    scene.submit(SECRET, owner="ann", private=True)
    require_unknown(reads, BOB)
    scene.coordinator.cancel(asks("cancel"), SECRET)
    scene.coordinator.submit(ADMIN, submission(scene.home, SECRET, request_id="2", owner="ann"))
    assert reads.logs(BOB, SECRET)
    scene.coordinator.cancel(asks("again"), SECRET)
    again = {"owner": "ann", "private": True, "request_id": "3"}
    scene.coordinator.submit(ADMIN, submission(scene.home, SECRET, **again))
    require_unknown(reads, BOB)


def test_what_was_committed_is_read_also_where_nobody_heard_that_it_was(
    scene: Scene, reads: ReadAPI
) -> None:
    with lost_answer(scene, "accept"), pytest.raises(StorageUnavailable):
        scene.submit(SECRET, owner="ann", private=True)
    require_unknown(reads, BOB)
    assert reads.logs(ANN, SECRET)
    with lost_answer(scene, "accept", landed=False), pytest.raises(StorageUnavailable):
        scene.submit("ann.other", owner="ann", private=True)
    with pytest.raises(UnknownTask):
        reads.logs(ANN, "ann.other")


def test_a_model_composed_answers_the_next_question(scene: Scene, reads: ReadAPI) -> None:
    with pytest.raises(NoComposition):
        reads.composition(ADMIN, "ann")
    scene.trained("a", "b")
    for terms in (["+a"], ["+b"], ["+a", "-0.5*b"]):
        assert compose(scene, "ann", *terms).digest == digest(reads, "ann")
        scene.coordinator.close()
        scene.restart()
        assert compose(scene, "ann", *terms).digest == digest(reads, "ann")


def test_what_is_purged_is_erased_at_once(scene: Scene, reads: ReadAPI) -> None:
    scene.trained("a", "b")
    for user, terms in {"ann": ["+a", "+b"], "bob": ["+b"]}.items():
        assert compose(scene, user, *terms).digest == digest(reads, user)
    scene.coordinator.remove(asks("removed"), "a", False)
    assert reads.users(ADMIN, "ann")[0].removed == ("a",)
    assert digest(reads, "ann")
    scene.coordinator.remove(asks("purged"), "a", True)
    found = reads.compositions(["ann", "bob", "cid"])
    assert [type(one) for one in found] == [Erased, Composition, NoComposition]
    assert reads.users(ADMIN, "ann")[0].purged[0].task == "a"


def heads(scene: Scene, reads: ReadAPI, user: str) -> list[str]:
    model, blobs = reads.composition(ADMIN, user), scene.home.blobs()
    return [blobs.read(term.vector.head_blob).decode() for term in model.terms]


def test_a_model_answers_with_the_heads_that_are_there(scene: Scene, reads: ReadAPI) -> None:
    """Fitted ones once there are some; none that saw what was purged, or that were forgotten."""
    scene.arrive("a", heads="fitted", owner="ann")
    compose(scene, "ann", "+a")
    assert heads(scene, reads, "ann") == ["head of a"]
    scene.settle()
    assert heads(scene, reads, "ann") == ["head of a beside ['a']"]
    before = [one.stored for one in reads.usage("ann")]
    scene.submit("b", heads="fitted", owner="bob")
    scene.settle()
    compose(scene, "bob", "+b")
    assert heads(scene, reads, "bob") == ["head of b beside ['a', 'b']"]
    assert [one.stored for one in reads.usage("ann")] > before  # a's head in the second fit
    compose(scene, "ann", "+b")
    scene.coordinator.collect(False)  # the first fit: nobody's now
    compose(scene, "ann", "+a")
    assert heads(scene, reads, "ann") == ["head of a beside ['a', 'b']"]
    scene.coordinator.remove(asks("purge"), "a", True)
    assert heads(scene, reads, "bob") == ["head of b"]


def test_heads_that_private_tasks_taught_are_their_owners(scene: Scene, reads: ReadAPI) -> None:
    scene.submit("open", heads="fitted")
    scene.submit(SECRET, owner="ann", private=True, heads="fitted")
    scene.settle()
    compose(scene, "bob", "+open")
    compose(scene, "ann", "+open", f"+{SECRET}")
    taught = f"head of open beside ['{SECRET}', 'open']"
    assert heads(scene, reads, "bob") == ["head of open beside ['open']"]
    assert taught in heads(scene, reads, "ann")


def test_a_token_ends_at_once(scene: Scene, reads: ReadAPI) -> None:
    call = scene.coordinator
    with pytest.raises(NotAuthenticated, match="not known"):
        reads.holder("a" * 64)
    call.issue_token(asks("1"), "ann", "user", "a" * 64)
    call.issue_token(asks("2"), "bob", "admin", "b" * 64, days=0.1 / DAY)
    assert reads.holder("a" * 64).role == "user"
    assert [one.user for one in reads.tokens()] == ["ann", "bob"]
    time.sleep(0.2)
    with pytest.raises(NotAuthenticated, match="ended"):
        reads.holder("b" * 64)
    call.revoke_tokens(asks("3"), "ann")
    found = reads.holders(["a" * 64, "b" * 64])
    assert [type(one) for one in found] == [NotAuthenticated] * 2
    assert reads.tokens("ann") == []


def test_a_version_that_is_new_or_moved_is_told(scene: Scene, reads: ReadAPI) -> None:
    scene.trained("a", "b")
    run = scene.coordinator.refresh(asks("refresh"), "a").run_id
    assert reads.refreshed(ADMIN, run) is None
    scene.settle()
    found = reads.refreshed(ADMIN, run)
    assert found is not None
    assert found.accepted
    assert reads.aliases(ADMIN, "a").aliases == {"champion": 2}
    assert reads.compare(ADMIN, "a", 1, 2).made["parent"] == (None, 1)
    scene.coordinator.move_alias(asks("move"), "a", "champion", 1, 2)
    assert [one.champion for one in reads.vectors(ADMIN, "a")] == [True, False]


def test_shares_are_counted(scene: Scene, reads: ReadAPI) -> None:
    scene.submit("a", owner="ann")
    (waits,) = reads.usage()
    assert (waits.user, waits.queued) == ("ann", 1)
    assert waits.stored == scene.coordinator.usage("ann")[0].stored > 0
    scene.settle()
    assert reads.usage("ann")[0].queued == 0
    assert reads.usage("ann")[0].stored > waits.stored
