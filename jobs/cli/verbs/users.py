"""users, serve: tokens for the HTTP API, and its server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jobs import console
from jobs.cli.app import Client, Told, app, verb
from jobs.cli.options import Group, argument, flag, number, option
from tacl.errors import BadConfig

if TYPE_CHECKING:
    from cluster.domain.operations import Served

users = typer.Typer(cls=Group, no_args_is_help=True, help="Manage users' tokens for the HTTP API.")
app.add_typer(users, name="users", rich_help_panel="serving")
UserName = Annotated[str, argument("NAME", "Name of the user.")]


@verb("serving", of=users)
def issue(
    client: Client,
    user: UserName,
    role: Annotated[
        Literal["user", "submitter", "admin"],
        typer.Option(
            help="user: compose and query; submitter: submit tasks too; admin: everything."
        ),
    ] = "user",
    days: Annotated[float, number("Days after which it ends.", 0.01)] = 365.0,
) -> Told:
    """Issue a token for a user and print it.

    Only its hash is stored: it cannot be shown again.
    """
    found = client.issue_token(user, role, days)
    return found, lambda f: f.token


@verb("serving", of=users)
def rotate(
    client: Client,
    token: Annotated[str, argument("TOKEN", "As `tacl users list` shows it.")],
) -> Told:
    """Issue a token in place of another and print it.

    Role and lifetime are the same. The old token stays valid for an hour.
    """
    return client.rotate_token(token), lambda f: f.token


@verb("serving", of=users, name="list")
def list_tokens(
    client: Client,
    user: Annotated[str | None, argument("[NAME]", "This user alone; default: all.")] = None,
    after: Annotated[str, option("USER", "List those after this user.")] = "",
) -> Told:
    """List users: roles, when each token ends and was last used, and what each user uses.

    Fifty at a time, by name: `--after` the last of them lists the next.
    """
    if user is not None and after:
        raise BadConfig("--after is about lists of all users; leave the name or --after out")
    from cluster.domain.operations import UserList

    tokens, usage = client.tokens(user, after), client.usage(user, after)
    page = {one.user for one in usage}  # lists holders of tokens, and other users
    own = tuple(one for one in tokens if one.user in page)
    found = UserList(tokens=own, usage=tuple(usage))
    return found, lambda f: console.tables.users(f.tokens, f.usage, after)


@verb("serving", of=users)
def revoke(client: Client, user: UserName) -> Told:
    """Revoke all tokens of a user, at once."""
    found = client.revoke_tokens(user)
    tokens = console.tables.counted(found.revoked, "token")
    return found, lambda f: f"{tokens} of {f.user} revoked"


@verb("serving")
def serve(
    client: Client,
    host: Annotated[str, typer.Option(help="Interface to listen on.")] = "127.0.0.1",
    port: Annotated[int, number("Port to listen on.", 1, 65535)] = 8300,
    predictors: Annotated[int, number("Predictor processes at most; fewer while idle.")] = 1,
    cpus: Annotated[float, number("CPUs reserved by each predictor.", 0)] = 1.0,
    gpus: Annotated[
        float, number("GPUs, or the part of one, reserved by each predictor.", 0)
    ] = 0.0,
    ingresses: Annotated[int, number("Processes that take requests.")] = 1,
    no_access: Annotated[
        bool, flag("--no-access", "Require no token; on the loopback interface only.")
    ] = False,
    stop: Annotated[
        bool, flag("--stop", "Stop the server once open requests are answered.")
    ] = False,
) -> Told:
    """Start the HTTP API and the web page of a running cluster.

    Returns when the server answers; it runs until `tacl serve --stop` or `tacl down`. While runs
    have all CPUs it waits for the end of one, and says so.
    """
    if stop:
        from cluster.domain.operations import Stopped

        with console.progress.saying("stopping the server"):
            stopped = client.stop_serving()
        said = "the server is stopped" if stopped else "no server was running"
        return Stopped(stopped=stopped), lambda _: said
    with console.progress.saying("starting the server") as say:
        found = client.serve(host, port, predictors, cpus, no_access, gpus, ingresses, say)
    return found, _serving


def _serving(found: Served) -> str:
    access = (
        "ACCESS CONTROL IS OFF: every process on this machine may do everything"
        if found.open_to_all
        else "a token is required: tacl users issue NAME"
    )
    return f"{found.url}  (API under /v1, {access})"
