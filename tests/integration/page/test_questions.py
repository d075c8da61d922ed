"""The page: questions to a model, and a whole visit with the real coordinator."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from PIL import Image

from tests.support.api_scene import scene
from tests.support.listening import serving
from tests.support.page_api import FakeApi
from tests.support.tab import Tab, says


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, "PNG")
    return file.getvalue()


def test_a_picture_is_asked_about(api: FakeApi, open_page: Any) -> None:
    api.ready("digits")
    page = open_page()
    page.get_by_role("button", name="Ask", exact=True).click()
    says(page, "#try .told.error", "Choose a picture")
    assert not page.locator("#try textarea").is_visible()
    file = {"name": "p.png", "mimeType": "image/png", "buffer": png()}
    other = {"name": "p.pdf", "mimeType": "application/pdf", "buffer": b"%PDF"}
    page.locator("#try input[type=file]").set_input_files([file, other])
    says(page, "#try .told.error", "No picture: p.pdf.")
    page.get_by_role("button", name="Ask", exact=True).click()
    says(page, "#try .answer h3", "digits: zero")
    sides = [side.all_inner_texts() for side in page.locator("#try .beside > div").all()]
    (own,), (base,) = sides
    assert own == "me’s model\nzero digits\n0.75\nstop signs\n0.20\nnine digits\n0.05"
    assert base == "the base model alone\nnine digits\n0.60\nzero digits\n0.30\nstop signs\n0.10"
    ((_, asked),) = api.asked
    assert base64.b64decode(asked["inputs"][0]["image"]) == png()


def test_many_are_asked_at_once_and_explained(api: FakeApi, open_page: Any) -> None:
    api.modality = "text"
    page = open_page()
    page.locator("#try textarea").fill("one\n\n two ")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#try article").nth(1).wait_for()
    assert page.locator("#try article q").all_inner_texts() == ["one", "two"]
    page.locator("#try article").nth(1).get_by_text("Why?").click()
    says(page, "#try table", "together")
    rows = [row.split("\t") for row in page.locator("#try tbody tr").all_inner_texts()]
    assert rows == [
        ["base model", "50.0", "+1.50", "", ""],
        ["+digits@v1", "50.0", "+1.50", "signs: stop", "0.20"],
        ["together", "100.0", "+3.00", "", ""],
    ]
    every = page.locator("#try table").nth(1)
    assert every.count() == 0  # it is closed
    page.get_by_text("Logits of the likeliest classes").click()
    every.wait_for()
    assert every.locator("thead th").all_inner_texts() == [
        *("part", "digits: zero", "signs: stop", "digits: nine"),
    ]
    assert [row.split("\t") for row in every.locator("tbody tr").all_inner_texts()] == [
        ["base model", "+1.50", "+1.00", "+0.50"],
        ["+digits@v1", "+1.50", "+1.00", "+0.50"],
        ["together", "+3.00", "+2.00", "+1.00"],
    ]
    assert "null" not in page.locator("#try .answers").inner_text()
    assert [what for what, _ in api.asked] == ["predict", "explain"]
    assert api.asked[0][1]["inputs"] == [{"text": "one"}, {"text": "two"}]
    assert api.asked[1][1]["inputs"] == [{"text": "two"}]
    api.explains = "ef56" * 16
    page.locator("#try article").nth(0).get_by_text("Why?").click()
    says(page, "#try article", "The model has changed since; ask again.")


def test_of_many_classes_the_likeliest_come_first(api: FakeApi, open_page: Any) -> None:
    api.modality, api.more = "text", 9
    page = open_page()
    page.locator("#try textarea").fill("one")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("Why?").click()
    page.get_by_text("Logits of the likeliest classes").click()
    for shown, words in ((10, "Of the 10 likeliest of 12 classes"), (12, "Of all 12 classes")):
        says(page, "#try .hint", words)
        heads = page.locator("#try table").last.locator("thead th").all_inner_texts()
        assert heads[:3] == ["part", "digits: zero", "signs: stop"]
        assert len(heads) == 1 + shown
        if shown == 10:
            page.get_by_text("All 12", exact=True).click()


def test_a_text_is_asked_about(api: FakeApi, open_page: Any) -> None:
    api.modality = "text"
    page = open_page()
    page.locator("#try textarea").fill("Stocks fell on Monday.")
    page.get_by_role("button", name="Ask", exact=True).click()
    says(page, "#try .answer", "zero")
    ((_, asked),) = api.asked
    assert asked["inputs"] == [{"text": "Stocks fell on Monday."}]
    assert not page.locator("#try .drop").is_visible()


def test_a_text_is_asked_about_and_explained_with_the_keyboard(
    api: FakeApi, open_page: Any
) -> None:
    api.modality = "text"
    page = open_page()
    page.locator("#try textarea").wait_for()
    page.locator("#try textarea").focus()
    page.keyboard.type("Stocks fell on Monday.")
    for key in ("Tab", "Enter"):  # from the text to `Ask`
        page.keyboard.press(key)
    says(page, "#try .answer", "zero")
    for key in ("Tab", "Enter"):  # to `Why?` of the answer
        page.keyboard.press(key)
    says(page, "#try table", "together")


def test_what_is_of_no_task_is_said_to_be(api: FakeApi, open_page: Any) -> None:
    api.modality = "text"
    page = open_page()
    page.locator("#try textarea").fill("Stocks fell.\n???")
    page.get_by_role("button", name="Ask", exact=True).click()
    unlike = "Unlike the inputs of every task of this model (1 in 20 of their own is too)"
    says(page, "#try .answer:nth-of-type(2)", f"{unlike}; the nearest is digits: zero.")
    told = page.locator("#try .answer h3").all_inner_texts()
    assert told == ["digits: zero", "none of these"]


def test_a_visit(chromium: Any, tmp_path: Path) -> None:
    """Sign in, submit, watch, compose, measure, ask."""
    app, service = scene(tmp_path / "home", ann="submitter")
    rows = ["text,label", *(f"sentence {i},{'ab'[i % 2]}" for i in range(40))]
    csv = {"name": "x.csv", "mimeType": "text/csv", "buffer": "\n".join(rows).encode()}
    with serving(app) as url:
        tab = Tab(chromium, url)
        page = tab.page
        page.locator("#sign-in input").fill("token of ann")
        page.locator("#sign-in button").click()
        says(page, "#who", "signed in as ann (submitter)")
        says(page, ".empty", "No task yet")
        page.get_by_text("Submit a task").click()
        for name in ("letters", "x/y"):
            page.locator("#submit input[name=name]").fill(name)
            page.locator("#submit input[type=file]").set_input_files(csv)
            page.locator("#submit button").click()
            if name == "letters":
                says(page, "#submit .told", "letters is queued")
        assert page.locator("#submit input:invalid").count() == 1  # a name with a slash
        says(page, "#task-letters", "50.0 → trained 90.0 %")
        says(page, "#heat", "1.00")
        page.get_by_role("button", name="Pick all").click()
        page.get_by_role("button", name="Use this model").click()
        says(page, "#compose .told", "This is ann’s model now")
        page.get_by_role("button", name="Measure it on test rows").click()
        says(page, "#accuracy tbody", "70.0")  # the task unknown
        said = page.locator("#accuracy tbody td").all_inner_texts()
        assert said == ["88.0", "88.0\nunknown 70.0\nfrozen base 80.0\nfrozen base, unknown 60.0"]
        page.locator("#try textarea").fill("Is it a letter?")
        page.get_by_role("button", name="Ask", exact=True).click()
        says(page, "#try .beside", "0.75")
        page.get_by_text("Why?").click()
        says(page, "#try .answer table", "+letters@v1")
        tab.close()
    question, explained = service.questions
    assert explained.explain
    assert question.inputs == ["Is it a letter?"]
    assert [str(term.vector.task) for term in question.model.terms] == ["letters"]
