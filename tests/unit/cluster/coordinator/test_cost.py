"""What one person asks reads by an index: it costs the same however many others there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from cluster.coordinator import work_orders
from cluster.coordinator.work_orders import fitting
from cluster.domain.base import PAGE, RequestContext
from cluster.domain.compositions import CompositionMethod, Fitted, FittedHead
from cluster.domain.reports import VectorStatus
from cluster.domain.status import RunState
from cluster.domain.tasks import ANY, Submission
from cluster.domain.work import FitWork, RefreshWork
from cluster.reading import reports
from cluster.reading.reader import Reader
from cluster.registry import Registry, Request, RunRecord
from cluster.scheduler.state import FitHeads, Node
from cluster.storage.listed import listed_tasks
from tacl.errors import SameData
from tests.support.fakes import ADMIN, BASE, Scene, asks, submission
from tests.support.statements import statements

GROWING = {
    "task",
    "run",
    "user",
    "composition",
    "holds",
    "made",
    "awaited",
    "token",
    "request",
    "event",
    "shard",
    "arrival",
    "vector",
}
ANN = RequestContext(user="ann", limited=True)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(tmp_path, Node(2))
    for name in ("news", "spam"):
        found.coordinator.submit(ADMIN, submission(found.home, name, owner="ann"))
    found.settle()
    for user in ("ann", "bob"):
        found.coordinator.compose(asks(f"compose {user}"), user, ["+news"])
        found.coordinator.evaluate(asks(f"evaluate {user}"), user)
        found.coordinator.issue_token(asks(f"issue {user}"), user, "user", f"{user:0<64}")
    found.settle()
    yield found
    found.coordinator.close()


def scans(scene: Scene, ask: Callable[[], object], registry: Registry | None = None) -> list[str]:
    """What the database says of the statements that read a whole table that grows with people."""
    found = []
    asked = statements(registry or scene.coordinator._registry, ask)
    with scene.coordinator._registry._engine.connect() as db:
        for statement, values in asked:
            if not statement.startswith(("SELECT", "UPDATE", "DELETE")):
                continue
            for row in db.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values):
                if reads_all(row[-1].replace('"', ""), statement, values):
                    found.append(f"{row[-1]}: {statement}")
    return found


def reads_all(step: str, statement: str, values: Any) -> bool:
    """A step of the database's plan: a table, by an index all runs of a kind, or those that are
    done, or all tasks that are there."""
    scan, table, *_ = *step.split(), ""
    of_there = "ix_task_removed (removed=?)" in step and "removed IS NULL" in statement
    is_all = scan == "SCAN" and table in GROWING
    of_done = "ix_run_kind (kind=? AND state=?)" in step and RunState.DONE in values
    return is_all or of_there or of_done or "ix_run_kind (kind=?)" in step


CALLS: dict[str, Callable[[Any], object]] = {
    "compose": lambda call: call.compose(asks("again"), "ann", ["+spam"]),
    "update": lambda call: call.update_composition(asks("update"), "ann"),
    "composition": lambda call: call.composition(ANN, "ann"),
    "compositions": lambda call: call.compositions(["ann", "bob"]),
    "own model": lambda call: call.users(ANN, "ann"),
    "models": lambda call: call.users(ADMIN),
    "merge": lambda call: call.start_composition(
        asks("merge"), "ann", ["+news", "+spam"], CompositionMethod(method="ties")
    ),
    "cancel": lambda call: call.cancel_compositions(asks("cancel"), "ann"),
    "evaluate": lambda call: call.evaluate(asks("measure"), "bob", True),
    "accuracy": lambda call: call.accuracy_history(ANN, "ann"),
    "usage": lambda call: call.usage("ann"),
    "usage of all": lambda call: call.usage(),
    "admit": lambda call: call.admit(ANN, "third"),
    "holder": lambda call: call.holders([f"{'ann':0<64}"]),
    "tokens": lambda call: call.tokens("ann"),
    "tokens of all": lambda call: call.tokens(),
    "revoke": lambda call: call.revoke_tokens(asks("revoke"), "ann"),
    "rotate": lambda call: call.rotate_token(asks("rotate"), "bob00000", "c" * 64),
    "aliases": lambda call: call.aliases(ANN, "news"),
    "logs": lambda call: call.logs(ANN, "news"),
    "task": lambda call: call.task(ANN, "news"),
    "vectors": lambda call: call.vectors(ANN, "news"),
    "vectors of all": lambda call: call.vectors(ANN),
    "status of one": lambda call: call.status(ANN, "", ["news"]),
    "move": lambda call: call.move_alias(asks("move"), "news", "champion", 1, ANY),
    "look after it": lambda call: (CALLS["move"](call), call.version()),
    "compare": lambda call: call.compare(ANN, "news", 1, 1),
    "refresh": lambda call: call.refresh(asks("refresh"), "news"),
    "remove": lambda call: call.remove(asks("remove"), "news", False),
    "purge": lambda call: call.remove(asks("purge"), "news", True),
}


def test_a_submit_finds_who_has_its_rows_without_reading_all_tasks(scene: Scene) -> None:
    asked = submission(scene.home, "third", rows="d" * 64)
    assert not [said for said in scans(scene, submit(scene, asked)) if "max(" not in said]
    with pytest.raises(SameData, match="third"):
        submit(scene, submission(scene.home, "fourth", rows="d" * 64))()


def submit(scene: Scene, asked: Submission) -> Callable[[], object]:
    return lambda: scene.coordinator.submit(ADMIN, asked)


def test_a_retry_reads_no_work_of_refreshes_that_name_its_task(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = scene.coordinator
    run_id = coordinator.refresh(asks("refresh"), "news").run_id
    work = coordinator._registry.run(run_id).work
    assert isinstance(work, RefreshWork)
    assert "spam" in {shard.task for shard in work.others}
    coordinator.cancel(asks("cancel"), "news")
    with monkeypatch.context() as patched:
        patched.setattr(RunRecord, "work", property(lambda run: pytest.fail(run.kind)))
        assert coordinator.retry(asks("spam again"), "spam").retried == ()
    assert coordinator.retry(asks("news again"), "news").retried == (run_id,)


def test_a_recipe_reads_no_aliases_that_it_does_not_name(scene: Scene) -> None:
    for alias in ("stable", "tested"):
        scene.coordinator.move_alias(asks(alias), "news", alias, 1, ANY)
    compose = partial(scene.coordinator.compose, asks("named"), "ann", ["+spam", "+news@tested"])
    read = [said for said in statements(scene.coordinator._registry, compose) if "alias" in said[0]]
    assert read
    assert all({"champion", "tested"} & {*values} and "stable" not in values for _, values in read)


def test_a_process_that_begins_finds_the_fits_without_reading_all_events(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Node(1)).trained("one", heads="fitted")
    registry = scene.coordinator._registry
    assert registry.fits()
    (read,) = scans(scene, registry.fits)  # all events of fits alone
    assert "INDEX ix_event_fitted: " in read
    scene.coordinator.close()


def test_a_page_of_all_recipes_reads_no_list_of_all_users(scene: Scene) -> None:
    registry = scene.coordinator._registry
    assert [one.terms for one in registry.recipes_after("")]
    assert scans(scene, lambda: registry.recipes_after("")) == []


def test_what_made_a_users_model_is_found_among_their_own_runs(scene: Scene) -> None:
    registry = scene.coordinator._registry
    CALLS["merge"](scene.coordinator)
    scene.settle()
    (model,) = registry.compositions("ann")
    assert scans(scene, lambda: registry.requested_work([model])) == []
    assert registry.requested_work([model])["ann"].making.method == model.method == "ties"


def test_what_a_user_has_is_counted_by_as_many_questions_however_much_it_is(scene: Scene) -> None:
    registry = scene.coordinator._registry
    before = len(statements(scene.coordinator._registry, lambda: registry.stored_of(["ann"])))
    scene.coordinator.submit(ADMIN, submission(scene.home, "third", owner="ann"))
    scene.settle()
    assert (
        len(statements(scene.coordinator._registry, lambda: registry.stored_of(["ann"]))) == before
    )
    assert {one.task for one in registry.stored_of(["ann"])["ann"].values()} == {
        "news",
        "spam",
        "third",
    }


def test_what_a_page_of_users_has_is_found_without_reading_all_tasks(scene: Scene) -> None:
    users = [*(f"user{number}" for number in range(PAGE - 2)), "ann", "bob"]
    registry = scene.coordinator._registry
    assert scans(scene, lambda: registry.stored_of(users)) == []
    assert {one.task for one in registry.stored_of(users)["ann"].values()} == {"news", "spam"}


def test_all_heads_are_fitted_by_as_many_questions_however_many_they_are(scene: Scene) -> None:
    registry = scene.coordinator._registry
    digests = {task: ref.digest for task, ref in registry.champion_references().items()}
    asked = [FitHeads("fit", "", dict([*digests.items()][:count])) for count in (1, 2)]
    blobs = scene.home.blobs()

    def work(fit: FitHeads) -> FitWork:
        return work_orders.listed(registry, blobs, fitting(BASE, fit), fit.champions)

    counts = [len(statements(registry, lambda one=one: work(one))) for one in asked]
    assert counts[0] == counts[1]
    tasks = listed_tasks(blobs, work(asked[1]).listed)
    assert [one.vector.task for one in tasks] == ["news", "spam"]


def test_a_fit_goes_on_from_the_fit_before(tmp_path: Path) -> None:
    """It is told the heads of the vectors that both are of."""
    found = Scene(tmp_path, Node(1))
    listed = list[dict[str, FittedHead | None]]()
    for name in ("first", "second"):
        found.arrive(name, heads="fitted")
        while not (fits := [one for one in found.running() if isinstance(one, FitWork)]):
            found.finish_process(found.launcher.running()[0])
        tasks = listed_tasks(found.home.blobs(), fits[0].listed)
        listed.append({one.vector.task: one.fitted for one in tasks})
        found.settle()
    (fit,) = (one for one in found.coordinator._execution.heads.fits if len(one.heads) == 1)
    assert fit.heads["first"] is not None
    assert listed == [{"first": None}, {"first": fit.heads["first"], "second": None}]
    found.coordinator.close()


def test_the_row_of_a_fit_says_as_much_of_many_tasks_as_of_few(tmp_path: Path) -> None:
    found = Scene(tmp_path, Node(1))
    sizes = list[int]()
    for name in ("first", "second"):
        found.arrive(name, heads="fitted")
        while not (fits := [one for one in found.running() if isinstance(one, FitWork)]):
            found.finish_process(found.launcher.running()[0])
        sizes.append(len(found.coordinator._registry.run(fits[0].run_id).written))
        assert fits[0].listed.rows == len(sizes)
        found.settle()
    assert sizes[0] == sizes[1]
    found.coordinator.close()


def test_what_a_fit_is_of_and_what_it_found_is_written_without_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each names every task of a home."""
    found = Scene(tmp_path, Node(1))
    lock, held = found.coordinator._lock._lock, dict[str, bool]()

    def notes(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*given: Any) -> Any:
            held[name] = lock._is_owned()  # type: ignore[attr-defined]
            return real(*given)

        return noting

    monkeypatch.setattr(work_orders, "store_tasks", notes("listed", work_orders.store_tasks))
    monkeypatch.setattr(Fitted, "model_dump_json", notes("written", Fitted.model_dump_json))
    found.trained("one", heads="fitted")
    assert held == {"listed": False, "written": False}
    assert found.task("one").accuracy_fitted == 0.9
    found.coordinator.close()


