"""The page on a small screen, and with a cluster that goes away."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.page_api import FakeApi
from tests.support.tab import says


def unusable(page: Any) -> list[tuple[str, str]]:
    """What people cannot use, as axe-core finds it: rules and elements."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(one["id"], node["html"]) for one in found for node in one["nodes"]]


def test_a_phone(api: FakeApi, open_page: Any) -> None:
    """Nothing is wider than the screen; what is wide scrolls inside itself."""
    names = [f"a-task-with-a-long-name-{i}" for i in range(8)]
    api.ready(*names)
    api.measured(dict.fromkeys(names, 0.9), unknown=0.8)
    page = open_page(viewport={"width": 360, "height": 740}, has_touch=True)
    page.locator("#heat table").wait_for()
    page.locator("#accuracy table").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for link in page.locator("nav a:visible").all():
        box = link.bounding_box()
        assert box["x"] + box["width"] <= 360  # none is cut
    year = page.evaluate("new Date(1e12).toLocaleDateString([], {dateStyle: 'medium'})")
    says(page, "#accuracy small", year)
    boxes = page.locator("button:visible, summary:visible").all()
    assert min(box.bounding_box()["height"] for box in boxes) >= 24  # of a finger


def test_why_is_seen_on_a_phone(api: FakeApi, open_page: Any) -> None:
    """What a part adds, and what is answered without it; the last column is scrolled to."""
    api.modality = "text"
    page = open_page(viewport={"width": 390, "height": 844})
    page.locator("#try textarea").fill("one")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("Why?").click()
    says(page, "#try table", "together")
    ends = {}
    for cell in page.locator("#try thead th").all():
        box = cell.bounding_box()
        ends[cell.inner_text()] = box["x"] + box["width"]
    assert ends["adds to the logit"] <= 390
    assert ends["answer without it"] <= 390


LATER = pytest.mark.nightly


@pytest.mark.parametrize(
    ("width", "colours"),
    [
        *((390, "light"), (768, "dark"), (1920, "light")),
        *(pytest.param(*one, marks=LATER) for one in ((390, "dark"), (768, "light"))),
        pytest.param(1920, "dark", marks=LATER),
    ],
)
def test_everybody_can_use_it(api: FakeApi, open_page: Any, width: int, colours: str) -> None:
    """axe finds nothing, and nothing is wider than the screen, with everything shown."""
    api.role, api.modality = "admin", "text"
    api.ready("digits", "signs")
    api.task("faces", "training", step=30, steps=120, loss=1.25)
    each = {"digits": 0.9}
    api.measured(each, unknowns=each, frozen=each, unknown=0.9, frozen_known=0.8)
    page = open_page(viewport={"width": width, "height": 900}, color_scheme=colours)
    page.locator("#compose .terms li").first.wait_for()
    assert unusable(page) == []  # with nothing picked, too
    page.get_by_role("button", name="Pick all").click()
    page.get_by_role("button", name="Preview its accuracy").click()
    page.locator(".foreseen table").wait_for()
    page.locator("#try textarea").fill("one")
    page.get_by_role("button", name="Ask", exact=True).click()
    for words in (
        "Why?",
        "Logits of the likeliest classes",
        "Issue a token",
        "Submit a task",
        "Columns and classes",
        "Versions",
    ):
        page.get_by_text(words).first.click()
    says(page, "#try table", "together")
    says(page, ".lineage", "refreshed from v1")
    assert unusable(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("width", "colours"),
    [
        *((390, "dark"), (1920, "light")),
        *(pytest.param(*one, marks=LATER) for one in ((390, "light"), (1920, "dark"))),
    ],
)
def test_everybody_can_begin(api: FakeApi, open_page: Any, width: int, colours: str) -> None:
    """axe finds nothing in a home without tasks, nor where one signs in."""
    api.role, api.modality = "admin", "text"
    screen = {"viewport": {"width": width, "height": 900}, "color_scheme": colours}
    empty = open_page(**screen)
    says(empty, ".empty", "No task yet")
    says(empty, "#heat", "No vector yet")
    says(empty, "#accuracy .scroll", "No model has been measured")
    assert unusable(empty) == []
    api.token = "secret"
    signed_out = open_page(**screen)
    says(signed_out, "#link.lost", "signed out")
    assert unusable(signed_out) == []
    signed_out.locator("#sign-in input").fill("wrong")
    signed_out.locator("#sign-in button").click()
    says(signed_out, "#sign-in .error", "No such token")
    assert unusable(signed_out) == []
    assert signed_out.evaluate("document.documentElement.scrollWidth") <= width


def test_a_cluster_that_goes_away_is_said(api: FakeApi, open_page: Any) -> None:
    page = open_page()
    says(page, "#link", "live")
    page.context.set_offline(True)
    page.evaluate("document.dispatchEvent(new CustomEvent('composed'))")
    says(page, "#link.lost", "does not answer")
    page.context.set_offline(False)
    says(page, "#link.live", "live")


def test_what_was_not_answered_is_asked_again(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    api.measured({"digits": 0.9})
    api.failing |= {f"/v1/{path}": 2 for path in ("status", "interference", "accuracy")}
    page = open_page(hurry=True)
    page.locator("#heat td").first.wait_for()
    page.locator("#accuracy td").first.wait_for()
    says(page, "#link.live", "live")


def test_why_nothing_is_heard_is_said(api: FakeApi, open_page: Any) -> None:
    api.failing["/v1/events"] = 1000
    says(open_page(), "#link.lost", "The coordinator does not answer now.")


def test_a_line_that_went_silent_is_opened_again(api: FakeApi, open_page: Any) -> None:
    page, opened = open_page(hurry=True), list[str]()
    page.on("request", lambda one: opened.append(one.url) if "events" in one.url else None)
    says(page, "#link.live", "live")
    page.wait_for_timeout(3000)
    assert opened


def test_what_the_cluster_cannot_do_now_is_said(api: FakeApi, open_page: Any) -> None:
    api.trouble = "the disk is full"
    page = open_page()
    says(page, "#trouble", "the disk is full")
