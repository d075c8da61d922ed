"""reproduce: tables of published experiments."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from jobs import console
from jobs.cli.app import Told, ending, verb
from jobs.cli.options import argument, flag, option, place
from tacl.errors import BadConfig, DataNotFound
from tacl.training.config import Precision


@verb("tables")
def reproduce(
    name: Annotated[str, argument("NAME", "Name of the table: addition, continual, ...")],
    suite: Annotated[str, option("S", "Suite of tasks: text8, text14, vision8, clip8.")],
    data: Annotated[Path, place("DIR", "Directory with one sub-directory per data set.")],
    out: Annotated[Path, place("DIR", "Where to write the table and finished cells.")],
    base: Annotated[
        str | None, option("SPEC", "Base model, as for `up`.", show_default="the suite's")
    ] = None,
    methods: Annotated[
        str, option("A,B", "Methods (rows) to compute.", show_default="all of the table")
    ] = "",
    seeds: Annotated[str, option("0,1", "Seeds, or orders of the tasks.")] = "0",
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="Number format of linearized training and refreshes.",
            show_default="that of the suite's tables there; else, of texts, the faster, or float32",
        ),
    ] = None,
    local: Annotated[bool, flag("--local", "Compute in this process, without Ray.")] = False,
) -> Told:
    """Reproduce a table as Markdown, JSON and a plot.

    Finished cells are kept in DIR/.cells and not computed again: it may be stopped at any time.
    """
    from cluster.domain.names import no_such
    from jobs.experiments import runner
    from jobs.experiments.catalogue import TABLES
    from jobs.experiments.suites import suite as suite_named

    if name not in TABLES:
        raise BadConfig(no_such("table", name, TABLES))
    if not data.is_dir():
        raise DataNotFound(f"no directory {data.absolute()} with one sub-directory per data set")
    numbers, chosen, spec = _numbers(seeds), suite_named(suite, base, precision), TABLES[name]
    if precision is None:
        chosen = replace(chosen, precision=runner.precision_of(chosen, out))
    variants = runner.require_known(spec, chosen, [one for one in methods.split(",") if one])
    options = {"suite": suite, "data": data, "base": base, "methods": methods, "seeds": seeds}
    options |= {"precision": chosen.precision}
    given = [word for o, value in options.items() if value for word in (f"--{o}", str(value))]
    given += ["--local"] if local else []
    command = shlex.join(["tacl", "reproduce", name, *given, "--out", str(out)])
    request = runner.TableRequest(spec, chosen, data, out, variants, numbers, command)
    goes_on = ending("stopped; the same command continues from here")
    with goes_on, console.progress.saying(f"{name} of {suite}") as say:
        if not local:
            runner.fill(request, say)
        done = runner.reproduce(request, say)
    found = done.table.as_dict() | {"files": [str(path) for path in done.files]}
    return found, lambda _: done.files[1].read_text()


def _numbers(seeds: str) -> list[int]:
    try:
        return [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise BadConfig(f"--seeds {seeds!r}: give numbers with commas between them") from None
