"""The page: models composed, by keyboard alone, and what is known of their vectors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.page_api import FakeApi, finding
from tests.support.tab import says


def test_matrices(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    api.findings = [finding("digits", "signs", "digits disturbs signs")]
    api.measured({"digits": 0.9})
    means = {"absolute": 0.8, "unknown": 0.65, "frozen_known": 0.75, "frozen_unknown": 0.6}
    own, unknowns, frozen = {"digits": 0.8, "signs": 0.6}, {"digits": 0.7}, {"digits": 0.77}
    api.measured(own, 2e9, unknowns, frozen, **means)  # signs are subtracted
    page = open_page()
    says(page, "#interference .findings", "digits disturbs signs")
    numbers = page.locator("#heat tbody td").all_inner_texts()
    assert numbers == ["1.00", "0.60", "0.60", "1.00"]
    assert not page.locator("#interference .loudest").is_visible()  # the matrix has all
    assert page.locator("#accuracy tbody td").all_inner_texts() == [
        *("90.0", "", "90.0"),
        *("80.0\nunknown 70.0\nfrozen base 77.0", "60.0"),
        "80.0\nunknown 65.0\nfrozen base 75.0\nfrozen base, unknown 60.0",
    ]


def test_the_loudest_pairs_of_tasks_that_the_matrix_has_not(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    api.loudest = [{"vector": "old", "version": 2, "on": "digits", "logits": 0.7}]
    page = open_page()
    page.locator("#interference .loudest td").first.wait_for()
    assert page.locator("#interference .loudest tbody th").all_inner_texts() == ["old@v2"]
    assert page.locator("#interference .loudest td").all_inner_texts() == ["digits", "0.70"]


def test_compose_with_the_keyboard(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs", "faces")
    api.findings = [finding("digits", "signs", "digits disturbs signs")]
    page = open_page()
    page.locator("#compose .terms li").nth(2).wait_for()
    page.locator("#compose .terms input[type=checkbox]").first.focus()
    keys = page.keyboard
    keys.press("Space")  # +digits
    for key in ("Tab", "Tab", "ArrowLeft", "ArrowLeft"):  # its sign, its slider: 0.9
        keys.press(key)
    for key in ("Tab", "Tab", "Tab", "Enter"):  # its number, the next task, its sign
        keys.press(key)
    says(page, "#compose output", "+0.9*digits −signs")
    says(page, "#compose .report", "digits disturbs signs")
    says(page, "#compose .report", "signs changes the answers for digits by 0.60")
    page.locator("#compose .use").focus()
    keys.press("Enter")
    says(page, "#compose .told", "ab12ab12ab12")
    page.get_by_role("button", name="Measure it on test rows").click()
    says(page, "#compose .told", "being measured")
    says(page, "#compose .told", "was measured")
    recipe = {"user": None, "terms": ["+0.9*digits", "-signs"]}
    assert api.asked == [("compose", recipe), ("evaluate", ("me",)), ("evaluate", ("me",))]


def test_the_map_of_tasks_says_what_is_missing(api: FakeApi, open_page: Any) -> None:
    page = open_page()
    says(page, "#heat", "No vector yet")
    api.missing = 2
    api.ready("digits", "signs")
    api.task("faces", "queued")  # it has samples, and no vector
    says(page, "#interference .missing", "2 pairs are not measured yet (–).")
    says(page, "#heat thead", "faces")
    rows = [row.split("\t") for row in page.locator("#heat tbody tr").all_inner_texts()]
    assert rows == [["digits@v1", "1.00", "0.60", "–"], ["signs@v1", "0.60", "1.00", "–"]]
    api.missing, api.generic = 3, None
    api.task("faces", "training")
    page.evaluate("document.dispatchEvent(new CustomEvent('composed'))")
    words = "3 pairs are not measured yet (–), 2 of them on the generic samples"
    says(page, "#interference .missing", words)


def test_what_is_not_known_yet_is_said_to_be_loading(api: FakeApi, open_page: Any) -> None:
    api.ready("digits")
    api.held.add("/v1/interference")
    page = open_page()
    says(page, "#task-digits", "81.0 %")
    says(page, "#heat", "Loading")
    says(page, "#accuracy .scroll", "Loading")
    api.held.clear()
    says(page, "#heat", "1.00")
    says(page, "#accuracy .scroll", "No model has been measured")


def test_accuracy_is_foreseen_before_a_model_is_used(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    page = open_page()
    page.get_by_role("button", name="Pick all").click()
    page.get_by_role("button", name="Preview its accuracy").click()
    says(page, "#compose .told", "100 of 400 rows")
    says(page, "#compose .told", "stays as it is")
    says(
        page,
        "#compose .told",
        "Mean of the tasks that are added: 80.0 %, 70.0 % where no task is named.",
    )
    says(page, "#compose .told", "A classifier on the frozen base: 75.0 %, 60.0 %.")
    rows = page.locator(".foreseen tbody tr").all_inner_texts()
    assert [row.split("\t") for row in rows] == [
        ["accuracy in %", "80.0", "80.0"],
        ["of it by +digits", "+30.0", "−2.0"],
        ["of it by +signs", "−2.0", "+30.0"],
    ]
    assert api.asked == 2 * [("evaluate", ("me", "+digits", "+signs"))]  # and nothing is composed
    page.locator("#compose .terms [type=checkbox]").first.uncheck()
    assert page.locator(".foreseen tr").count() == 0  # it was of another recipe


@pytest.mark.parametrize(
    ("change", "high", "words"),
    [
        (
            0.6,
            0.7,
            "No vector changes another task’s answers by more than 0.60 of what its own does.",
        ),
        (0.6, 0.6, "digits changes the answers for signs by 0.60 of what signs’s own vector does."),
        (None, 0.5, "What these vectors do to each other is not measured yet."),
    ],
)
def test_what_is_picked_is_judged(
    api: FakeApi, open_page: Any, change: float | None, high: float, words: str
) -> None:
    api.ready("digits", "signs")
    api.change, api.high = change, high
    page = open_page()
    says(page, "#heat", "1.00")
    page.get_by_role("button", name="Pick all").click()
    assert page.locator("#compose .report li").first.inner_text() == words


def test_nothing_picked_is_no_model(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    page = open_page()
    page.get_by_role("button", name="Pick all").click()
    says(page, "#compose output", "+digits +signs")
    for box in page.locator("#compose .terms input[type=checkbox]").all():
        box.uncheck()
    assert page.locator("#compose .use").is_disabled()
    says(page, "#compose output", "nothing picked")


def test_the_model_that_there_is_is_ticked(api: FakeApi, open_page: Any) -> None:
    api.role = "admin"  # who may name another user
    api.ready("digits", "signs", "faces")
    api.models["me"] = api.sum("digits", "-0.5*signs")
    api.models["eve"] = api.models["me"] | {"user": "eve", "method": "ties"}
    page = open_page()
    says(page, "#compose output", "+digits −0.5*signs")
    ticked = [box.is_checked() for box in page.locator("#compose .terms [type=checkbox]").all()]
    assert ticked == [True, True, False]
    api.changes += 1
    page.locator("#compose .terms [type=checkbox]").nth(2).check()
    says(page, "#compose output", "+digits −0.5*signs +faces")  # what a person ticks stays
    page.locator("#compose input[name=user]").fill("eve")
    page.locator("#compose input[name=user]").press("Tab")
    says(page, "#compose .told", "made by ties of +digits@v1 -0.5*signs@v1")
    assert page.locator("#compose output").inner_text() == "nothing picked"
    page.locator("#compose input[name=user]").fill("me")
    page.locator("#compose input[name=user]").press("Tab")
    says(page, "#compose output", "+digits −0.5*signs")
    assert "ties" not in page.locator("#compose .told").inner_text()


def test_to_name_a_user_composes_nothing(api: FakeApi, open_page: Any) -> None:
    api.role = "admin"
    api.ready("digits", "signs")
    api.models["me"] = api.sum("digits")
    api.models["eve"] = api.sum("signs") | {"user": "eve"}
    page = open_page()
    says(page, "#compose output", "+digits")
    page.locator("#compose input[name=user]").fill("eve")
    page.locator("#compose input[name=user]").press("Enter")
    says(page, "#compose output", "+signs")
    assert api.asked == []
    api.held.add("/v1/compositions")  # whose model it is, is not known in time
    page.locator("#compose input[name=user]").fill("me")
    page.get_by_role("button", name="Use this model").click()
    says(page, "#compose .told", "Another user’s model is ticked still")
    api.held.clear()
    assert api.asked == []


def test_many_are_picked_at_once(api: FakeApi, open_page: Any) -> None:
    api.ready(*(f"task-{number}" for number in range(600)))
    api.held.add("/v1/interference")
    page = open_page()
    page.locator("#compose .terms li").nth(599).wait_for()
    took = page.evaluate(
        "() => { const begun = performance.now(); document.querySelector('#compose .all').click();"
        " return new Promise((done) => setTimeout(() => done(performance.now() - begun))); }"
    )
    api.held.clear()
    assert took < 2000


def test_what_is_picked_is_read_aloud_once(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    api.task("faces", "training", step=1, steps=9)
    page = open_page()
    says(page, "#heat", "1.00")
    page.get_by_role("button", name="Pick all").click()
    says(page, "#compose .report", "digits")
    page.evaluate(
        "() => { window.told = 0; for (const at of ['#compose .report', '#compose output'])"
        " new MutationObserver(() => window.told++).observe(document.querySelector(at),"
        " {childList: true, subtree: true, characterData: true}); }"
    )
    for step in (2, 3):
        api.task("faces", "training", step=step, steps=9)
        says(page, "#task-faces", f"{step} of 9")
    assert page.evaluate("window.told") == 0


def test_what_is_ticked_counts(api: FakeApi, open_page: Any) -> None:
    api.ready("digits")
    page = open_page()
    box = page.locator("#compose .terms [type=checkbox]").first
    box.check()
    page.locator("#compose .terms [type=number]").fill("0")
    box.check()
    says(page, "#compose output", "+digits")


def test_nothing_can_be_picked_before_the_model_is_known(api: FakeApi, open_page: Any) -> None:
    """It would be lost when the model arrives."""
    api.ready("digits", "signs")
    api.models["me"] = api.sum("digits")
    api.failing["/v1/compositions"] = 1000  # until it was seen
    page = open_page()
    says(page, "#link.lost", "Trying again")
    assert not page.get_by_role("button", name="Pick all").is_visible()
    api.failing.clear()
    says(page, "#compose output", "+digits")


def test_a_version_that_is_not_the_champion_is_shown(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "faces")
    api.task("signs", "ready", version=2)
    api.models["me"] = api.sum("digits", "-0.5*signs@v1", "0.25*signs")
    page = open_page()
    says(page, "#compose output", "+digits +0.25*signs −0.5*signs@v1")
    says(page, "#compose .report", "signs@v1 is not the champion of now")
    page.get_by_role("button", name="Pick all").click()
    says(page, "#compose output", "+digits +faces +0.25*signs −0.5*signs@v1")
    page.locator("#compose .use").click()
    says(page, "#compose .told", "This is me’s model now")
    used = ["+digits", "+faces", "+0.25*signs", "-0.5*signs@v1"]
    assert api.asked == [("compose", {"user": None, "terms": used})]


def test_a_model_stays_as_it_is_when_a_champion_moves(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    api.models["me"] = api.sum("digits", "-0.5*signs")
    page = open_page()
    says(page, "#compose output", "+digits −0.5*signs")
    assert not page.get_by_role("button", name="Update to the champions").is_visible()
    api.task("signs", "ready", version=2)
    says(page, "#compose output", "+digits −0.5*signs@v1")
    names = page.locator("#compose .terms label").all_inner_texts()
    assert names == ["digits", "signs", "signs@v1"]
    page.get_by_role("button", name="Update to the champions").click()
    page.locator("#compose output", has_text=re.compile(r"^\+digits −0.5\*signs$")).wait_for()
    assert page.locator("#compose .terms li").count() == 2
    assert api.asked == [("update", "me")]
    page.locator("#compose .terms [type=checkbox]").first.uncheck()
    api.task("signs", "ready", version=3)
    says(page, "#task-signs", "v3")
    assert page.locator("#compose output").inner_text() == "−0.5*signs"  # what a person picks stays


def test_a_task_that_was_removed_can_be_picked_no_more(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    page = open_page()
    page.get_by_role("button", name="Pick all").click()
    says(page, "#compose output", "+digits +signs")
    api.tasks, api.changes = api.tasks[1:], api.changes + 1
    page.locator("#compose output", has_text=re.compile(r"^\+signs$")).wait_for()
    assert page.locator("#compose .terms li").count() == 1


def test_what_is_left_of_a_model_stays_as_it_is_too(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    api.models["me"] = api.sum("digits", "signs")
    page = open_page()
    says(page, "#compose output", "+digits +signs")
    api.tasks, api.changes = api.tasks[1:], api.changes + 1
    page.locator("#compose output", has_text=re.compile(r"^\+signs$")).wait_for()
    api.task("signs", "ready", version=2)
    says(page, "#compose output", "+signs@v1")


def test_only_an_admin_is_asked_whose_model(api: FakeApi, open_page: Any) -> None:
    api.ready("digits")
    for role, is_asked in (("user", False), ("submitter", False), ("admin", True)):
        api.role = role
        page = open_page()
        says(page, "#who", "open to all")
        assert page.get_by_label("Model of").is_visible() == is_asked


def test_what_is_not_known_of_some_is_not_called_fine(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs-150")
    api.change = None
    api.loudest = [{"vector": "digits", "version": 1, "on": "signs-150", "logits": 0.2}]
    page = open_page()
    says(page, "#heat", "1.00")
    page.get_by_role("button", name="Pick all").click()
    line = page.locator("#compose .report li").first
    assert line.inner_text().startswith("1 of 2 pairs are not measured, or not among the newest;")
    assert "by more than 0.20 of" in line.inner_text()
    assert line.get_attribute("class") == ""
    assert page.locator("#compose output").inner_text() == "+digits +signs-150"  # as it is typed


def test_rows_of_one_recipe_are_told_apart(api: FakeApi, open_page: Any) -> None:
    api.ready("digits")
    for user, method in (("ann", "sum"), ("bob", "ties")):
        api.measured({"digits": 0.9})
        api.rows[-1] |= {"user": user, "method": method}
    page = open_page()
    says(page, "#accuracy", "90.0")
    heads = page.locator("#accuracy tbody th").all_inner_texts()
    assert [head.split("ann: ")[-1].split("bob: ")[-1] for head in heads] == [
        "+digits",
        "ties of +digits",
    ]
