"""users, serve: who may ask over HTTP, and the server that answers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jobs.cli.app import Home, Json, app, client, tell, verb

users = typer.Typer(no_args_is_help=True, help="Tokens of those who ask over HTTP.")
app.add_typer(users, name="users", rich_help_panel="serving")
UserName = Annotated[str, typer.Argument(metavar="NAME", help="Who.")]


@verb("serving", of=users)
def issue(
    user: UserName,
    role: Annotated[
        str, typer.Option(help="user: compose and ask; submitter: tasks too; admin: everything.")
    ] = "user",
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Make a token for a user and print it.

    It is kept as a hash: this is the only time that it can be read.
    """
    found = client(home).issue_token(user, role)
    tell(found, as_json, lambda f: f["token"])


@verb("serving", of=users, name="list")
def list_tokens(home: Home = None, as_json: Json = False) -> None:
    """Who has tokens, in which role and since when."""
    from jobs.console import tables

    tell({"tokens": client(home).tokens()}, as_json, lambda f: tables.tokens(f["tokens"]))


@verb("serving", of=users)
def revoke(user: UserName, home: Home = None, as_json: Json = False) -> None:
    """Make all tokens of a user worthless, at once."""
    found = client(home).revoke_tokens(user)
    tell(found, as_json, lambda f: f"{f['revoked']} tokens of {f['user']} open nothing any more")


@verb("serving")
def serve(
    host: Annotated[str, typer.Option(help="The interface to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = 8300,
    predictors: Annotated[
        int, typer.Option(min=1, help="Processes that answer, at the most; fewer while idle.")
    ] = 1,
    cpus: Annotated[float, typer.Option(min=0, help="CPUs that each of them reserves.")] = 1.0,
    no_access: Annotated[
        bool, typer.Option("--no-access", help="Ask nobody for a token; only on loopback.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop serving; answers are finished.")
    ] = False,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Serve the HTTP API and the page of a home whose cluster runs.

    Returns when it answers; it runs until `tacl serve --stop` or `tacl down`.
    """
    from jobs.console.progress import saying

    if stop:
        with saying("stopping the server"):
            client(home).stop_serving()
        return tell({"serving": False}, as_json, lambda _: "nothing is served")
    with saying("starting the server"):
        found = client(home).serve(host, port, predictors, cpus, open_to_all=no_access)
    return tell(found, as_json, _serving)


def _serving(found: dict[str, Any]) -> str:
    access = (
        "ACCESS IS OFF: whoever reaches this machine's loopback may do everything"
        if found["open_to_all"]
        else "a token opens it: tacl users issue NAME"
    )
    return f"{found['url']}  (API under /v1, {access})"
