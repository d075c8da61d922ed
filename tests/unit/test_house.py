"""Rules of the house: how long files and functions are, who imports whom, names found once."""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = "tacl", "cluster", "jobs"
OF_SEVERAL_ROOMS = {  # names of files of cluster: each room has its part of them
    *("compositions", "heads", "interference", "runs", "samples", "tasks", "vectors"),
    *("access", "shares", "tokens", "users"),
    *("again", "app", "memory", "reports", "starting"),
}


@cache
def parsed(*folders: str) -> dict[str, ast.Module]:
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    gc.disable()  # a million nodes and no garbage: a quarter of the time
    try:
        return {str(file.relative_to(ROOT)): ast.parse(file.read_text()) for file in files}
    finally:
        gc.enable()


def imports(node: ast.AST, modules: set[str], late: bool) -> set[str]:
    """Of these modules, those that are imported, not for types alone: while the file is, and if
    `late` when a function is called."""
    match node:
        case ast.Import(names=names):
            return modules & {alias.name for alias in names}
        case ast.ImportFrom(module=str(module), names=names):
            return modules & {f"{module}.{alias.name}" for alias in names} or modules & {module}
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return set()
        case ast.FunctionDef() | ast.AsyncFunctionDef() if not late:
            return set()
    return {name for child in ast.iter_child_nodes(node) for name in imports(child, modules, late)}


def test_no_file_is_longer_than_450_lines_and_no_function_than_60() -> None:
    for name, tree in parsed(*ROOMS, "tests", "docs", "examples").items():
        assert len((ROOT / name).read_text().splitlines()) <= 450, name
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{name}: {node.name}"


def test_no_files_import_each_other_in_a_circle() -> None:
    """Nor inside functions, but for rules of a dual tensor, which make other dual tensors."""
    name = {file: file[:-3].replace("/", ".").removesuffix(".__init__") for file in parsed(*ROOMS)}
    modules = set(name.values())
    needs = {
        name[file]: imports(tree, modules, late=not file.startswith("tacl/dual/"))
        for file, tree in parsed(*ROOMS).items()
    }
    TopologicalSorter(needs).prepare()  # raises CycleError


def test_a_name_of_a_class_is_found_once() -> None:
    nodes = [node for tree in parsed(*ROOMS).values() for node in ast.walk(tree)]
    times = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert not {name for name, count in times.items() if count > 1}


def test_a_name_of_a_file_of_cluster_means_one_thing() -> None:
    """Found in several rooms, it is what each has of that thing; and no other room is called so."""
    files = [Path(name).parts[1:] for name in parsed("cluster")]
    stems = {(room, file[-1][:-3]) for room, *file in files if file and "__init__" not in file[-1]}
    rooms = {room for room, *file in files if file}
    assert len(rooms) > 10
    of_rooms = {one for one in stems if one[1] in rooms - {one[0]}}
    assert of_rooms == {("domain", "api")}  # what the API over HTTP speaks
    times = Counter(stem for _, stem in stems)
    assert {stem for stem, count in times.items() if count > 1} <= OF_SEVERAL_ROOMS


def test_nothing_is_decided_by_the_name_of_a_type() -> None:
    """It is told to people, and may be another type's too."""
    for name, tree in parsed(*ROOMS).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare | ast.SetComp | ast.Match):
                assert not re.search(r"\btype\([^()]*\)\.__name__", ast.unparse(node)), name


def test_errors_use_the_words_of_the_glossary() -> None:
    """A store is that of samples or that of blobs; what is embedded is a base model."""
    other = re.compile(r"(?<!sample )(?<!blob )\bstores?\b|embedded encoder|in the making")
    raised = {
        f"{name}: {part.value}"
        for name, tree in parsed(*ROOMS).items()
        for error in ast.walk(tree)
        if isinstance(error, ast.Raise)
        for part in ast.walk(error)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }
    assert len(raised) > 300
    assert not {one for one in raised if other.search(one)}


def test_what_takes_minutes_is_run_at_night_whatever_else_marks_it() -> None:
    nightly, makefile = ((ROOT / name).read_text() for name in (".ci/nightly", "Makefile"))
    soak = makefile[makefile.index("\nsoak:") : makefile.index("\ncheck:")]
    chosen = [said for _, said in re.findall(r"-m (['\"])(.*?)\1", nightly + soak)]
    assert len(chosen) == 3
    names = ("ray", "browser", "postgres", "stress", "train")
    for marks in product((True, False), repeat=len(names)):
        item = {"nightly": True, **dict(zip(names, marks, strict=True))}
        assert any(eval(one, {}, item) for one in chosen), item
