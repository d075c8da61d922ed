"""What the documents say of HTTP: their Python that needs a server is asked of one in this process,
and the routes that they name are there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.client.client import Client
from docs.hooks import openapi
from tests.support.api_scene import scene
from tests.support.blocks import PAGES, Block, of_page
from tests.support.listening import serving
from tests.support.needs import need
from tests.support.places import ROOT

PATHS = openapi()["paths"] | {"/v1/openapi.json": {"get": {}}}  # which does not tell of itself
ADDRESS = "127.0.0.1:8300"
PYTHON = [block for page in PAGES for block in of_page(page) if block.language == "python"]
ASKED = [block for block in PYTHON if block.not_run == "needs a server"]
CURL = [
    block
    for page in PAGES
    for block in of_page(page)
    if block.code.startswith("curl") and block.not_run == "needs a server"
]
PRINTED = {  # by a word of the block: answers of tests.support.instant and api_scene
    "alice.explain(": r"\+news@v1 0\.5 .*'a'.*",
    "tritonclient": r"\['a'\]",
    "openai": r"\[0\.5, 7\.33\d*\]",
}
ROUTE = re.compile(r"(?:\b(GET|POST|PUT|PATCH|DELETE)\s)?(/v[12]/[\w./{}-]*[\w}…])")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with alice, of whom the pages speak, her model, and her token as they take it."""
    app, _ = scene(tmp_path / "home", ann="submitter", alice="user")
    rows = ["text,label", *(f"sentence {row},{'ab'[row % 2]}" for row in range(40))]
    (tmp_path / "news.csv").write_text("\n".join(rows))
    monkeypatch.setenv("TACL_TOKEN", "token of alice")
    with serving(app) as url:
        ann = Client(url, token="token of ann")
        ann.submit("news", tmp_path / "news.csv")
        ann.wait()
        Client(url).compose("alice", ["+news"])
        yield url.rstrip("/")


@pytest.mark.parametrize("block", ASKED, ids=str)
def test_python(block: Block, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = block.code.replace(ADDRESS, url.removeprefix("http://"))
    replace(block, code=code).run(alice=Client(url))
    (wanted,) = (printed for word, printed in PRINTED.items() if word in block.code)
    assert re.search(wanted, capsys.readouterr().out)


@pytest.mark.parametrize("block", CURL, ids=str)
def test_curl(block: Block, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the program itself, with the tokens that the page speaks of."""
    need("curl", shutil.which("curl"), "install curl")
    monkeypatch.setenv("BOB_TOKEN", "token of ann")  # a submitter too
    rows = (f"{text},{stars}" for stars in ("bad", "good") for text in map(str, range(20)))
    (tmp_path / "reviews.csv").write_text("\n".join(["review,stars", *rows, "none,"]))
    code = block.code.replace(ADDRESS, url.removeprefix("http://"))
    shell = ["bash", "-c", code.replace("curl", "curl --silent --fail-with-body", 1)]
    asked = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True)
    assert asked.returncode == 0, asked.stdout
    told = json.loads(asked.stdout)
    if "predict" in code:
        assert [one["task"] for one in told["best"]] == ["news"]
    else:
        assert told.get("task") == "stars" or [one["name"] for one in told["tasks"]] == ["news"]


@pytest.mark.parametrize("page", [*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_routes(page: str) -> None:
    """With the method, where the page says one; `…` stands for any ending."""
    for method, path in ROUTE.findall((ROOT / page).read_text()):
        found = [methods for known, methods in PATHS.items() if leads(path, known)]
        assert any(not method or method.lower() in methods for methods in found), (method, path)


def leads(path: str, known: str) -> bool:
    if path.endswith("…"):
        return known.startswith(path.rstrip("…"))
    return re.fullmatch(re.sub(r"{\w+}", "[^/]+", known), path) is not None
