"""The page: who asks, what arrives and trains, and how a task is submitted."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import pytest

from cluster.domain.base import PAGE
from tests.support.page_api import FakeApi
from tests.support.tab import says

EVIL = "<img src=x onerror=document.title='run'>"


def test_tasks_are_seen_as_they_arrive_and_train(api: FakeApi, open_page: Any) -> None:
    page = open_page()
    says(page, ".empty", "No task yet")
    says(page, "#link", "live")
    api.task("digits", "queued", reason="waits for 1 CPU")
    says(page, "#task-digits", "waits for 1 CPU")
    tomorrow = time.time() + 86_400
    api.task("digits", "queued", expected=tomorrow)
    style = "{dateStyle: 'medium', timeStyle: 'short'}"
    date = page.evaluate(f"new Date({1000 * tomorrow}).toLocaleString([], {style})")
    says(page, "#task-digits .progress", f"done at about {date}")
    for phase, words in (("starting", "starting"), ("loading", "loading the base")):
        api.task("digits", "training", phase=phase)
        says(page, "#task-digits .progress", words)
    api.task("digits", "training", step=30, steps=120, loss=1.25)
    says(page, "#task-digits", "30 of 120 steps, loss 1.25")
    assert page.locator("#task-digits progress").get_attribute("value") == "30"
    assert not page.get_by_text(" left").is_visible()  # nobody knows yet
    soon = time.time() + 300
    api.task("digits", "training", step=60, steps=120, loss=1.25, expected=soon)
    says(page, "#task-digits", "loss 1.25, 5 min left")
    api.task("digits", "training", step=119, steps=120, loss=1.25, expected=soon - 400)
    says(page, "#task-digits", "loss 1.25, 0 s left")  # later than was expected
    api.ready("digits")
    says(page, "#task-digits", "zero-shot 50.0 → trained 81.0 % of validation rows")
    api.task("signs", "failed", reason="the loss is not a number")
    says(page, "#task-signs.failed", "not a number")
    assert page.locator("#compose .terms li").count() == 1  # of signs there is nothing to compose


@pytest.mark.parametrize(
    ("kind", "untrained"), [("text", "zero-shot"), ("prototype", "class means")]
)
def test_accuracies_of_a_task_have_names(
    api: FakeApi, open_page: Any, kind: str, untrained: str
) -> None:
    api.head_kind = kind
    api.ready("digits")
    known = {"accuracy_before": 0.5, "accuracy_after": 0.81}
    known |= {"accuracy_fitted": 0.9, "accuracy_frozen": 0.8}
    api.task("signs", "ready", version=1, rows=900, rows_cut=7, **known)
    page = open_page(viewport={"width": 390, "height": 844})
    said = f"{untrained} 50.0 → trained 81.0 % of validation rows"
    says(page, "#task-signs", "; in sums 90.0 %, frozen base 80.0 %")
    says(page, "#task-signs", "7 of 900 training texts are longer than the base model reads")
    told = page.locator(".tasks .progress").all_inner_texts()
    assert told == [said, f"{said}; in sums 90.0 %, frozen base 80.0 %"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_other_work_is_seen_until_it_is_done(api: FakeApi, open_page: Any) -> None:
    page = open_page()
    says(page, "#link", "live")
    run = {"run_id": "r", "about": "evaluating ann's model", "kind": "evaluate", "reason": None}
    api.work = [{**run, "state": "running", "step": 100, "steps": 400, "loss": None}]
    api.changes += 1
    says(page, ".work", "evaluating ann's model")
    says(page, ".work .progress", "100 of 400 rows")
    api.work = []
    api.changes += 1
    page.locator(".work li").wait_for(state="detached")


def test_what_work_found_is_seen_while_other_work_goes_on(api: FakeApi, open_page: Any) -> None:
    api.ready("digits")
    run = {"about": "evaluating", "kind": "evaluate", "state": "running", "reason": None}
    api.work = [{**run, "run_id": "first", "step": 100, "steps": 400, "loss": None}]
    page = open_page()
    says(page, "#accuracy", "No model has been measured yet")
    api.measured({"digits": 0.9})
    api.work = [{**run, "run_id": "second", "step": 0, "steps": 400, "loss": None}]
    api.changes += 1
    says(page, "#accuracy", "90.0")


def test_what_work_found_is_asked_for_where_work_ended_and_not_else(
    api: FakeApi, open_page: Any
) -> None:
    """Of a cluster that tells only what is new."""
    api.partly = True
    api.ready("digits")
    run = {"about": "evaluating", "kind": "evaluate", "state": "running", "reason": None}
    run |= {"run_id": "first", "steps": 400, "loss": None}
    api.work = [{**run, "step": 100}]
    page = open_page()
    says(page, "#accuracy", "No model has been measured yet")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    for step in (200, 300):  # the second is looked at once the first look has ended
        api.work = [{**run, "step": step}]
        api.changes += 1
        says(page, ".work .progress", f"{step} of 400 rows")
    assert "status?since=1" in asked
    assert "accuracy" not in asked
    api.measured({"digits": 0.9})
    api.work = [{**run, "run_id": "second", "step": 0}]
    api.changes += 1
    says(page, "#accuracy", "90.0")
    assert page.locator(".work li").count() == 1


def test_where_a_vector_comes_from(api: FakeApi, open_page: Any) -> None:
    api.ready("digits")
    page = open_page()
    page.get_by_text("Versions").click()
    says(page, "#task-digits .lineage", "v2 (champion) refreshed from v1")
    api.task("signs", "queued")
    says(page, "#task-signs", "queued")
    assert page.locator("#task-digits .lineage").is_visible()  # what is open stays open


def test_users_are_seen_by_admins(api: FakeApi, open_page: Any) -> None:
    page = open_page()
    says(page, "#who", "open to all")
    assert not page.locator("#users").is_visible()
    api.role = "admin"
    page = open_page()
    says(page, "#users td", "3.0 of 64.0")
    page.get_by_text("Issue a token").click()
    page.locator("#users input[name=user]").fill("bob")
    page.get_by_role("button", name="Issue", exact=True).click()
    says(page, "#users form .told", "shown once")
    token = page.locator("#users form .told").inner_text().rpartition(" ")[2]
    ((_, (user, body)),) = api.asked
    assert (user, body["role"], body["days"]) == ("bob", "user", 365)
    assert body["token_hash"] == hashlib.sha256(token.encode()).hexdigest()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="End all tokens of bob").click()
    page.get_by_role("button", name="End all tokens of bob").wait_for(state="detached")
    assert api.tokens == []


def test_a_new_token_is_shown_whatever_becomes_of_the_list(api: FakeApi, open_page: Any) -> None:
    api.role = "admin"
    page = open_page()
    says(page, "#users td", "3.0 of 64.0")
    page.get_by_text("Issue a token").click()
    page.locator("#users input[name=user]").fill("bob")
    api.failing["/v1/usage"] = 1
    page.get_by_role("button", name="Issue", exact=True).click()
    says(page, "#users form .told", "shown once")
    says(page, "#users form .told", "does not answer")


def test_users_that_were_not_told_are_asked_for_again(api: FakeApi, open_page: Any) -> None:
    api.role, api.failing["/v1/usage"] = "admin", 1
    page = open_page(hurry=True)
    says(page, "#users td", "3.0 of 64.0")


def test_what_can_be_no_token_locks_nobody_out(api: FakeApi, open_page: Any) -> None:
    """As a letter without width, which comes along out of a chat."""
    api.token = "secret"
    page = open_page()
    page.locator("#sign-in input").fill("sec\u200bret")
    page.locator("#sign-in button").click()
    says(page, "#sign-in .error", "No such token")
    page.reload()
    page.locator("#sign-in").wait_for()


def test_all_users_can_be_reached(api: FakeApi, open_page: Any) -> None:
    api.role = "admin"
    api.people = [f"user{number:03}" for number in range(203)]
    for holder in (150, 202):
        token = {"user": f"user{holder:03}", "role": "submitter", "used": None}
        api.tokens += [token | {"expires": 2e9}, token | {"expires": None}]
    page = open_page()
    rows, more = page.locator("#users tbody tr"), page.get_by_role("button", name="Show more")
    for shown in (*range(PAGE, 203, PAGE), 203):
        rows.nth(shown - 1).wait_for()
        assert rows.count() == shown
        assert more.is_visible() == (shown < 203)
        if shown < 203:
            more.click()
    told = [row.split("\t")[0] for row in rows.all_inner_texts()]
    assert told == api.people
    assert "submitter" in rows.nth(150).inner_text()
    assert "2033" in rows.nth(150).inner_text()  # when the first of both tokens ends
    assert "2033" not in rows.nth(149).inner_text()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="End all tokens of user202").click()
    page.get_by_role("button", name="End all tokens of user202").wait_for(state="detached")
    assert rows.count() == 203  # where a person has got to stays


def test_what_people_named_is_never_markup(api: FakeApi, open_page: Any) -> None:
    api.task("x", "failed", reason=EVIL)
    page = open_page()
    says(page, "#task-x", EVIL)
    assert page.title() == "TACL"


def test_submit(api: FakeApi, open_page: Any) -> None:
    api.ready("digits")
    page = open_page()
    page.get_by_text("Submit a task").click()
    page.get_by_text("Columns and classes").click()
    csv = {"name": "x.csv", "mimeType": "text/csv", "buffer": b"text,label\na,b\n"}
    for name in ("digits", "signs"):
        page.locator("#submit input[name=name]").fill(name)
        page.locator("#submit input[type=file]").set_input_files(csv)
        page.locator("#submit button").click()
        says(page, "#submit .told", "there is a task" if name == "digits" else "signs is queued")
        page.locator("#submit input[name=skip_bad]").check()
    says(page, "#submit .told", "read as Latin-1")
    ((_, sent),) = api.asked
    assert sent == {"name": "signs", "file": ("x.csv", 15), "options": {"skip_bad": True}}
    says(page, "#task-signs", "queued")


def test_what_the_data_hold_may_be_said(api: FakeApi, open_page: Any) -> None:
    page = open_page()
    says(page, "#link", "live")
    page.get_by_text("Submit a task").click()
    page.get_by_text("Columns and classes").click()
    csv = {"name": "x.csv", "mimeType": "text/csv", "buffer": b"said,kind\na,0\n"}
    page.locator("#submit input[type=file]").set_input_files(csv)
    said = {"name": "me.signs", "input_column": "said", "label_column": "kind", "classes": "a,b"}
    for field, words in said.items():
        page.locator(f"#submit input[name={field}]").fill(words)
    prompts = "a photo of a {}.\n\n  a {} in the rain\n"
    page.get_by_label("Prompts, one in a line, with {} for the class name").fill(prompts)
    page.get_by_label("Private").check()
    page.locator("#submit button").click()
    says(page, "#submit .told", "me.signs is queued")
    ((_, sent),) = api.asked
    rest = {"private": "on", "file": ("x.csv", 14), "options": {"skip_bad": False}}
    rest |= {"templates": ["a photo of a {}.", "a {} in the rain"]}
    assert sent == {**said, **rest}


def test_prompts_are_asked_for_where_the_base_reads_them(api: FakeApi, open_page: Any) -> None:
    api.head_kind = "prototype"
    page = open_page()
    says(page, "#link", "live")
    page.get_by_text("Submit a task").click()
    page.get_by_text("Columns and classes").click()
    page.locator("#submit input[name=classes]").wait_for()
    assert not page.locator("#submit textarea").is_visible()


def test_sign_in(api: FakeApi, open_page: Any) -> None:
    api.token = "secret"
    page = open_page()
    page.locator("#sign-in input").fill("wrong")
    page.locator("#sign-in button").click()
    says(page, "#sign-in .error", "No such token")
    assert not page.locator("#main").is_visible()
    page.locator("#sign-in input").fill("secret")
    page.locator("#sign-in button").click()
    says(page, "#link", "live")
    assert not page.locator("#sign-in").is_visible()
    assert page.locator("#main").is_visible()
    says(page, "#who", "signed in as me (submitter)")
    page.get_by_role("button", name="Sign out").click()
    page.locator("#sign-in").wait_for()
    assert not page.locator("#main").is_visible()


def test_sign_in_and_out_with_the_keyboard(api: FakeApi, open_page: Any) -> None:
    """Whoever comes is in the field of the token already."""
    api.token = "secret"
    page = open_page()
    page.locator("#sign-in input:focus").wait_for()
    page.keyboard.type("secret")
    page.keyboard.press("Enter")
    says(page, "#who", "signed in as me (submitter)")
    page.get_by_role("button", name="Sign out").focus()
    page.keyboard.press("Enter")
    page.locator("#sign-in input:focus").wait_for()


def test_a_token_that_ends_while_the_page_is_open(api: FakeApi, open_page: Any) -> None:
    page = open_page()
    says(page, "#link", "live")
    api.token = "secret"
    api.ready("digits")
    page.locator("#sign-in").wait_for()
    says(page, "#link", "signed out")
    assert page.locator("#who").inner_text() == ""
    assert not page.get_by_role("button", name="Sign out").is_visible()


def test_who_may_not_submit_is_not_asked_to(api: FakeApi, open_page: Any) -> None:
    api.role = "user"
    page = open_page()
    says(page, "#who", "open to all")
    says(page, ".empty", "No task yet")
    page.locator("#tasks details.submitter").wait_for(state="hidden")
    assert not page.get_by_text("Submit one below").is_visible()
    assert not page.get_by_role("button", name="Sign out").is_visible()
