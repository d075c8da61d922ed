"""The documents as a site: it builds without a warning, is whole, and needs no network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

import tacl
from cluster.client.client import Client
from cluster.domain.explanations import Explanations
from cluster.domain.operations import Answers, BackedUp, Exported
from cluster.domain.receipts import Submitted
from cluster.domain.reports import InterferenceReport, TaskInterference, VectorStatus
from cluster.domain.status import ClusterStatus, CompositionRun, RunStatus, TaskStatus
from cluster.domain.work import Evaluated
from cluster.errors import exit_code
from cluster.runtime.doctor import Check
from tacl import errors
from tests.support.blocks import PAGES
from tests.support.places import ROOT

ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^>]*>")
ANSWERS = (
    *(Answers, BackedUp, Check, ClusterStatus, CompositionRun, Evaluated, Explanations, Exported),
    *(InterferenceReport, RunStatus, Submitted, TaskInterference, VectorStatus),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))
    config.plugins.on_startup(command="build", dirty=False)
    build(config)  # a warning ends it: mkdocs.yml is strict
    return folder


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        assert not ELSEWHERE.findall(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\(\"?(?:https?:)?//|@import", sheet.read_text()), sheet


def test_the_reference_has_every_public_name(site: Path) -> None:
    text = (site / "reference/python.html").read_text()
    for name in set(tacl.__all__) - {"__version__"}:
        assert f'id="tacl.{name}"' in text, name
    for name in set(dir(Client)) - {"predictor"}:
        if not name.startswith("_"):
            assert f'id="cluster.client.client.Client.{name}"' in text, name


def test_the_reference_has_every_error(site: Path) -> None:
    text = (site / "reference/python.html").read_text()
    names = [name for name, one in vars(errors).items() if isinstance(one, type)]
    assert [name for name in names if f'id="tacl.errors.{name}"' not in text] == []


def test_the_reference_has_what_documents_and_examples_import(site: Path) -> None:
    text = (site / "reference/python.html").read_text()
    files = [*map(ROOT.joinpath, PAGES), *(ROOT / "examples").iterdir()]
    code = "\n".join(file.read_text() for file in files if file.suffix in (".md", ".py", ".ipynb"))
    found = re.findall(r"^\W*from (tacl[\w.]*) import (\w+(?:, \w+)*)", code, re.M)
    names = {f"{module}.{name}" for module, some in found for name in some.split(", ")}
    assert {"tacl.heads.head.union", "tacl.integrations.mlflow.log_model", "tacl.embedded"} <= names
    assert [name for name in sorted(names) if f'id="{name}"' not in text] == []


def test_the_reference_has_what_a_client_answers_with_its_fields(site: Path) -> None:
    text = (site / "reference/python.html").read_text()
    for one in (*ANSWERS, TaskStatus):
        _, told = text.split(f'id="{one.__module__}.{one.__name__}"')
        missing = [
            name for name in one.model_fields if f"<code>{name}</code>" not in told.split("<h3")[0]
        ]
        assert not missing, one
    assert re.search(r'id="cluster.domain.status.RunState".*?<code>queued</code>', text, re.S)


def test_the_reference_has_every_command_with_flags_that_are_declared_late(site: Path) -> None:
    text = (site / "reference/cli.html").read_text()
    for name in ("tacl up", "tacl users issue", "tacl bench serve", "tacl import"):
        assert f"<code>{name}</code>" in text
    assert "--grow-strength" in text
    assert "--method &lt;sum|" in text


def test_the_reference_has_every_exit_code(site: Path) -> None:
    text = (site / "reference/cli.html").read_text()
    row = r"<td[^>]*>(\d+)</td>\s*<td><code>(\w+)</code></td>\s*<td>(.+)</td>"
    shown = {name: (int(code), meaning) for code, name, meaning in re.findall(row, text)}
    classes = {one for one in vars(errors).values() if isinstance(one, type)} - {errors.TaclError}
    assert len(classes) > 30
    assert shown == {one.__name__: (exit_code(one("x")), _html(one.__doc__)) for one in classes}


def _html(text: str | None) -> str:
    return re.sub(r"`(\w+)`", r"<code>\1</code>", text or "")


def test_the_openapi_is_that_of_the_server(site: Path) -> None:
    assert '"/v1/predict"' in (site / "reference/openapi.json").read_text()
    assert "POST /v1/making/adapt" in (site / "reference/http.html").read_text()
