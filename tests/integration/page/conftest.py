"""A Chromium, and tabs with the page in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.listening import serving
from tests.support.needs import need
from tests.support.page_api import FakeApi
from tests.support.tab import FLAGS, Tab

ADVICE = "install a Chromium, such as Debian's package chromium"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright import sync_api

    path = need("browser", shutil.which("chromium") or shutil.which("chromium-browser"), ADVICE)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    api = FakeApi()
    with serving(api.app) as api.url:
        yield api
    assert api.app.state.undeclared == []  # what the page is shown the real API can answer


@pytest.fixture
def open_page(chromium: Any, api: FakeApi) -> Iterator[Any]:
    opened: list[Tab] = []

    def open_it(**options: Any) -> Any:
        opened.append(Tab(chromium, api.url, **options))
        return opened[-1].page

    yield open_it
    for one in opened:
        one.close()
