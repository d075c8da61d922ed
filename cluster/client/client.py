"""What the command line, jobs and people's own programs call.

    client = Client("~/.tacl")
    client.up("embedded")
    client.submit("faces", "data/faces")
    client.wait()
    client.compose("alice", ["+faces", "-digits"])
    client.query("alice", ["picture.png"])

Ray is imported when a cluster is used, torch never. Whatever goes wrong is raised as a class of
`tacl.errors`, also when it went wrong inside the cluster.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.client.arguments import raw_input, uploadable
from cluster.client.waiting import OWED, Status, pending, require_success
from cluster.domain.base import Modality
from cluster.domain.compositions import Composition, Method
from cluster.domain.names import checked_name
from cluster.domain.tasks import ANY, Submitted
from cluster.storage.home import Home
from tacl.errors import (
    NameTaken,
    NotAllowed,
    RunFailed,
    UnknownTask,
    UnknownVector,
)

if TYPE_CHECKING:
    from cluster.client.http import OverHttp
    from cluster.data.ingest import Ingested
    from cluster.data.sources import Data
    from cluster.runtime.doctor import Check

Watch = Callable[[Status], None]
Rows = Callable[[int, int], None]  # rows checked, rows to check


def default_home() -> Path:
    """$TACL_HOME, or ~/.tacl."""
    return Path(os.environ.get("TACL_HOME", "~/.tacl")).expanduser()


class Client:
    """One home and the cluster that serves it.

    Args:
        home: the directory of the installation, default `default_home()`; or the http:// address
            of its server, whose token is `token` or $TACL_TOKEN. There the models of whoever holds
            the token are asked, data sets are files to upload, and what belongs to the machine of
            the home (up, down, import, export ...) is refused.
        coordinator, predictor: objects with the methods of the cluster's own, in their place.
        user: who asks, and sees their own private tasks; default the user of this process.
    """

    def __init__(
        self,
        home: str | Path | None = None,
        coordinator: object | None = None,
        predictor: object | None = None,
        user: str | None = None,
        token: str | None = None,
    ) -> None:
        self._server: OverHttp | None = None
        if isinstance(home, str) and home.startswith(("http://", "https://")):
            from cluster.client.http import OverHttp

            coordinator, home = OverHttp(home, token), None
        if type(coordinator).__name__ == "OverHttp":
            self._server = coordinator  # pyright: ignore[reportAttributeAccessIssue]
        self.home = Home((Path(home).expanduser() if home else default_home()).resolve())
        self._coordinator, self._predictor = coordinator, predictor
        self.user = user or getpass.getuser()

    # -- the cluster

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
    ) -> dict[str, Any]:
        """Start the cluster of this home and wait until it answers; harmless when it runs already.

        Args:
            base, generic: needed the first time only.
            storage: the first time, where blobs and checkpoints are kept: a directory or
                s3://BUCKET/PREFIX; default the home.
            registry: the first time, its URL; default SQLite in the home.
            address: HOST:PORT of a Ray cluster to join, all of whose nodes see the storage.

        Raises HomeInUse when the home has or serves another base, BaseNotFound, BadBase,
        DataNotFound ... when they cannot be used.
        """
        from cluster.runtime.launch import start
        from cluster.storage.home import Founding

        data, place = (None if value is None else str(value) for value in (generic, storage))
        chosen = Founding(base, data, place, registry)
        return start(self.home, chosen, cpus, address, progress or (lambda line: None))

    def down(self) -> bool:
        """Stop the cluster; False when none runs. Work that is owed goes on at the next `up`."""
        from cluster.runtime.launch import stop

        if "cluster.runtime.connection" in sys.modules:  # else this process cannot be connected
            from cluster.runtime.connection import leave

            leave(self.home)
        return stop(self.home)

    def doctor(self) -> Iterator[Check]:
        """Checks of this machine and home, one after the other."""
        from cluster.runtime.doctor import checks

        runs = self._coordinator is not None or self.home.running() is not None
        if not runs:
            return checks(self.home)
        return checks(self.home, self.cluster, lambda: self._ask("references", self.user))

    def cluster(self) -> dict[str, Any]:
        """Nodes, CPUs and GPUs, all and free."""
        return self._ask("cluster")

    def collect(self, dry_run: bool = False) -> dict[str, Any]:
        """Delete files that nothing refers to: {blobs, bytes, others}, how many there were."""
        return self._ask("collect", dry_run)

    # -- serving

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 8300,
        predictors: int = 1,
        cpus: float = 1.0,
        open_to_all: bool = False,
    ) -> dict[str, Any]:
        """Serve the HTTP API of this home's cluster: {url, open_to_all}. BadConfig, see
        `cluster.serving.app.start`."""
        from cluster.serving.app import start

        url = start(self.home, host, port, predictors, cpus, open_to_all)
        return {"url": url, "open_to_all": open_to_all}

    def stop_serving(self) -> None:
        """What is being answered is answered first; harmless when nothing is served."""
        from cluster.serving.app import stop

        stop(self.home)

    def issue_token(self, user: str, role: str = "user") -> dict[str, Any]:
        """A new token for a user, which is kept nowhere: {user, role, token}."""
        token = secrets.token_urlsafe(32)
        hashed = hashlib.sha256(token.encode()).hexdigest()
        return self._ask("issue_token", user, role, hashed, _new_id()) | {"token": token}

    def tokens(self) -> list[dict[str, Any]]:
        """{user, role, created, token: the start of its hash}."""
        return self._ask("tokens")

    def revoke_tokens(self, user: str) -> dict[str, Any]:
        """All of a user's: {user, revoked}. Raises UnknownUser."""
        return self._ask("revoke_tokens", user)

    # -- tasks

    def submit(
        self,
        name: str,
        data: Data,
        *,
        owner: str | None = None,
        private: bool = False,
        input_column: str | None = None,
        label_column: str | None = None,
        classes: Sequence[str] | None = None,
        templates: Sequence[str] = (),
        request_id: str | None = None,
        progress: Rows | None = None,
        read: Callable[[Ingested], None] | None = None,
        vector: Path | None = None,
        **options: Any,
    ) -> Submitted:
        """Check and store a labelled data set, and queue its training; returns at once then.

        Args:
            data: path, hub id, or a `datasets` data set (`cluster.data.sources`).
            classes: names of the classes 0, 1, ..., or the strings that may occur.
            templates: prompts with {} for the class name.
            request_id: the same id gives the same answer; nothing is done twice.
            read: is told how the data were understood.
            vector: the file of a task vector; then nothing is trained (`import_checkpoint`).
            options: fields of `cluster.domain.tasks.Options`: penalty, workers, steps, seed ...

        Raises the errors of bad data (`cluster.data.ingest`), BadConfig, BadName, NameTaken,
        NotPlaceable, ClusterNotRunning.
        """
        from cluster.data.submissions import checked_templates, options_of, prepared_submission

        chosen = options_of(options)
        checked_templates(templates)
        checked_name(name)
        if self._server is not None:
            how = {"owner": owner, "input_column": input_column, "label_column": label_column}
            how |= {"classes": classes, "templates": templates, "vector": vector}
            return self._server.upload(name, uploadable(data, how), private, chosen, request_id)
        if request_id is None:
            self._require_free(name)
        submission = prepared_submission(
            name,
            data,
            self.home.blobs(),
            self._modality(),
            owner=owner or self.user,
            options=chosen,
            request_id=request_id,
            private=private,
            input_column=input_column,
            label_column=label_column,
            classes=classes,
            templates=templates,
            vector=vector,
            progress=progress,
            read=read,
        )
        return self._ask("submit", submission)

    def import_checkpoint(
        self, name: str, checkpoint: str | Path, data: Data, **how: Any
    ) -> dict[str, Any]:
        """A fine-tuned checkpoint of this home's base, or a PEFT LoRA adapter, as a task's vector.

        `data` give classes, head, validation and test rows; `how` as for `submit`, but that the
        vector stays as it was found unless refresh="on_arrival" is asked for. Answers
        {task, run_id, state, notes}. Raises BadCheckpoint, BaseMismatch, and what `submit` raises;
        nothing is stored then.
        """
        checked_name(name)
        self._require_here("import")
        self._require_free(name)
        from cluster.learner.importing import converted

        with converted(name, Path(checkpoint).expanduser(), self.home) as (vector, notes):
            submitted = self.submit(name, data, vector=vector, **{"refresh": "never", **how})
        return {**submitted.model_dump(), "notes": list(notes)}

    def add_samples(
        self,
        name: str,
        data: Data,
        *,
        input_column: str | None = None,
        seed: int = 0,
        request_id: str | None = None,
        progress: Rows | None = None,
    ) -> dict[str, Any]:
        """Grow a task's store by at most 1,024 unlabelled samples, by seed. Raises UnknownTask."""
        self.task(name)
        from cluster.data.ingest import ingest_samples

        blob = ingest_samples(
            data,
            self.home.blobs(),
            self._modality(),
            input_column=input_column,
            seed=seed,
            progress=progress,
        )
        return self._ask("add_samples", name, blob, request_id or _new_id(), self.user)

    def task(self, name: str) -> dict[str, Any]:
        return self._ask("task", name, self.user)

    def status(self) -> Status:
        return self._ask("status", self.user)

    def wait(
        self,
        *names: str,
        progress: Watch | None = None,
        poll: float = 1.0,
        timeout: float | None = None,
    ) -> Status:
        """Until these tasks are trained; without names, until nothing is left to do.

        `progress` sees every status. Raises RunFailed with the reasons of what failed, UnknownTask,
        TimeoutError.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self.status()
            if progress is not None:
                progress(status)
            if not pending(status, names):
                require_success(status, names)
                return status
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"not done within {timeout:g} s: {pending(status, names)}")
            time.sleep(poll)

    def logs(self, name: str) -> list[dict[str, Any]]:
        """What happened to a task, oldest first."""
        return self._ask("logs", name, self.user)

    def retry(self, name: str) -> dict[str, Any]:
        """Queue again what failed or was cancelled of this task."""
        return self._ask("retry", name, self.user)

    def cancel(self, name: str, request_id: str | None = None) -> dict[str, Any]:
        """Stop the training or refresh of this task, at any stage: {task, cancelled: [run ids]}."""
        return self._ask("cancel", name, request_id or _new_id(), self.user)

    def remove(
        self, name: str, purge: bool = False, request_id: str | None = None
    ) -> dict[str, Any]:
        """Withdraw a task's samples and vectors from later use: {task, purged, users, withdrawn}.
        Models of these users work on, unless `purge` erases its bytes. Raises UnknownTask."""
        return self._ask("remove", name, purge, request_id or _new_id(), self.user)

    def refresh(self, name: str, request_id: str | None = None) -> str:
        """Refresh a task's vector against the samples of all others, label-free; the run's id."""
        return self._ask("refresh", name, request_id or _new_id(), self.user)

    # -- vectors and models

    def vectors(self, name: str | None = None) -> list[dict[str, Any]]:
        return self._ask("vectors", name, self.user)

    def compare(self, name: str, one: int, other: int) -> dict[str, Any]:
        """What is different between two versions of a vector. Raises UnknownVector."""
        return self._ask("compare", name, one, other, self.user)

    def aliases(self, name: str) -> dict[str, Any]:
        """{aliases: {name: version}, history: [moves, oldest first]}."""
        return self._ask("aliases", name, self.user)

    def move_alias(
        self,
        name: str,
        alias: str,
        version: int,
        expected: int | None = ANY,
        request_id: str | None = None,
    ) -> dict[str, Any]:
        """Let NAME@ALIAS mean a version, if it means `expected` now (None: nothing yet; ANY:
        whatever). Raises AliasMoved when somebody moved it meanwhile."""
        chosen = name, alias, version, expected
        return self._ask("move_alias", *chosen, request_id or _new_id(), self.user)

    def roll_back(self, name: str, alias: str) -> dict[str, Any]:
        """Let an alias mean again what it meant before. Raises UnknownVector when it never meant
        anything else, AliasMoved when somebody moves it meanwhile."""
        moves = [move for move in self.aliases(name)["history"] if move["name"] == alias]
        if not moves or moves[-1]["came_from"] is None:
            raise UnknownVector(f"{name}@{alias} never meant another version")
        return self.move_alias(name, alias, moves[-1]["came_from"], moves[-1]["version"])

    def interference(self) -> dict[str, Any]:
        """What the current vectors do to each other's tasks, and what that warns of (see
        `tacl.evaluation.interference`)."""
        return self._ask("interference", self.user)

    def users(self) -> list[dict[str, Any]]:
        """Every user's model, and which of its tasks have newer versions or were removed."""
        return self._ask("users", self.user)

    def compose(
        self,
        user: str,
        terms: Sequence[str],
        request_id: str | None = None,
        *,
        progress: Callable[[dict[str, Any]], None] | None = None,
        **how: Any,
    ) -> Composition:
        """Make `terms`, such as +faces or -0.5*digits, the user's model; versions are pinned.

        With `method`, anything but a sum, and its data: see `composing`; waits for the model then.
        """
        method = how.pop("method", "sum")
        if method == "sum" and not how:
            return self._ask("compose", user, list(terms), request_id or _new_id(), self.user)
        asked = self.composing(user, terms, method, request_id=request_id, **how)
        found = self.composed(user, asked["run_id"], progress)
        return Composition.model_validate(found["model"])

    def composing(
        self,
        user: str,
        terms: Sequence[str],
        method: Method,
        *,
        request_id: str | None = None,
        **data: Any,
    ) -> dict[str, Any]:
        """Have a composition made by a method of `cluster.domain.methods`; answers at once, see
        `making`. When it is ready it is the user's model, unless they compose something else
        meanwhile.

        Args:
            data: `fit`, labelled rows of a new task, and `shots`, how many of each class are
                learned; or `adapt`, unlabelled inputs; `select`, such as blockwise:2; input_column,
                label_column, classes, progress (rows) as for `submit`.

        Raises BadConfig, BadRecipe, MixedRegimes, and the errors of bad data and of `compose`.
        """
        asked = request_id or _new_id()
        if self._server is not None:
            return self._server.make(user, list(terms), method, data, asked)
        from cluster.data.compositions import prepared_in

        making = prepared_in(self.home, terms, method, **data)
        return self._ask("make", user, list(terms), making, asked, self.user)

    def making(self, user: str, run_id: str) -> dict[str, Any]:
        """How it is with it: {run_id, user, method, terms, state: queued | running | ready |
        failed | cancelled, step, steps, loss, reason; model and report when ready}. Raises
        UnknownRun."""
        return self._ask("making", user, run_id, self.user)

    def cancel_making(self, user: str, request_id: str | None = None) -> dict[str, Any]:
        """Stop all that is being made for the user: {user, cancelled: [run ids]}. They keep the
        model they have, and what failed is listed no more."""
        return self._ask("cancel_making", user, request_id or _new_id(), self.user)

    def composed(
        self,
        user: str,
        run_id: str,
        progress: Callable[[dict[str, Any]], None] | None = None,
        poll: float = 0.5,
    ) -> dict[str, Any]:
        """Wait for a composition; as `making`. Raises RunFailed with the cause when it failed or
        was cancelled."""
        while (found := self.making(user, run_id))["state"] in OWED:
            if progress is not None:
                progress(found)
            time.sleep(poll)
        if found["state"] != "ready":
            raise RunFailed(f"composing by {found['method']} {found['state']}: {found['reason']}")
        return found

    def update_composition(self, user: str, request_id: str | None = None) -> Composition:
        """Move every vector of the user's model to its task's newest champion."""
        return self._ask("update_composition", user, request_id or _new_id(), self.user)

    def composition(self, user: str) -> Composition:
        """The user's model. Raises NoComposition."""
        return self._ask("composition", user)

    def evaluating(self, user: str, materialized: bool = False) -> str:
        """Have the user's model evaluated; the run's id, for `result`. Raises NoComposition."""
        return self._ask("evaluate", user, materialized)

    def evaluate(
        self,
        user: str,
        progress: Callable[[dict[str, Any]], None] | None = None,
        materialized: bool = False,
    ) -> dict[str, Any]:
        """Accuracies of the user's model on the test splits of its tasks; waits for them.

        The fields of `cluster.domain.work.Evaluated`; with `materialized`, each task's also as one
        ordinary model, theta0 + sum c tau. Raises NoComposition, RunFailed.
        """
        return self.result(self.evaluating(user, materialized), progress)

    def evaluations(self, user: str) -> dict[str, Any]:
        """The accuracies of this user's models over time: {tasks, rows: [{digest, terms, at,
        accuracies}]}, as far as they were evaluated."""
        return self._ask("evaluations", user, self.user)

    def export(
        self,
        user: str,
        out: str | Path,
        format: str = "safetensors",
        *,
        licence: str | None = None,
        accept: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """The user's model as a checkpoint for another library, in the new folder `out`.

        See `cluster.client.export.export`, also for what is raised.
        """
        self._require_here("export")
        from cluster.client.export import export

        return export(self, user, Path(out).expanduser(), format, licence, accept, progress)

    def result(
        self,
        run_id: str,
        progress: Callable[[dict[str, Any]], None] | None = None,
        poll: float = 0.5,
    ) -> dict[str, Any]:
        """Wait for a run's result. Raises RunFailed with the cause."""
        while (found := self._ask("result", run_id)) is None:
            if progress is not None:
                progress(self._ask("run", run_id, self.user))
            time.sleep(poll)
        return found

    def query(
        self,
        user: str,
        inputs: Sequence[str | bytes | Path],
        tasks: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Ask the user's model: {user, digest, answers}, an answer {task: [(class, probability)]}
        per input, likeliest first, for all tasks of the model or those named.

        An input is a text, or a picture's path or bytes, as the base reads. Raises NoComposition,
        DataNotFound, BadSample, UnknownTask.
        """
        modality = self._modality()
        raw = [raw_input(one, modality) for one in inputs]
        if self._server is not None:
            return self._server.ask(user, raw, tasks)
        composition = self.composition(user)
        answers = self._predict(composition, raw, tasks)
        return {"user": user, "digest": composition.digest, "answers": answers}

    # -- inside

    def _ask(self, method: str, *arguments: object) -> Any:
        if self._coordinator is not None:
            return getattr(self._coordinator, method)(*arguments)
        from cluster.runtime.connection import ask

        return ask(self.home, method, *arguments)

    def _predict(self, *arguments: object) -> list[Any]:
        if self._predictor is not None:
            return self._predictor.predict(*arguments)  # type: ignore[attr-defined]
        from cluster.serving.local import predict

        return predict(self.home, *arguments)

    def _modality(self) -> Modality:
        if self._server is not None:
            return self.status()["base"]["modality"]
        return self.home.founded().base.modality

    def _require_here(self, verb: str) -> None:
        if self._server is not None:
            raise NotAllowed(f"{verb} reads the files of a home; do it where the home is")

    def _require_free(self, name: str) -> None:
        """Before any data is read; the coordinator asks again when it stores the task."""
        try:
            self._ask("task", name)  # of anybody
        except UnknownTask:
            return
        raise NameTaken(f"there is a task {name} already; submit under another name")


def _new_id() -> str:
    return uuid.uuid4().hex
