"""What the documents name in the code is there."""

from __future__ import annotations

import re

import pytest

from tests.support.places import ROOT

FILES = [str(path.relative_to(ROOT)) for top in ("tacl", "cluster", "jobs", "tests")
         for path in (ROOT / top).rglob("*.py")]  # fmt: skip
NAMED = re.compile(r"`([\w/.]*\w\.py)(?:: ([\w., ]+))?`")
TESTS = re.compile(r"`((?:unit|integration|stress)/\w[\w/]*)`")


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


def test_every_promise_names_tests_that_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = TESTS.findall(text)
    assert len(named) > 40
    missing = sorted({one for one in named if f"tests/{one}.py" not in FILES})
    assert not missing, f"ARCHITECTURE.md names tests that are not there: {missing}"
