"""Operations on the cluster of a home: starting, checking and serving it, and its tokens."""

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
        """Write the settings that `up` uses unless told otherwise; returns the path of the file.
        Raises BadConfig if the home exists already or `generic` is needed, and DataNotFound.
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
        """Start the cluster of this home and wait until it answers; harmless if it runs already.

        Args:
            base, generic: needed the first time only; by default these, and cpus, are of `init`.
            storage: the first time, where blobs and checkpoints are kept: a directory or
                s3://BUCKET/PREFIX; default the home.
            registry: the first time, its URL; default SQLite in the home.
            address: HOST:PORT of a Ray cluster to join, all of whose nodes can read the storage.
            insecure: join it even if it requires no token.

        Raises HomeInUse if the home has or serves another base; BaseNotFound, BadBase,
        DataNotFound ... if these cannot be used.
        """
        from cluster.runtime import config
        from cluster.runtime.launch import start
        from cluster.storage.home import Founding

        self._require_here("up")
        told = config.read(self.home)
        data, place = (None if value is None else str(value) for value in (generic, storage))
        chosen = Founding(base or told.base, data or told.generic, place, registry)
        if address is None:  # else the joined cluster decides how many CPUs there are
            cpus = cpus or told.cpus
        return start(self.home, chosen, cpus, address, insecure, progress or (lambda line: None))

    def down(self) -> bool:
        """Stop the cluster; False if none runs. Owed work continues at the next `up`."""
        from cluster.runtime.launch import stop

        self._require_here("down")
        if "cluster.runtime.connection" in sys.modules:  # else this process cannot be connected
            from cluster.runtime.connection import leave

            leave(self.home)
        return stop(self.home)

    def doctor(self, migrate: bool = False) -> Iterator[Check]:
        """Check this machine and home, one check after the other. With `migrate`, its registry is
        migrated to the schema of this version first; raises HomeInUse while its cluster runs."""
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
        """Nodes, CPUs and GPUs of the cluster, all and free."""
        return self.coordinator.cluster()

    def collect(self, dry_run: bool = False) -> CollectedGarbage:
        """Delete files that nothing refers to, and count them; a dry run only counts them."""
        return self.coordinator.collect(dry_run)

    def backup(
        self,
        target: str | Path,
        progress: Callable[[int, int], None] | None = None,
        *,
        verify: bool = False,
    ) -> BackedUp:
        """Copy this home, which may run, to a directory or s3://BUCKET/PREFIX; to a target that has
        a backup of it, only what is new. `verify` also reads what is there, and replaces what is
        damaged. `progress` receives (files done, files in all). Raises BadConfig, HomeInUse,
        CorruptBlob."""
        from cluster.runtime.backup import backup

        self._require_here("a backup")
        return backup(self.home, target, progress or (lambda done, total: None), verify)

    def restore(
        self,
        source: str | Path,
        progress: Callable[[int, int], None] | None = None,
        *,
        storage: str | Path | None = None,
        registry: str | None = None,
    ) -> Restored:
        """Make this home, which must not exist yet, from a backup; `storage` and `registry` as for
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
        """Serve the HTTP API of this home's cluster. `progress` receives what is waited for, and
        for how long. Raises BadConfig and NotPlaceable, see `cluster.serving.starting.start`."""
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
        """Stop serving, after the requests under way are answered; False if nothing was served."""
        from cluster.serving.starting import stop

        self._require_here("serve")
        served = self.home.serving() is not None
        stop(self.home)
        return served

    def issue_token(
        self, user: str, role: Role = "user", days: float | None = 365.0
    ) -> IssuedToken:
        """Issue a token, which is stored nowhere and expires after `days` (None: never)."""
        token, hashed = _new_token()
        issued = self.coordinator.issue_token(self.context(), user, role, hashed, days)
        return issued.model_copy(update={"token": token})

    def rotate_token(self, token: str) -> IssuedToken:
        """Issue a token in place of the one that `tokens` shows as `token`; the old one stays valid
        for an hour."""
        new, hashed = _new_token()
        issued = self.coordinator.rotate_token(self.context(), token, hashed)
        return issued.model_copy(update={"token": new})

    def tokens(self, whose: str | None = None, after: str = "") -> Sequence[TokenStatus]:
        """Users who hold tokens, and with which roles; the tokens themselves are stored nowhere.
        PAGE users at a time: pass the last one as `after` for the next."""
        return self.coordinator.tokens(whose, after)

    def usage(self, whose: str | None = None, after: str = "") -> Sequence[Usage]:
        """What each user has of the cluster, and the limits over HTTP; PAGE users at a time, as in
        `tokens`."""
        return self.coordinator.usage(whose, after)

    revoke_tokens = asking(CoordinatorAPI.revoke_tokens)


def _new_token() -> tuple[str, str]:
    """A random token, and its sha256, which is all that is sent from this process."""
    token = secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()
