"""The page on a small screen, and with a cluster that goes away."""

from __future__ import annotations

from typing import Any

from tests.support.page_api import FakeApi
from tests.support.tab import says


def test_a_phone(api: FakeApi, open_page: Any) -> None:
    """Nothing is wider than the screen; what is wide scrolls inside itself."""
    names = [f"a-task-with-a-long-name-{i}" for i in range(8)]
    api.ready(*names)
    api.rows = [{"terms": names, "label": "", "at": 1e9, "accuracies": dict.fromkeys(names, 0.9)}]
    page = open_page(viewport={"width": 360, "height": 740}, has_touch=True)
    page.locator("#heat .main-svg").first.wait_for()
    page.locator("#accuracy table").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for link in page.locator("nav a").all():
        box = link.bounding_box()
        assert box["x"] + box["width"] <= 360  # none is cut
    year = page.evaluate("new Date(1e12).toLocaleDateString([], {dateStyle: 'short'})")
    says(page, "#accuracy small", year)
    boxes = page.locator("button:visible, summary:visible").all()
    assert min(box.bounding_box()["height"] for box in boxes) >= 24  # of a finger


def test_a_cluster_that_goes_away_is_said(api: FakeApi, open_page: Any) -> None:
    page = open_page()
    says(page, "#link", "live")
    page.context.set_offline(True)
    page.evaluate("document.dispatchEvent(new CustomEvent('composed'))")
    says(page, "#link.lost", "does not answer")
