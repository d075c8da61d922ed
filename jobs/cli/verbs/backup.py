"""backup, restore: a copy of a home at another place."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from jobs import console
from jobs.cli.app import Client, Told, client, verb
from jobs.cli.options import argument, flag, option, path

if TYPE_CHECKING:
    from cluster.domain.operations import BackedUp, Restored

PLACE = "a directory or s3://BUCKET/PREFIX"


@verb("cluster")
def backup(
    client: Client,
    target: Annotated[str, argument("TARGET", f"Where to: {PLACE}.")],
    verify: Annotated[
        bool, flag("--verify", "Also read what is there, and replace what is damaged.")
    ] = False,
) -> Told:
    """Copy the home, which may run, to a safe place.

    Registry, settings and every needed file, all of one moment. Repeated, it copies what is new
    and erases what was purged. A target keeps one backup of one home: for several, use several
    targets.
    """
    with console.progress.counting("copying files") as count:
        found = client.backup(target, count, verify=verify)
    return found, _backed_up


def _backed_up(found: BackedUp) -> str:
    at = console.tables.when(found.at)
    return (
        f"{found.tasks} tasks and {found.files} files of {at} are at {found.target}: "
        f"{found.copied} files ({found.bytes / 2**20:.1f} MiB) copied, {found.deleted} no "
        "longer needed and deleted"
    )


@verb("cluster")
def restore(
    source: Annotated[str, argument("SOURCE", f"Where a backup is: {PLACE}.")],
    place: Annotated[
        Path, argument("HOME", "Where to: an empty directory, or a new one.", parser=path)
    ],
    storage: Annotated[
        str | None, option("URI", "As for `up`, an empty one.", show_default="the home")
    ] = None,
    registry: Annotated[
        str | None, option("URL", "As for `up`, an empty one.", show_default="SQLite in the home")
    ] = None,
) -> Told:
    """Restore a home from its backup.

    Every file is checked. `tacl up` then starts it, and unfinished work from its beginning.
    """
    with console.progress.counting("copying files") as count:
        found = client(place).restore(source, count, storage=storage, registry=registry)
    return found, _restored


def _restored(found: Restored) -> str:
    at = console.tables.when(found.at)
    return (
        f"{found.tasks} tasks and {found.files} files ({found.bytes / 2**20:.1f} MiB) of "
        f"{at} are in {found.home}; start it: tacl up --home {quote(found.home)}"
    )