ENDING: dict[str, Callable[[Any], object]] = {
    "retry": lambda call: call.retry(asks("retry"), "new_s"),
    "cancel": lambda call: call.cancel(asks("cancel"), "new_s"),
    "remove": CALLS["remove"],
    "purge": CALLS["purge"],
}


@pytest.mark.parametrize("name", ENDING)
def test_who_ends_a_task_reads_no_work_of_others_that_waits(
    name: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands."""
    for task in ("new_s", "newXs", "other"):
        scene.submit(task)
        scene.coordinator.cancel(asks(f"stop {task}"), task, keep=True)
    read, real = list[str](), RunRecord.work.func

    def work(run: RunRecord) -> Any:
        read.append(run.task or "")
        return real(run)

    monkeypatch.setattr(RunRecord, "work", property(work))
    ENDING[name](scene.coordinator)
    assert {*read} <= {"news", "new_s"}
    assert read or name in ("remove", "purge")


@pytest.mark.parametrize("name", ["retry", "cancel", "remove"])
def test_who_ends_a_task_for_now_looks_through_no_work_of_users_models(
    name: str, scene: Scene
) -> None:
    scene.submit("new_s")
    asked = statements(scene.coordinator._registry, lambda: ENDING[name](scene.coordinator))
    searched = [(said, values) for said, values in asked if "LIKE" in said]
    assert searched
    assert all("kind IN" in said and "evaluate" not in values for said, values in searched)


def test_a_refresh_asks_as_much_of_a_vector_that_was_refreshed_often(scene: Scene) -> None:
    def asked(request: str) -> int:
        refresh = partial(scene.coordinator.refresh, asks(request), "news")
        found = statements(scene.coordinator._registry, refresh)
        scene.settle()
        return len(found)

    first, *_, last = (asked(f"refresh {number}") for number in range(5))
    assert scene.coordinator.task(ADMIN, "news").version == 6
    assert first == last


def test_many_runs_are_ended_by_as_many_statements_as_one(scene: Scene) -> None:
    """As the evaluations of a purged task's model are."""
    registry = scene.coordinator._registry
    for number in range(6):
        scene.submit(f"task-{number}")
    one, *others = (run.run_id for run in registry.runs(states=(RunState.QUEUED,)))

    def cancel(run_ids: list[str], by: str) -> int:
        ask = partial(registry.cancel, run_ids, (), by, Request(by, "", ""))
        return len(statements(registry, ask))

    assert len(others) > 1
    assert cancel([one], "ann") == cancel(others, "bob")
    for run in map(registry.run, others):
        assert (run.state, run.cause) == (RunState.CANCELLED, "cancelled by bob")
        told = registry.events(run.task or "")[-1]
        assert (told.kind, told.run_id, told.text) == ("cancelled", run.run_id, run.cause)


@pytest.mark.parametrize("name", CALLS)
def test_no_question_of_one_reads_what_everybody_has(name: str, scene: Scene) -> None:
    assert scans(scene, lambda: CALLS[name](scene.coordinator)) == []


READING = (
    *("composition", "compositions", "own model", "models", "accuracy", "usage", "usage of all"),
    *("holder", "tokens", "tokens of all", "aliases", "logs", "vectors"),
)


@pytest.mark.parametrize("name", READING)
def test_nor_does_one_of_who_reads_beside_the_coordinator(name: str, scene: Scene) -> None:
    """Also when it takes in what happened."""
    reader = Reader(scene.home, note=lambda hashes: None)
    reader.compositions([])
    scene.coordinator.submit(ADMIN, submission(scene.home, "third", heads="fitted"))
    scene.settle()
    assert scans(scene, lambda: CALLS[name](reader), reader._registry) == []
    reader.close()


def test_what_users_do_makes_the_board_read_no_tasks(scene: Scene) -> None:
    """Each tick takes in what happened: it would read all of them."""
    scene.coordinator.version()
    scene.coordinator.compose(asks("new"), "ann", ["+spam"])
    scene.coordinator.evaluate(asks("of it"), "ann")
    asked = statements(scene.coordinator._registry, scene.coordinator.version)
    assert asked
    assert not [said for said, _ in asked if "FROM shard" in said or "FROM task" in said]


def listed(scene: Scene, task: str | None = None) -> list[list[VectorStatus]]:
    """Answer by answer."""
    pages, after = list[list[VectorStatus]](), ""
    while page := [*scene.coordinator.vectors(ADMIN, task, after)]:
        pages.append(page)
        after = page[-1].name
    return pages


def test_vectors_are_listed_as_many_at_a_time_as_an_answer_holds(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"task{number:02}" for number in range(reports.AT_ONCE + 2)]
    for name in names:
        scene.coordinator.submit(ADMIN, submission(scene.home, name, refresh="never"))
    scene.settle()
    monkeypatch.setattr(reports, "BYTES", 1_000_000)
    (whole,) = listed(scene)
    assert [one.task for one in whole if one.version == 1] == ["news", "spam", *names]
    size = len(TypeAdapter(list[VectorStatus]).dump_json(whole[:3]))
    monkeypatch.setattr(reports, "BYTES", size)
    pages = listed(scene)
    assert [one for page in pages for one in page] == whole
    assert len(pages[0]) == 3
    assert all(len(TypeAdapter(Any).dump_json(page)) <= size for page in pages)
    monkeypatch.setattr(reports, "BYTES", 1)
    assert listed(scene) == [[one] for one in whole]
    monkeypatch.undo()
    monkeypatch.setattr(reports, "READ", whole[-1].met)
    assert [one for page in listed(scene) for one in page] == whole
    assert len(listed(scene)[-1]) == 1


def test_versions_are_read_together_unless_they_met_many(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = scene.coordinator._registry
    scene.coordinator.refresh(asks("refresh"), "spam")
    scene.settle()
    page = reports._page(registry, "spam", "")
    assert [one.reference.version for one in page] == [1, 2]
    met = registry.met_counts([one.reference.run_id for one in page]).total()
    assert met == registry.met_counts([page[0].reference.run_id]).total() > 0
    monkeypatch.setattr(reports, "READ", met)
    assert reports._page(registry, "spam", "") == page
    monkeypatch.setattr(reports, "READ", met - 1)
    assert reports._page(registry, "spam", "") == page[:1]


def test_curves_are_told_of_the_vectors_of_one_task(scene: Scene) -> None:
    (all_,), (own,) = listed(scene), listed(scene, "news")
    assert own[0].curves == {"loss": [1.0, 0.5]}
    assert all_[0] == own[0].model_copy(update={"curves": {}})


def test_a_removed_task_names_the_users_whose_model_holds_it_now(scene: Scene) -> None:
    scene.coordinator.compose(asks("other"), "bob", ["+spam"])
    assert scene.coordinator.remove(asks("gone"), "news", False).users == ("ann",)


def test_usage_and_tokens_are_listed_by_user(scene: Scene) -> None:
    assert [one.user for one in scene.coordinator.usage()] == ["ann", "bob"]
    assert [one.user for one in scene.coordinator.usage(after="ann")] == ["bob"]
    assert [one.user for one in scene.coordinator.tokens(after="ann")] == ["bob"]
    assert scene.coordinator.tokens(after="bob") == []
