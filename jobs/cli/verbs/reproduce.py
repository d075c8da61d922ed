"""reproduce: the tables of this field."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.cli.app import Json, tell, verb


@verb("tables")
def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table: addition, continual ...")],
    suite: Annotated[str, typer.Option(metavar="S", help="text8, text14, vision8, clip8")],
    data: Annotated[Path, typer.Option(metavar="DIR", help="A folder for each data set.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="For the table and finished cells.")],
    base: Annotated[
        str | None,
        typer.Option(metavar="SPEC", show_default="the suite's", help="Where its encoder lies."),
    ] = None,
    methods: Annotated[
        str, typer.Option(metavar="A,B", show_default="all of the table", help="Rows to make.")
    ] = "",
    seeds: Annotated[str, typer.Option(metavar="0,1", help="Seeds, or orders.")] = "0",
    local: Annotated[
        bool, typer.Option("--local", help="In this process, without a cluster.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a table: Markdown, JSON and a picture.

    What is finished is kept in DIR/.cells and never computed again; stop it whenever you like.
    """
    request = _request(name, suite, data, out, base, methods, seeds, local)
    from jobs.console.progress import saying
    from jobs.experiments.runner import reproduce as make

    try:
        with saying(f"{name} of {suite}") as say:
            if not local:
                from jobs.experiments.parallel import fill

                fill(request, say)
            done = make(request, say)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        raise typer.Exit(130) from None
    found = done.table.as_dict() | {"files": [str(path) for path in done.files]}
    tell(found, as_json, lambda _: done.files[1].read_text())


def _request(
    name: str,
    suite: str,
    data: Path,
    out: Path,
    base: str | None,
    methods: str,
    seeds: str,
    local: bool,
) -> Any:
    from jobs.experiments.catalogue import TABLES
    from jobs.experiments.runner import Request, require_known
    from jobs.experiments.suites import suite as suite_named
    from tacl.errors import BadConfig, DataNotFound

    if name not in TABLES:
        raise BadConfig(f"no table {name!r}; there are {', '.join(TABLES)}")
    if not data.is_dir():
        raise DataNotFound(f"no folder {data.absolute()} with a folder for each data set")
    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise BadConfig(f"--seeds {seeds!r}: give numbers with commas between them") from None
    chosen, spec = suite_named(suite, base), TABLES[name]
    variants = require_known(spec, chosen, [one for one in methods.split(",") if one])
    options = {"suite": suite, "data": data, "base": base, "methods": methods, "seeds": seeds}
    given = [word for o, value in options.items() if value for word in (f"--{o}", str(value))]
    local_or_not = ["--local"] if local else []
    command = shlex.join(["tacl", "reproduce", name, *given, *local_or_not, "--out", str(out)])
    return Request(spec, chosen, data, out, variants, numbers, command)
