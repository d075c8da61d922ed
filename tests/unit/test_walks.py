"""The walks of CONTRIBUTING.md are short, and what they name is defined where they say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.places import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SECTION = TEXT[TEXT.index("## Walks") : TEXT.index("## How code reads")]
WALKS = dict(re.findall(r"\*\*(.+?)\*\*\n\n(.+?)\n\n", SECTION + "\n\n", re.DOTALL))
QUOTED = re.compile(r"`([^`]+)`")
FILE = re.compile(r"([\w/]*\w\.py)(?:: ([\w., ]+))?")
FOLDER = re.compile(r"\w+(?:/\w+)+")
NAME = re.compile(r"[\w.]+")
PACKAGES = ("tacl", "cluster", "jobs")


def defined(node: ast.AST, within: str = "") -> Iterator[str]:
    """Classes, functions, and what is assigned in a module or a class; of a class also by it."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                yield name
                yield from defined(child, name)
                continue
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found = [name]
            case ast.Assign(targets=targets):
                found = [one.id for one in targets if isinstance(one, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                found = [name]
            case _:
                continue
        yield from found
        yield from (f"{within}.{name}" for name in found if within)


@cache
def names(file: Path) -> frozenset[str]:
    return frozenset(defined(ast.parse(file.read_text())))


@cache
def all_names() -> frozenset[str]:
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return frozenset().union(*map(names, files))


def missing(walk: str) -> Iterator[str]:
    """What is named and is not there. A file without a folder stands in that of the one before."""
    folder = ROOT
    for quoted in QUOTED.findall(walk):
        if found := FILE.fullmatch(quoted):
            path, wanted = found[1], re.findall(r"[\w.]+", found[2] or "")
            file = ROOT / path if "/" in path else folder / path
            folder = file.parent
            there = names(file) if file.is_file() else frozenset[str]()
            yield from () if file.is_file() else [path]
            yield from (f"{path}: {name}" for name in wanted if name not in there)
        elif FOLDER.fullmatch(quoted):
            folder = ROOT / quoted
            yield from () if folder.is_dir() else [quoted]
        elif NAME.fullmatch(quoted) and quoted not in all_names():
            yield quoted


def test_a_newcomer_finds_the_walks() -> None:
    assert len(WALKS) == SECTION.count("\n**") == 7


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_has_at_most_ten_lines(name: str) -> None:
    lines = WALKS[name].splitlines()
    assert len(lines) <= 10
    assert [line for line in lines if len(line) > 120] == []


@pytest.mark.parametrize("name", WALKS)
def test_what_a_walk_names_is_there(name: str) -> None:
    assert [*missing(WALKS[name])] == []


def test_what_is_not_there_is_found() -> None:
    walk = "`tacl/spec.py: placed, gone`, `gone.py`, `tacl/gone`, `spec.py`, `BaseSpec.gone`"
    assert [*missing(walk)] == [
        "tacl/spec.py: gone",
        "gone.py",
        "tacl/gone",
        "spec.py",
        "BaseSpec.gone",
    ]
