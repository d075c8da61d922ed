"""The blocks of code in the documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import CodeType

from tests.support.places import ROOT

PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
NOT_RUN = r"^(?:<!-- not run: (?P<why>.+?) -->\n)?"
FENCE = re.compile(NOT_RUN + r"^```(?P<language>.*)\n(?P<code>(?s:.*?))^```$", re.M)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    code: str
    not_run: str | None  # why

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def run(self, **known: object) -> dict[str, object]:
        """Run the block, which is Python, with these names defined; returns all names after it."""
        exec(self.compiled(), known)
        return known

    def compiled(self) -> CodeType:
        return compile(self.code, str(self), "exec")


def blocks(language: str, *pages: str) -> list[Block]:
    """The blocks of these pages, or of all pages, without those that are not run."""
    found = [block for page in pages or PAGES for block in of_page(page)]
    return [one for one in found if one.language == language and one.not_run is None]


def of_page(page: str) -> list[Block]:
    """The blocks of a page, in their order."""
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, m.start("code")), m["language"], m["code"], m["why"])
        for m in FENCE.finditer(text)
    ]
