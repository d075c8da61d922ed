"""Which home or server a client asks, and who asks."""

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
    """$TACL_HOME, or ~/.tacl; an empty one names none."""
    return Path(os.path.expanduser(os.environ.get("TACL_HOME") or "~/.tacl"))


def _whoami() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # of a container, which knows a number alone
        return str(os.getuid())


class PredictorAPI(Protocol):
    """As `cluster.serving.predictor.Predictor`."""

    def ask(self, question: Question) -> Answered: ...


class Session:
    """One home and the cluster that serves it, or one server.

    Args:
        home: the directory of the installation, default `default_home()`; or the http:// address
            of its server, whose token is `token` or $TACL_TOKEN. There the models of whoever holds
            the token are asked, data sets are files to upload, and what belongs to the machine of
            the home (up, down, import, export ...) is refused.
        coordinator, predictor: take the place of the cluster's own.
        server: takes the place of the one at an address.
        user: who asks, and sees their own private tasks; default the user of this process.
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
        """Its methods raise ClusterNotRunning where no cluster runs."""
        if self._server is not None:
            return self._server.coordinator
        if self._coordinator is not None:
            return self._coordinator
        from cluster.runtime.home_coordinator import coordinator_of

        return coordinator_of(self.home)

    @cached_property
    def predictor(self) -> PredictorAPI:
        """Who answers queries: the server's predictors, or one that the home starts."""
        if self._predictor is not None:
            return self._predictor
        from cluster.serving.local import HomePredictor

        return HomePredictor(self.home)

    def context(self, request_id: str | None = None) -> RequestContext:
        """Of the next request. One repeated under its id is carried out once."""
        return RequestContext(user=self.user, request_id=request_id or new_id())

    def base(self) -> Base:
        """The base model that answers here. Raises ClusterNotRunning."""
        return self.home.founded().base if self._server is None else self._base_there

    @cached_property
    def _base_there(self) -> Base:
        """Asked once: a home has one for ever, and a question is to wait for no coordinator."""
        return self.coordinator.status(self.context()).base

    def _require_here(self, verb: str) -> None:
        if self._server is not None:
            raise NotAllowed(f"{verb} reads the files of a home; do it where the home is")


def asking(
    method: Callable[Concatenate[CoordinatorAPI, RequestContext, P], R],
) -> Callable[Concatenate[Session, P], R]:
    """A session's method that asks this of its coordinator and only adds who asks."""
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
