"""Notebooks: run cell by cell in a kernel of their own, and what they print.

`python -m tests.support.notebooks` runs those of examples/ on clusters of their own, and stores
their outputs.
"""

from __future__ import annotations

import ast
import io
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from cluster.client.client import Client
from tests.support.places import ROOT

CELL_SECONDS = 900


def code_of(notebook: Any) -> list[str]:
    """The lines of code of a notebook."""
    return [line for source in cells_of(notebook) for line in source.splitlines()]


def cells_of(notebook: Any) -> list[str]:
    """The code cells, in their order."""
    return [one.source for one in _code(notebook)]


def printed(notebook: Any) -> list[str]:
    """The output of every code cell; for pictures and errors, their kind."""
    return ["\n".join(map(_shown, one.outputs)) for one in _code(notebook)]


def done(source: str, known: dict[str, object]) -> str:
    """Run a cell in this process; returns what `printed` returns for one in a kernel."""
    plt.close("all")  # a kernel starts without the figures of others
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else ast.parse("None").body[0]
    assert isinstance(last, ast.Expr)
    with redirect_stdout(io.StringIO()) as said:
        exec(compile(ast.Module(body, []), "cell", "exec"), known)
        found = eval(compile(ast.Expression(last.value), "cell", "eval"), known)
    pictures = len(plt.get_fignums())
    plt.close("all")
    shown = ["execute_result"] * (found is not None) + ["display_data"] * pictures
    return "\n".join([said.getvalue(), *shown])


def executed(path: Path, folder: Path) -> Any:
    """Run the notebook in this folder; returns it with its new outputs."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(folder)}}
    private = Config(KernelManager={"transport": "ipc", "ip": str(folder / "kernel")})  # no port
    how = {"timeout": CELL_SECONDS, "record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, config=private, resources=where, **how).execute()
    for one in _code(notebook):  # without messages of libraries about this machine
        one.outputs = [given for given in one.outputs if given.get("name") != "stderr"]
    return notebook


def _code(notebook: Any) -> list[Any]:
    return [one for one in notebook.cells if one.cell_type == "code"]


def _shown(output: Any) -> str:
    return output["text"] if output.output_type == "stream" else output.output_type


if __name__ == "__main__":
    for file in (ROOT / "examples").glob("*.ipynb"):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            try:
                nbformat.write(executed(file, Path(place)), file)
            finally:
                Client(Path(place) / file.stem / "home").down()
