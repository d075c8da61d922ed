"""`import tacl` and `import cluster`: what they offer; nothing is paid until it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cached_property
from importlib import import_module
from types import FunctionType, ModuleType

import pytest

import cluster
import tacl
from tests.support.places import ROOT


def typed(module: ModuleType) -> dict[str, object]:
    """What a type checker sees: the imports under TYPE_CHECKING, by the name they give."""
    assert module.__file__ is not None
    tree = ast.parse(open(module.__file__).read())  # noqa: SIM115
    guards = [one for one in tree.body if isinstance(one, ast.If)]
    imports = [one for guard in guards for one in guard.body if isinstance(one, ast.ImportFrom)]
    return {
        alias.asname or alias.name: getattr(import_module(one.module or ""), alias.name)
        for one in imports
        for alias in one.names
    }


def said(module: ModuleType) -> dict[str, str | None]:
    """The docstrings of what a module offers: of its classes also those of each public method and
    property that is written in these rooms."""
    found: dict[str, str | None] = {}
    for name in set(module.__all__) - {"__version__"}:
        found[name] = (one := getattr(module, name)).__doc__
        for home in getattr(one, "__mro__", ()):
            if home.__module__.partition(".")[0] in ("tacl", "cluster"):
                own = {key: value for key, value in vars(home).items() if not key.startswith("_")}
                described = {key: value for key, value in own.items() if is_described(value)}
                found |= {f"{name}.{key}": value.__doc__ for key, value in described.items()}
    return found


def is_described(member: object) -> bool:
    """Methods of all kinds and properties of both; fields and constants are told by their class."""
    kinds = (FunctionType, property, cached_property, staticmethod, classmethod)
    return isinstance(member, kinds)


@pytest.mark.parametrize("module", [tacl, cluster])
def test_every_public_method_and_property_says_what_it_is(module: ModuleType) -> None:
    docstrings = said(module)
    assert len(docstrings) > len(module.__all__)
    silent = [name for name, text in docstrings.items() if not text or text.startswith(f"{name}(")]
    assert silent == []


@pytest.mark.parametrize("module", [tacl, cluster])
def test_what_is_typed_is_what_is_found(module: ModuleType) -> None:
    found = {name: getattr(module, name) for name in module.__all__ if name != "__version__"}
    assert found == typed(module)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="nothing"):
        _ = module.nothing


def test_an_import_is_light() -> None:
    """Nothing but the standard library, until a name is asked for."""
    heavy = ["torch", "numpy", "ray", "pydantic", "pyarrow", "sqlalchemy"]
    code = (
        "import sys, tacl, cluster; assert tacl.__version__ and 'train' in dir(tacl); "
        f"print([one for one in {heavy} if one in sys.modules]); "
        "tacl.TaclError; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"], done.stderr
