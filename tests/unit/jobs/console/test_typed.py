"""What is shown comes from other rooms, and has a type."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from jobs import console

FILES = [file for file in Path(console.__file__).parent.glob("*.py") if file.name != "__init__.py"]
JSON = ("documents.py", "print_json")  # of whatever there is


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_nothing_is_shown_of_any_kind(file: Path) -> None:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef) and (file.name, node.name) != JSON:
            given = [one.annotation for one in (*node.args.args, *node.args.kwonlyargs)]
            names = {
                n.id for kind in given if kind for n in ast.walk(kind) if isinstance(n, ast.Name)
            }
            assert not names & {"Any", "dict"}, node.name
