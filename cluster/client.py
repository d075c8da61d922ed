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
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cluster.home import Home
from cluster.messages import Composition, Modality, Options, Submission, Submitted
from cluster.names import checked_name
from tacl.errors import (
    BadConfig,
    ClusterNotRunning,
    DataNotFound,
    NameTaken,
    RunFailed,
    UnknownTask,
)

if TYPE_CHECKING:
    from cluster.doctor import Check
    from cluster.ingest import Ingested
    from cluster.reading import Data

OWED = ("queued", "training", "running")  # of tasks and of other work

Status = dict[str, Any]
Watch = Callable[[Status], None]
Rows = Callable[[int, int], None]  # rows checked, rows to check


def default_home() -> Path:
    """$TACL_HOME, or ~/.tacl."""
    return Path(os.environ.get("TACL_HOME", "~/.tacl")).expanduser()


class Client:
    """One home and the cluster that serves it.

    Args:
        home: the directory of the installation; default `default_home()`.
        coordinator, predictor: objects with the methods of the cluster's own, in their place.
    """

    def __init__(
        self,
        home: str | Path | None = None,
        coordinator: object | None = None,
        predictor: object | None = None,
    ) -> None:
        self.home = Home((Path(home).expanduser() if home else default_home()).resolve())
        self._coordinator, self._predictor = coordinator, predictor

    # -- the cluster

    def up(
        self,
        base: str | None = None,
        generic: str | Path | None = None,
        cpus: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Start the cluster of this home and wait until it answers; harmless when it runs already.

        `base` and `generic` are needed the first time only. Raises HomeInUse when the home has or
        serves another base, BaseNotFound, BadBase, DataNotFound ... when they cannot be used.
        """
        from cluster.launch import start

        return start(self.home, base, generic, cpus, progress or (lambda line: None))

    def down(self) -> bool:
        """Stop the cluster; False when none runs. Work that is owed goes on at the next `up`."""
        from cluster.launch import stop

        if "cluster.remote" in sys.modules:  # else this process cannot be connected
            from cluster.remote import leave

            leave(self.home)
        return stop(self.home)

    def doctor(self) -> Iterator[Check]:
        """Checks of this machine and home, one after the other."""
        from cluster.doctor import checks

        runs = self._coordinator is not None or self.home.running() is not None
        return checks(self.home, self.cluster if runs else None)

    def cluster(self) -> dict[str, Any]:
        """Nodes, CPUs and GPUs, all and free."""
        return self._ask("cluster")

    # -- tasks

    def submit(
        self,
        name: str,
        data: Data,
        *,
        owner: str | None = None,
        input_column: str | None = None,
        label_column: str | None = None,
        classes: Sequence[str] | None = None,
        templates: Sequence[str] = (),
        request_id: str | None = None,
        progress: Rows | None = None,
        read: Callable[[Ingested], None] | None = None,
        **options: Any,
    ) -> Submitted:
        """Check and store a labelled data set, and queue its training; returns at once then.

        Args:
            data: path, hub id, or a `datasets` data set (`cluster.reading`).
            classes: names of the classes 0, 1, ..., or the strings that may occur.
            templates: prompts with {} for the class name.
            request_id: the same id gives the same answer; nothing is done twice.
            read: is told how the data were understood.
            options: fields of `cluster.messages.Options`: penalty, workers, steps, seed ...

        Raises the errors of bad data (`cluster.ingest`), BadConfig, BadName, NameTaken,
        NotPlaceable, ClusterNotRunning.
        """
        chosen, prompts = _options(options), _checked_templates(templates)
        checked_name(name)
        if request_id is None:
            self._require_free(name)
        from cluster.ingest import ingest

        found = ingest(
            data,
            self.home.blobs(),
            self._modality(),
            input_column=input_column,
            label_column=label_column,
            classes=classes,
            seed=chosen.seed,
            progress=progress,
        )
        if read is not None:
            read(found)
        submission = Submission(
            request_id=request_id or _new_id(),
            name=name,
            owner=owner or getpass.getuser(),
            modality=found.modality,
            classes=found.classes,
            templates=prompts,
            train=found.train,
            validation=found.validation,
            test=found.test,
            shard=found.shard,
            options=chosen,
        )
        return self._ask("submit", submission)

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
        self._ask("task", name)
        from cluster.ingest import ingest_samples

        blob = ingest_samples(
            data,
            self.home.blobs(),
            self._modality(),
            input_column=input_column,
            seed=seed,
            progress=progress,
        )
        return self._ask("add_samples", name, blob, request_id or _new_id())

    def task(self, name: str) -> dict[str, Any]:
        return self._ask("task", name)

    def status(self) -> Status:
        return self._ask("status")

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
                _require_success(status, names)
                return status
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"not done within {timeout:g} s: {pending(status, names)}")
            time.sleep(poll)

    def logs(self, name: str) -> list[dict[str, Any]]:
        """What happened to a task, oldest first."""
        return self._ask("logs", name)

    def retry(self, name: str) -> dict[str, Any]:
        """Queue again what failed of this task."""
        return self._ask("retry", name)

    def refresh(self, name: str, request_id: str | None = None) -> str:
        """Refresh a task's vector against the samples of all others, label-free; the run's id."""
        return self._ask("refresh", name, request_id or _new_id())

    # -- vectors and models

    def vectors(self, name: str | None = None) -> list[dict[str, Any]]:
        return self._ask("vectors", name)

    def interference(self) -> dict[str, Any]:
        """The tau_jp matrix of the current vectors, and what it warns of (`tacl.interference`)."""
        return self._ask("interference")

    def users(self) -> list[dict[str, Any]]:
        """Every user's model, and of which of its tasks there are newer versions."""
        return self._ask("users")

    def compose(
        self, user: str, terms: Sequence[str], request_id: str | None = None
    ) -> Composition:
        """Make `terms`, such as +faces or -0.5*digits, the user's model; versions are pinned."""
        return self._ask("compose", user, list(terms), request_id or _new_id())

    def composition(self, user: str) -> Composition:
        """The user's model. Raises NoComposition."""
        return self._ask("composition", user)

    def evaluating(self, user: str) -> str:
        """Have the user's model evaluated; the run's id, for `result`. Raises NoComposition."""
        return self._ask("evaluate", user)

    def evaluate(
        self, user: str, progress: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        """Accuracies of the user's model on the test splits of its tasks; waits for them.

        The fields of `cluster.messages.Evaluated`. Raises NoComposition, RunFailed.
        """
        return self.result(self.evaluating(user), progress)

    def result(
        self,
        run_id: str,
        progress: Callable[[dict[str, Any]], None] | None = None,
        poll: float = 0.5,
    ) -> dict[str, Any]:
        """Wait for a run's result. Raises RunFailed with the cause."""
        while (found := self._ask("result", run_id)) is None:
            if progress is not None:
                progress(self._ask("run", run_id))
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
        composition = self.composition(user)
        raw = [_raw(one, modality) for one in inputs]
        answers = self._predict(composition, raw, tasks)
        return {"user": user, "digest": composition.digest, "answers": answers}

    # -- inside

    def _ask(self, method: str, *arguments: object) -> Any:
        if self._coordinator is not None:
            return getattr(self._coordinator, method)(*arguments)
        from cluster.remote import ask

        return ask(self.home, method, *arguments)

    def _predict(self, *arguments: object) -> list[Any]:
        if self._predictor is not None:
            return self._predictor.predict(*arguments)  # type: ignore[attr-defined]
        from cluster.remote import predict

        return predict(self.home, *arguments)

    def _modality(self) -> Modality:
        settings = self.home.settings()
        if settings is None:
            raise ClusterNotRunning(f"{self.home.path} is no home yet; run `tacl up` first")
        return settings.base.modality

    def _require_free(self, name: str) -> None:
        """Before any data is read; the coordinator asks again when it stores the task."""
        try:
            self._ask("task", name)
        except UnknownTask:
            return
        raise NameTaken(f"there is a task {name} already; submit under another name")


def pending(status: Status, names: Sequence[str] = ()) -> list[str]:
    """What is not at its end: of these tasks, or of everything. Raises UnknownTask."""
    tasks = {task["name"]: task for task in status["tasks"]}
    if unknown := [name for name in names if name not in tasks]:
        raise UnknownTask(f"no task {', '.join(unknown)}; there is {', '.join(tasks) or 'none'}")
    chosen = [tasks[name] for name in names] if names else [*tasks.values(), *status["work"]]
    return [one.get("name") or one["run_id"] for one in chosen if one["state"] in OWED]


def _require_success(status: Status, names: Sequence[str]) -> None:
    failed = [
        task
        for task in status["tasks"]
        if task["state"] == "failed" and (not names or task["name"] in names)
    ]
    if failed:
        reasons = "; ".join(f"{task['name']}: {task['reason']}" for task in failed)
        raise RunFailed(f"{reasons}. See `tacl logs {failed[0]['name']}`, then `tacl retry` it.")


def _checked_templates(templates: Sequence[str]) -> tuple[str, ...]:
    wrong = [one for one in templates if one.count("{}") != 1]
    if wrong:
        raise BadConfig(f"template {wrong[0]!r}: write {{}} once, where the class name goes")
    return tuple(templates)


def _options(chosen: dict[str, Any]) -> Options:
    try:
        return Options(**chosen)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BadConfig(f"options that are not possible: {wrong}") from error


def _new_id() -> str:
    return uuid.uuid4().hex


def _raw(one: str | bytes | Path, modality: Modality) -> str | bytes:
    """A text as it is; a picture's bytes, checked."""
    from cluster.checked import checked_image, checked_text

    if modality == "text":
        return checked_text(one, "the question")
    if isinstance(one, bytes):
        return checked_image(one, "the picture")
    path = Path(one).expanduser()
    if not path.is_file():
        raise DataNotFound(f"no picture at {path.absolute()}; the base of this home reads pictures")
    return checked_image(path.read_bytes(), str(path))
