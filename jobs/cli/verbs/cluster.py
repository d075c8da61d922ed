"""init, up, down, gc, doctor: the cluster of a home."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from jobs import console
from jobs.cli.app import Client, Json, Told, verb
from jobs.cli.options import flag, number, option
from tacl.errors import BadConfig, TaclError
from tacl.spec import FORMS, BaseSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.domain.operations import StartedCluster
    from cluster.domain.receipts import CollectedGarbage


@verb("cluster")
def init(
    client: Client,
    base: Annotated[str | None, option("SPEC", "As for `up`.", show_default="asked")] = None,
    generic: Annotated[
        str | None,
        option(
            "DATA",
            "As for `up`.",
            show_default="asked; of the embedded model, generated pictures",
        ),
    ] = None,
    cpus: Annotated[int | None, number("As for `up`.", show_default="asked")] = None,
) -> Told:
    """Ask three questions and write what `up` then reads: tacl.toml in the home.

    A question whose flag is given is not asked, nor the one for data with the embedded base model,
    which has its own. Nothing is started.
    """
    from cluster.runtime.config import require_new

    require_new(client.home)
    if base is None:
        base = _answer(f"Base model ({FORMS})", _base, "embedded")
    if generic is None and base != "embedded":
        generic = _answer("Unlabelled data that are of none of the tasks", _data)
    if cpus is None:
        from cluster.runtime.processors import cpus as all_cpus

        cpus = int(_answer("CPUs to use", _count, str(all_cpus())))
    from cluster.domain.operations import WrittenConfig

    path = client.init(base, generic or None, cpus)
    command = client.home.command("up")
    return WrittenConfig(file=path), lambda _: f"wrote {path}; start the cluster: {command}"


def _answer(question: str, check: Callable[[str], str], default: str | None = None) -> str:
    """Ask the question until the answer is valid."""

    def checked(answer: str) -> str:
        try:
            return check(answer)
        except TaclError as error:
            raise typer.BadParameter(str(error)) from error

    return typer.prompt(question, default, value_proc=checked, err=True)


def _count(text: str) -> str:
    if not text.isdecimal() or not int(text):
        raise BadConfig(f"{text!r} is no number of CPUs: 1 or more")
    return text


def _base(text: str) -> str:
    return str(BaseSpec.parse(text).placed())


def _data(text: str) -> str:
    """An absolute path; a hub id is unchanged."""
    from cluster.data.sources import located

    return str(located(text) or text)


@verb("cluster")
def up(
    client: Client,
    base: Annotated[
        str | None,
        option("SPEC", f"Base model, needed for a new home: {FORMS}."),
    ] = None,
    generic: Annotated[
        str | None,
        option(
            "DATA",
            "Unlabelled data that are of none of the tasks, for a new home: texts or pictures, "
            "as the base model reads; every vector is penalised on them.",
            show_default="needed; of the embedded model, generated pictures",
        ),
    ] = None,
    cpus: Annotated[int | None, number("CPUs to use.", show_default="all")] = None,
    storage: Annotated[
        str | None,
        option(
            "URI",
            "Storage of blobs and checkpoints, for a new home: a directory or "
            "s3://BUCKET/PREFIX. Credentials come from the environment or ~/.aws.",
            show_default="the home",
        ),
    ] = None,
    registry: Annotated[
        str | None,
        option(
            "URL",
            "Database of the registry, for a new home: postgresql://USER@HOST/DATABASE. The "
            "password comes from PGPASSWORD or ~/.pgpass.",
            show_default="SQLite in the home",
        ),
    ] = None,
    address: Annotated[
        str | None,
        option(
            "HOST:PORT",
            "Join this Ray cluster, of which this machine is a node, instead of starting one. "
            "All its nodes must see the storage.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        flag(
            "--insecure",
            "Join it also when it asks for no token. Whoever reaches such a cluster may read "
            "and change all that this home keeps.",
        ),
    ] = False,
) -> Told:
    """Start the cluster of a home.

    Returns when the cluster answers; it runs until `tacl down`. A new home needs --base, and
    --generic for any base model but the embedded one, or the answers of `tacl init`.
    """
    with console.progress.saying("starting the cluster") as say:
        where = {"storage": storage, "registry": registry, "address": address}
        found = client.up(base, generic, cpus, say, insecure=insecure, **where)
    return found, lambda found: _up(found, {"--cpus": cpus, "--address": address})


def _up(found: StartedCluster, of_a_start: Mapping[str, object]) -> str:
    """`of_a_start`: flags that only a start uses; None for those that were not given."""
    given = [name for name, value in of_a_start.items() if value is not None]
    runs = "runs" if found.started else "ran already"
    said = (
        f"the cluster {runs}: base model {found.base} ({found.modality}), "
        f"{found.generic_rows} generic samples, home {found.home}"
    )
    if given and not found.started:
        again = f"tacl down --home {quote(found.home)}"
        said += f"; {' and '.join(given)} had no effect, stop it first: {again}"
    return said


@verb("cluster")
def down(client: Client) -> Told:
    """Stop the cluster.

    Unfinished work continues from its last checkpoint at the next `up`.
    """
    from cluster.domain.operations import Stopped

    with console.progress.saying("stopping the cluster"):
        stopped = client.down()
    said = "the cluster is stopped" if stopped else "no cluster was running"
    return Stopped(stopped=stopped), lambda _: said


@verb("cluster")
def gc(
    client: Client,
    dry_run: Annotated[
        bool, flag("--dry-run", "Delete nothing; show what would be deleted.")
    ] = False,
) -> Told:
    """Delete stored files that nothing refers to.

    Files that a task, a version or a run needs stay. So do files younger than a day, which may
    belong to a submission in progress.
    """
    with console.progress.saying("looking for files that nothing refers to"):
        found = client.collect(dry_run)
    return found, lambda f: _collected(f, "would free" if dry_run else "freed")


def _collected(found: CollectedGarbage, freed: str) -> str:
    others = f"{found.others} checkpoints and cached files"
    return f"{freed} {found.bytes / 2**20:.1f} MiB: {found.blobs} blobs, {others}"


@verb("cluster")
def doctor(
    client: Client,
    migrate: Annotated[
        bool,
        flag("--migrate", "First bring a registry of an earlier version to this one's schema."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check this machine and this home, with advice on what is wrong.

    The exit code is 1 when something is wrong.
    """
    found = []
    for check in client.doctor(migrate):
        found.append(check)
        if not as_json:
            console.tables.console().print(console.tables.check(check))
    if as_json:
        console.documents.print_json(found)
    if not all(check.ok for check in found):
        raise typer.Exit(1)
