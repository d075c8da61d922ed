"""The cluster of a home: starting, checking and serving it, and who holds its tokens."""

from __future__ import annotations

import hashlib
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.client.session import Session, asking
from cluster.domain.api import CoordinatorAPI
from cluster.domain.operations import BackedUp, Restored, Served, StartedCluster
from cluster.domain.receipts import CollectedGarbage
from cluster.domain.status import Resources
from cluster.domain.users import IssuedToken, Role, TokenStatus, Usage

if TYPE_CHECKING:
    from cluster.runtime.doctor import Check


class ClusterOperations(Session):
    def init(self, base: str, generic: str | None = None, cpus: int | None = None) -> str:
        """Write what `up` uses where it is not told otherwise; the path of the file. Raises
        BadConfig where the home is there already, or where `generic` is needed, and DataNotFound.
        """
        from cluster.runtime import config
        from cluster.runtime.launch import absolute
        from cluster.storage.home import Founding, require_founder

        self._require_here("init")
        told = absolute(Founding(base, generic))
        require_founder(self.home, told)
        answers = config.Config(base=told.base, generic=told.generic, cpus=cpus)
        return config.write(self.home, answers)

    def up(
        self,
        base: str | None = None,
        generic: str | Path | None = None,
        cpus: int | None = None,
        progress: Callable[[str], None] | None = None,
        *,
        storage: str | Path | None = None,
        registry: str | None = None,
        address: str | None = None,
        insecure: bool = False,
    ) -> StartedCluster:
        """Start the cluster of this home and wait until it answers; harmless when it runs already.

        Args:
            base, generic: needed the first time only; without them, or cpus, those of `init`.
            storage: the first time, where blobs and checkpoints are kept: a directory or
                s3://BUCKET/PREFIX; default the home.
            registry: the first time, its URL; default SQLite in the home.
            address: HOST:PORT of a Ray cluster to join, all of whose nodes see the storage.
            insecure: join it also when it asks nobody for a token.

        Raises HomeInUse when the home has or serves another base, BaseNotFound, BadBase,
        DataNotFound ... when they cannot be used.
        """
        from cluster.runtime import config
        from cluster.runtime.launch import start
        from cluster.storage.home import Founding

        self._require_here("up")
        told = config.read(self.home)
        data, place = (None if value is None else str(value) for value in (generic, storage))
        chosen = Founding(base or told.base, data or told.generic, place, registry)
        if address is None:  # else the cluster that is joined has the CPUs that it has
            cpus = cpus or told.cpus
        return start(self.home, chosen, cpus, address, insecure, progress or (lambda line: None))

    def down(self) -> bool:
        """Stop the cluster; False when none runs. Work that is owed goes on at the next `up`."""
        from cluster.runtime.launch import stop

        self._require_here("down")
        if "cluster.runtime.connection" in sys.modules:  # else this process cannot be connected
            from cluster.runtime.connection import leave

            leave(self.home)
        return stop(self.home)

    def doctor(self, migrate: bool = False) -> Iterator[Check]:
        """Checks of this machine and home, one after the other; first, with `migrate`, its registry
        is brought to the schema of this version. HomeInUse while its cluster runs."""
        from cluster.runtime.doctor import checks, migrated

        if migrate:
            self._require_here("a migration")
            yield migrated(self.home)
        runs = self._server or self._coordinator or self.home.running()
        if not runs:
            yield from checks(self.home)
            return
        references = partial(self.coordinator.references, self.context())
        yield from checks(self.home, self.cluster, references)

    def cluster(self) -> Resources:
        """Nodes, CPUs and GPUs, all and free."""
        return self.coordinator.cluster()

    def collect(self, dry_run: bool = False) -> CollectedGarbage:
        """Delete files that nothing refers to, and count them; in a dry run, count them alone."""
        return self.coordinator.collect(dry_run)

    def backup(
        self, target: str | Path, progress: Callable[[int, int], None] | None = None
    ) -> BackedUp:
        """Copy this home, which may run, to a directory or s3://BUCKET/PREFIX; again to the same
        target, what is new. `progress` hears (files done, of how many). Raises BadConfig,
        HomeInUse, CorruptBlob."""
        from cluster.runtime.backup import backup

        self._require_here("a backup")
        return backup(self.home, target, progress or (lambda done, total: None))

    def restore(
        self,
        source: str | Path,
        progress: Callable[[int, int], None] | None = None,
        *,
        storage: str | Path | None = None,
        registry: str | None = None,
    ) -> Restored:
        """Make this home, which is not there yet, from a backup; `storage` and `registry` as for
        `up`. Raises DataNotFound, HomeInUse, CorruptBlob."""
        from cluster.runtime.backup import restore

        self._require_here("restoring")
        place = None if storage is None else str(storage)
        count: Callable[[int, int], None] = progress or (lambda done, total: None)
        return restore(source, self.home, place, registry, count)

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 8300,
        predictors: int = 1,
        cpus: float = 1.0,
        open_to_all: bool = False,
        gpus: float = 0.0,
        ingresses: int = 1,
        progress: Callable[[str], None] | None = None,
    ) -> Served:
        """Serve the HTTP API of this home's cluster. `progress` hears what is waited for, and for
        how long. Raises BadConfig, see `cluster.serving.starting.start`."""
        from cluster.serving.starting import start
        from cluster.storage.home import Serving

        self._require_here("serve")
        asked = Serving(
            host=host,
            port=port,
            most=predictors,
            cpus=cpus,
            open_to_all=open_to_all,
            gpus=gpus,
            ingresses=ingresses,
        )
        url = start(self.home, asked, progress or (lambda line: None))
        return Served(url=url, open_to_all=open_to_all)

    def stop_serving(self) -> bool:
        """What is being answered is answered first; False when nothing was served."""
        from cluster.serving.starting import stop

        self._require_here("serve")
        served = self.home.serving() is not None
        stop(self.home)
        return served

    def issue_token(
        self, user: str, role: Role = "user", days: float | None = 365.0
    ) -> IssuedToken:
        """A new token for a user, which is kept nowhere and ends after so many days."""
        token, hashed = _new_token()
        issued = self.coordinator.issue_token(self.context(), user, role, hashed, days)
        return issued.model_copy(update={"token": token})

    def rotate_token(self, token: str) -> IssuedToken:
        """A new token in place of the one that `tokens` shows as `token`; the old one lives on for
        an hour."""
        new, hashed = _new_token()
        issued = self.coordinator.rotate_token(self.context(), token, hashed)
        return issued.model_copy(update={"token": new})

    def tokens(self, whose: str | None = None, after: str = "") -> Sequence[TokenStatus]:
        """Who holds tokens, and of which role; the tokens themselves are kept nowhere. Of PAGE
        users at a time: the next ones come `after` the last."""
        return self.coordinator.tokens(whose, after)

    def usage(self, whose: str | None = None, after: str = "") -> Sequence[Usage]:
        """What each user has of the cluster, and the most that one may have over HTTP; PAGE users
        at a time, as `tokens`."""
        return self.coordinator.usage(whose, after)

    revoke_tokens = asking(CoordinatorAPI.revoke_tokens)


def _new_token() -> tuple[str, str]:
    """And its sha256, which is all that leaves this process."""
    token = secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()
