"""What the documents name is there, and the figures they show are those of the results."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.blocks import PAGES
from tests.support.places import ROOT

TOPS = ("tacl", "cluster", "jobs", "tests", "docs", "examples")
FILES = [str(path.relative_to(ROOT)) for top in TOPS for path in (ROOT / top).rglob("*.py")]
NAMED = re.compile(r"`([\w/.]*\w\.py)(?:: ([\w., ]+))?`")
FILE = re.compile(r"`((?:results|examples|docs|cluster|tacl|jobs)/[\w./-]+\.(?:md|py))`")
LINK = re.compile(r"\]\((?!http)([^)#\s]+)")
ROWS = {  # of the table of README.md and docs/explanation/measured.md, and of addition-text8
    "a model for each task": "individual",
    "sum of ordinary vectors": "ordinary",
    "TIES": "ties",
    "TSV-M": "tsv-m",
    "AdaMerging": "adamerging",
    "aTLAS": "atlas",
    "**sum of tauJp vectors**": "taujp",
    "logistic regression on the frozen base": "frozen-logistic",
    "**the same sum, heads fitted again**": "taujp+fitted",
    "the same, inner blocks of the base beside its features": "frozen-inner-logistic",
    "**trained for longer, mixed penalty, heads fitted again**": "mixed-longer+fitted",
    "**the same, heads that read inner blocks too**": "mixed-longer+inner",
}
MARKS = {"¹": "one seed", "²": "two seeds"}
SEEDS = {"": 3, "one seed": 1, "two seeds": 2}  # by what is written behind a row
ROW = re.compile(r"^\| ([^|]+?)(?: \((one seed|two seeds)\))? \|[^|]*\|([^|]+)\|([^|]+)\|$", re.M)
TESTS = re.compile(r"`((?:unit|integration|stress)/\w[\w/]*)`")
LINKED = [  # README.md, and what MkDocs does not look at
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "cluster/deploy/README.md",
    "results/README.md",
]


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/glossary.md"])
def test_files_and_names_in_them_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    found = NAMED.findall(text)
    assert found
    for path, names in found:
        files = [file for file in FILES if file == path or file.endswith(f"/{path}")]
        assert files, f"{document} names {path}, which is not there"
        code = "\n".join((ROOT / file).read_text() for file in files)
        for name in re.findall(r"\w+", names.replace(".", " ")):
            assert re.search(rf"\b{name}\b", code), f"{document}: no {name} in {path}"


@pytest.mark.parametrize("document", sorted({*PAGES, *LINKED}))
def test_files_that_are_named_exist(document: str) -> None:
    named = FILE.findall((ROOT / document).read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", LINKED)
def test_files_that_are_linked_exist(document: str) -> None:
    linked = LINK.findall((ROOT / document).read_text())
    assert linked
    folder = (ROOT / document).parent
    assert [name for name in linked if not (folder / name).exists()] == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("document", ["README.md", "docs/explanation/measured.md"])
def test_figures_are_those_of_the_results(document: str) -> None:
    results = json.loads((ROOT / "results/addition-text8.json").read_text())["summary"]
    text = (ROOT / document).read_text().replace(", all tasks", "")
    text = re.sub(r"([¹²])(\**)", lambda mark: f"{mark[2]} ({MARKS[mark[1]]})", text)
    table = {name: (SEEDS[seeds], *cells) for name, seeds, *cells in ROW.findall(text)}
    for row, method in ROWS.items():
        measured = [results[method][name] for name in ("absolute", "normalised")]
        seeds, *cells = table[row]
        assert [cell.strip(" *") for cell in cells] == [f"{100 * m['mean']:.1f}" for m in measured]
        assert {m["count"] for m in measured} == {seeds}, row


def test_every_promise_names_tests_that_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = TESTS.findall(text)
    assert len(named) > 40
    missing = sorted({one for one in named if f"tests/{one}.py" not in FILES})
    assert not missing, f"ARCHITECTURE.md names tests that are not there: {missing}"
