"""Starts and stops serving. What would keep it from starting is refused first, in TACL's own words.

Ray Serve (2.60) would wait for resources that a predictor will never get, share a port with another
server, and keep an address at which nothing was started.
"""

from __future__ import annotations

import errno
import logging
import socket
import time

import ray
from ray import serve
from ray.serve.config import HTTPOptions

from cluster.domain.loopback import is_loopback
from cluster.runtime.connection import connect
from cluster.serving.app import LOGGING, application
from cluster.serving.awaited import Say, saying
from cluster.storage.home import Home, Serving, write
from tacl import errors

APP = "tacl"
ENDING = 5.0  # seconds for a server that was stopped to give its port back
PAUSE = 0.1  # seconds between two checks of the port


def start(home: Home, asked: Serving, say: Say = lambda line: None) -> str:
    """Serve the API of a home's cluster; returns its URL. `say` receives what is waited for. Raises
    BadConfig if no interface is named, if it would be open to all on one that others reach, if the
    home is served at another address already (which Serve would keep silently), or if another
    program has the address; NotPlaceable if no predictor fits."""
    require_safe(asked.host, asked.open_to_all)
    now = home.serving()
    if now is not None and (now.host, now.port) != (asked.host, asked.port):
        raise errors.BadConfig(
            f"the home is served at {now.host}:{now.port} already, and not at {asked.host}:"
            f"{asked.port}; stop that first: {home.command('serve')} --stop"
        )
    connect(home)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # else it prints its steps
    running = home.running()
    if running and not running.joined:  # a joined one may grow, and its head be another machine
        _require_place(home, asked)
        if not serve.status().proxies:
            _require_free(home, asked.host, asked.port)
    options = HTTPOptions(host=asked.host, port=asked.port)
    try:
        serve.start(http_options=options, proxy_location="HeadOnly", logging_config=LOGGING)
        built = application({"home": home.where, "open": asked.open_to_all, **dict(asked)})
        with saying(asked, say):
            serve.run(built, name=APP, route_prefix="/")
        write(home.serving_file, asked)
    except BaseException:  # it failed, or the caller has given up
        if now is None:
            serve.shutdown()  # else it keeps its address, whatever is requested next
        raise
    host = f"[{asked.host}]" if ":" in asked.host else asked.host
    return f"http://{host}:{asked.port}"


def _require_place(home: Home, asked: Serving) -> None:
    """Raises NotPlaceable for resources that the cluster lacks: Serve would wait for them."""
    there = ray.cluster_resources()
    for name, amount in (("CPU", asked.cpus), ("GPU", asked.gpus)):
        if amount > (most := there.get(name, 0)):
            raise errors.NotPlaceable(
                f"each predictor is to have {amount:g} {name}s, and this cluster has {most:g}; "
                f"ask for less: {home.command('serve')} --{name.lower()}s {most:g}"
            )


def _require_free(home: Home, host: str, port: int) -> None:
    """Raises BadConfig if the address is taken: Serve itself (ray 2.60) shares a port with other
    programs of this user, such as the server of another home, and requests would reach either."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    until = time.monotonic() + ENDING
    while True:
        try:
            return socket.create_server((host, port), family=family).close()
        except (OSError, OverflowError) as error:  # OverflowError: a port has two bytes
            if getattr(error, "errno", None) == errno.EADDRINUSE and time.monotonic() < until:
                time.sleep(PAUSE)
                continue
            why = str(getattr(error, "strerror", error)).partition(" (")[0]
            raise errors.BadConfig(
                f"nothing can be served at {host}:{port}: {why}. Where another program has the "
                "port, such as the server of another home, name another: "
                f"{home.command('serve')} --port PORT"
            ) from error


def stop(home: Home) -> None:
    """Stop serving, after the requests under way are answered."""
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # as in `start`
    home.serving_file.unlink(missing_ok=True)
    connect(home)
    serve.shutdown()


def require_safe(host: str, open_to_all: bool) -> None:
    if not host:  # such as from a variable that is not set
        raise errors.BadConfig("no interface is named, and that would be all of them; name one")
    if open_to_all and not is_loopback(host):
        raise errors.BadConfig(
            f"without tokens everybody who reaches {host} may do everything; serve on 127.0.0.1, "
            "or issue tokens with `tacl users issue` and leave access on"
        )
