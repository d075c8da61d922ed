"""A tab of a real Chromium, with the errors that occur in it."""

from __future__ import annotations

from typing import Any

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


# Timeouts of the page pass fifty times as fast.
HURRY = (
    "const wait = window.setTimeout; window.setTimeout = (f, ms, ...x) => wait(f, ms / 50, ...x)"
)


class Tab:
    """A tab, the URLs that it loaded, and the errors in it."""

    def __init__(self, chromium: Any, url: str, hurry: bool = False, **options: Any) -> None:
        self.url = url
        self.context = chromium.new_context(**options)
        if hurry:
            self.context.add_init_script(HURRY)
        self.page = self.context.new_page()
        self.page.set_default_timeout(15000)
        self.urls: list[str] = []
        self.errors: list[str] = []
        self.blocked: list[str] = []
        self.page.on("request", lambda request: self.urls.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: self.blocked.extend(_blocked(line)))
        self.page.goto(url)

    def close(self) -> None:
        """Close it; asserts that there was no error, and nothing was loaded from elsewhere."""
        self.context.close()
        assert not self.errors + self.blocked, self.errors + self.blocked
        assert [u for u in self.urls if not u.startswith((self.url, "blob:", "data:"))] == []


def _blocked(line: Any) -> list[str]:
    """What the policy blocked, and requests for a model that does not exist."""
    no_model = "status of 4" in line.text and "/v1/compositions/" in line.location["url"]
    return [line.text] if no_model or "Content Security Policy" in line.text else []


def says(page: Any, selector: str, words: str) -> None:
    page.locator(selector).filter(has_text=words).first.wait_for()
