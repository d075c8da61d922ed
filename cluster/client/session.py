"""The home or server that a client calls, and the user in whose name it does."""

from __future__ import annotations

import functools
import getpass
import inspect
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from cluster.api.service import Answered, Question
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import Base, RequestContext, new_id
from cluster.domain.status_sync import StatusSync
from cluster.storage.home import Home
from tacl.errors import BadConfig, NotAllowed

if TYPE_CHECKING:
    from cluster.client.http import Server

P = ParamSpec("P")
R = TypeVar("R")


def default_home() -> Path:
    """$TACL_HOME, or ~/.tacl if that is unset or empty."""
    return Path(os.path.expanduser(os.environ.get("TACL_HOME") or "~/.tacl"))


def _whoami() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # such as in a container, where users have only a number
        return str(os.getuid())


class PredictorAPI(Protocol):
    """What a client needs of `cluster.serving.predictor.Predictor`."""

    def ask(self, question: Question) -> Answered: ...


class Session:
    """One home and the cluster that serves it, or one server.

    Args:
        home: the directory of the installation, default `default_home()`; or the http:// address
            of its server, with `token` or $TACL_TOKEN. Over HTTP the user is the holder of the
            token, data sets are files to upload, and what needs the machine of the home (up, down,
            import, export ...) is refused.
        coordinator, predictor: used instead of the cluster's own.
        server: used instead of one at an address.
        user: who makes the requests, and sees their own private tasks; default the user of this
            process.
    """

    def __init__(
        self,
        home: str | Path | None = None,
        coordinator: CoordinatorAPI | None = None,
        predictor: PredictorAPI | None = None,
        user: str | None = None,
        token: str | None = None,
        server: Server | None = None,
    ) -> None:
        if isinstance(home, str) and home.startswith(("http://", "https://")):
            from cluster.client.http import Server

            server, home = Server(home, token), None
        place = Path(os.path.expanduser(home)) if home else default_home()
        if server is None and place.parts[:1] in (("http:",), ("https:",)):
            raise BadConfig(
                "a home is a directory (--home, TACL_HOME), and an address was given; a server is "
                'asked over HTTP, or in Python by Client("http://...")'
            )
        self.home = Home(place.resolve())
        self.user = user or _whoami()
        self._server, self._coordinator, self._predictor = server, coordinator, predictor
        self._following = StatusSync()

    @cached_property
    def coordinator(self) -> CoordinatorAPI:
        """The coordinator; its methods raise ClusterNotRunning if no cluster runs."""
        if self._server is not None:
            return self._server.coordinator
        if self._coordinator is not None:
            return self._coordinator
        from cluster.runtime.home_coordinator import coordinator_of

        return coordinator_of(self.home)

    @cached_property
    def predictor(self) -> PredictorAPI:
        """What answers queries: the predictors of the home's server, or one that is started."""
        if self._predictor is not None:
            return self._predictor
        from cluster.serving.local import HomePredictor

        return HomePredictor(self.home)

    def context(self, request_id: str | None = None) -> RequestContext:
        """The context of the next request. One repeated under its id is carried out once."""
        return RequestContext(user=self.user, request_id=request_id or new_id())

    def base(self) -> Base:
        """The base model that answers here. Raises ClusterNotRunning."""
        return self.home.founded().base if self._server is None else self._base_there

    @cached_property
    def _base_there(self) -> Base:
        """The server's base model. Requested once: a home never changes its base, and queries
        should not wait for the coordinator."""
        return self.coordinator.status(self.context()).base

    def _require_here(self, verb: str) -> None:
        if self._server is not None:
            raise NotAllowed(f"{verb} reads the files of a home; do it where the home is")


def asking(
    method: Callable[Concatenate[CoordinatorAPI, RequestContext, P], R],
) -> Callable[Concatenate[Session, P], R]:
    """A method of a session that calls `method` of its coordinator, and only adds the context."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def ask(session: Session, *arguments: P.args, **named: P.kwargs) -> R:
        coordinator = session.coordinator
        bound = signature.bind(coordinator, session.context(), *arguments, **named)
        bound.apply_defaults()
        return getattr(coordinator, method.__name__)(*bound.args[1:])

    shown = [one for one in signature.parameters.values() if one.name != "context"]
    ask.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]

    return ask
