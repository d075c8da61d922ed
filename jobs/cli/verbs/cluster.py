"""up, down, doctor: the cluster of a home."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from jobs.cli.app import Home, Json, client, tell, verb


@verb("cluster")
def up(
    base: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="The pre-trained encoder, the first time: embedded, hf:DIRECTORY_OR_ID, "
            "open_clip:NAME@WEIGHTS, timm:NAME@FILE?size=N.",
        ),
    ] = None,
    generic: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Unlabelled data of the same kind, the first time: what every task leaves alone. "
            "Generated for the embedded encoder.",
        ),
    ] = None,
    cpus: Annotated[int | None, typer.Option(help="CPUs to use.", show_default="all")] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Where blobs and checkpoints are kept, the first time: a directory or "
            "s3://BUCKET/PREFIX. Credentials come from the environment or ~/.aws.",
            show_default="the home",
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="What keeps the registry, the first time: postgresql://USER@HOST/DATABASE. The "
            "password comes from PGPASSWORD or ~/.pgpass.",
            show_default="SQLite in the home",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Join the Ray cluster there, of which this machine is a node, instead of starting "
            "one. All its nodes must see the storage.",
        ),
    ] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Start the cluster of a home.

    Returns when it answers; it runs until `tacl down`. The first time needs --base, and --generic
    for any but the embedded encoder.
    """
    from jobs.console.progress import saying

    with saying("starting the cluster") as say:
        where = {"storage": storage, "registry": registry, "address": address}
        found = client(home).up(base, generic, cpus, say, **where)
    tell(found, as_json, _up)


def _up(found: dict[str, Any]) -> str:
    was = "runs" if found["started"] else "ran already"
    return (
        f"the cluster {was}: base {found['base']} ({found['modality']}), "
        f"{found['generic_rows']} generic samples, home {found['home']}"
    )


@verb("cluster")
def down(home: Home = None, as_json: Json = False) -> None:
    """Stop the cluster.

    Work that is owed goes on, from its last checkpoint, at the next `up`.
    """
    from jobs.console.progress import saying

    with saying("stopping the cluster"):
        stopped = client(home).down()
    said = "the cluster is down" if stopped else "no cluster runs"
    tell({"stopped": stopped}, as_json, lambda _: said)


@verb("cluster")
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Delete stored files that nothing refers to.

    What a task, a version or a run needs stays, and so does what is younger than a day: it may
    belong to a submission that is under way.
    """
    found = client(home).collect(dry_run)
    verb_said = "would free" if dry_run else "freed"
    tell(
        found,
        as_json,
        lambda f: (
            f"{verb_said} {f['bytes'] / 2**20:.1f} MiB: {f['blobs']} blobs, {f['others']} "
            "checkpoints and files of caches"
        ),
    )


@verb("cluster")
def doctor(home: Home = None, as_json: Json = False) -> None:
    """Check this machine and this home, and say what to do.

    The exit code is 1 when something is wrong.
    """
    from jobs.console import tables

    found = []
    for check in client(home).doctor():
        found.append(check)
        if not as_json:
            tables.console().print(tables.check(check))
    if as_json:
        print(json.dumps([check.model_dump() for check in found], indent=2))
    if not all(check.ok for check in found):
        raise typer.Exit(1)
