"""A home's coordinator, for processes that may read the home.

What the registry alone can answer is read in this process, without waiting for a coordinator that
is busy or dead. Other calls go through the socket in the home, or through Ray.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from cluster.domain.api import READS, CoordinatorAPI
from cluster.runtime.local_socket import NoListener, ask
from cluster.runtime.served import running
from cluster.storage.home import Home, Running

if TYPE_CHECKING:  # it imports SQLAlchemy, which calls of the coordinator do not need
    from cluster.runtime.own_reader import OwnReader

READ_HERE = READS - {"holder", "holders"}  # the coordinator records that a token was used


class HomeCoordinator:
    """Its methods also raise ClusterNotRunning; arguments are positional."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._kept: dict[int, tuple[Running, OwnReader]] = {}  # by process

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments: self._ask(method, arguments)

    def _ask(self, method: str, arguments: Sequence[object]) -> Any:
        cluster = running(self._home)
        if method in READ_HERE:
            from cluster.runtime.own_reader import Unread

            with suppress(Unread):
                return self._reader(cluster).ask(method, *arguments)
        try:
            return ask(self._home.path, method, arguments)
        except NoListener:
            from cluster.runtime import connection  # which imports Ray

            return connection.call_with_retries(
                self._home, connection.coordinator, method, arguments
            )

    def _reader(self, cluster: Running) -> OwnReader:
        """The reader of this process, as connections and locks after a fork are the parent's; and
        of this cluster, as another one may have another registry, for example after a restore."""
        from cluster.runtime.own_reader import OwnReader

        kept = self._kept.get(os.getpid())
        if kept is None or kept[0] != cluster:
            kept = cluster, OwnReader(self._home, note=lambda hashes: None)
            self._kept[os.getpid()] = kept
        return kept[1]


def coordinator_of(home: Home) -> CoordinatorAPI:
    return cast(CoordinatorAPI, HomeCoordinator(home))
