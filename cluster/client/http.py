"""A cluster spoken to over HTTP: the methods of the coordinator and predictor, as requests.

`cluster.client.client.Client` puts this in their place, so that a program is the same for both.
What the server refuses is raised as the class that it was there; what it cannot answer now (it is
busy, or a process of it was lost) is asked again for a while. Every request is idempotent, by its
key or by what it asks.
"""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2

from cluster.client.arguments import uploadable
from cluster.domain.compositions import Composition, Method, RecipeTerm
from cluster.domain.methods import require_possible
from cluster.domain.tasks import ANY, Options, Submitted
from tacl import errors
from tacl.compose.terms import parse_recipe
from tacl.errors import BadConfig, ClusterNotRunning, NotAllowed, TaclError

SECONDS = 120.0  # an upload is checked row by row before it is answered
PATIENCE = 30.0  # seconds in which a request is asked again
PAUSE = 0.5  # seconds, where the server names none


class OverHttp:
    """One server and one token, by default $TACL_TOKEN. `http` takes the place of the network."""

    def __init__(
        self, url: str, token: str | None = None, http: httpx2.Client | None = None
    ) -> None:
        self._url = url.rstrip("/")
        token = token or os.environ.get("TACL_TOKEN")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = http or httpx2.Client(base_url=self._url, timeout=SECONDS)

    # -- tasks

    def upload(
        self, name: str, data: Path, private: bool, options: Options, request_id: str | None
    ) -> Submitted:
        fields = {"name": name, "private": str(private).lower()}
        fields["options"] = options.model_dump_json(exclude_unset=True)
        key = request_id or uuid.uuid4().hex
        with data.open("rb") as stream:
            files = {"file": (data.name, stream)}
            found = self._call("POST", "tasks", data=fields, files=files, key=key)
        return Submitted(**found)

    def status(self, viewer: object = None) -> dict[str, Any]:
        return self._call("GET", "status")

    def cluster(self) -> dict[str, Any]:
        return self.status()["room"]

    def task(self, name: str, viewer: object = None) -> dict[str, Any]:
        return self._call("GET", f"tasks/{name}")

    def logs(self, name: str, viewer: object = None) -> list[dict[str, Any]]:
        return self._call("GET", f"tasks/{name}/events")

    def retry(self, name: str, viewer: object = None) -> dict[str, Any]:
        return self._call("POST", f"tasks/{name}/retry")

    def cancel(self, name: str, request_id: str, viewer: object = None) -> dict[str, Any]:
        return self._call("POST", f"tasks/{name}/cancel", key=request_id)

    # -- vectors

    def vectors(self, name: str | None = None, viewer: object = None) -> list[dict[str, Any]]:
        if name is not None:
            self.task(name)  # says what is there when it is not
        found = self._call("GET", "vectors")
        return [one for one in found if name in (None, one["task"])]

    def aliases(self, name: str, viewer: object = None) -> dict[str, Any]:
        return self._call("GET", f"tasks/{name}/aliases")

    def move_alias(
        self,
        task: str,
        name: str,
        version: int,
        expected: int | None,
        request_id: str,
        viewer: object = None,
    ) -> dict[str, Any]:
        if expected == ANY:
            expected = self.aliases(task)["aliases"].get(name)
        body = {"version": version, "expected": expected}
        return self._call("PUT", f"tasks/{task}/aliases/{name}", body, key=request_id)

    def interference(self, viewer: object = None) -> dict[str, Any]:
        return self._call("GET", "interference")

    # -- models

    def users(self, viewer: object = None) -> list[dict[str, Any]]:
        return self._call("GET", "compositions")

    def compose(
        self, user: str, terms: list[str], request_id: str, viewer: object = None
    ) -> Composition:
        body = {"user": user, "terms": terms}
        return _composition(self._call("POST", "compositions", body, key=request_id))

    def make(
        self, user: str, terms: list[str], method: Method, data: dict[str, Any], request_id: str
    ) -> dict[str, Any]:
        """`data` as for `Client.composing`; columns are found where the rows are read."""
        given = {name: value for name, value in data.items() if value is not None}
        given.pop("progress", None)
        rows = [kind for kind in ("fit", "adapt") if kind in given]
        require_possible(method, parse_recipe(terms), rows, given.get("select"))
        if not rows:
            body = {"user": user, "terms": terms, "method": method, **given}
            return _made(self._call("POST", "making/recipe", body, key=request_id))
        file = uploadable(given.pop(rows[0]), {k: v for k, v in given.items() if "column" in k})
        fields = {"user": user, "terms": terms, "method": method, **given}
        if "classes" in given:
            fields["classes"] = ",".join(given["classes"])
        with file.open("rb") as stream:
            files = {"file": (file.name, stream)}
            path = f"making/{rows[0]}"
            return _made(self._call("POST", path, data=fields, files=files, key=request_id))

    def making(self, user: str, run_id: str, viewer: object = None) -> dict[str, Any]:
        return _made(self._call("GET", f"compositions/{user}/runs/{run_id}"))

    def cancel_making(self, user: str, request_id: str, viewer: object = None) -> dict[str, Any]:
        return self._call("POST", f"compositions/{user}/cancel", key=request_id)

    def update_composition(self, user: str, request_id: str, viewer: object = None) -> Composition:
        return _composition(self._call("POST", f"compositions/{user}/update", key=request_id))

    def composition(self, user: str) -> Composition:
        return _composition(self._call("GET", f"compositions/{user}"))

    def evaluate(self, user: str, materialized: bool = False) -> str:
        """What to ask `result` with: asking again is how a server tells of an evaluation."""
        path = f"compositions/{user}/evaluation?materialized={str(materialized).lower()}"
        self._call("POST", path)
        return path

    def run(self, run_id: str, viewer: object = None) -> dict[str, Any]:
        return {"run_id": run_id, "state": "running", "kind": "evaluate", "about": "evaluating"}

    def result(self, run_id: str) -> dict[str, Any] | None:
        return self._call("POST", run_id)["result"]

    def evaluations(self, user: str, viewer: object = None) -> dict[str, Any]:
        return self._call("GET", f"accuracy?user={user}")

    def ask(
        self, user: str, inputs: Sequence[bytes | str], tasks: Sequence[str] | None
    ) -> dict[str, Any]:
        """{user, digest, answers} of the user's model as it is when the question arrives."""
        wire = [
            {"text": one} if isinstance(one, str) else {"image": base64.b64encode(one).decode()}
            for one in inputs
        ]
        found = self._call("POST", "predict", {"user": user, "inputs": wire, "tasks": tasks})
        answers = [
            {task: [(name, share) for name, share in ranked] for task, ranked in one.items()}
            for one in found["answers"]
        ]
        return {"user": found["user"], "digest": found["digest"], "answers": answers}

    # -- inside

    def __getattr__(self, method: str) -> Any:
        raise NotAllowed(f"{method} is not there over HTTP; do it where the home is")

    def _call(
        self, method: str, path: str, body: Any = None, key: str | None = None, **more: Any
    ) -> Any:
        more["headers"] = self._headers if key is None else self._headers | {"idempotency-key": key}
        if body is not None:
            more["json"] = body
        until = time.monotonic() + PATIENCE
        answer = self._sent(method, path, more)
        while (pause := _pause(answer)) is not None and time.monotonic() + pause < until:
            time.sleep(pause)
            answer = self._sent(method, path, more)
        if not answer.is_success:
            raise _raised(answer)
        return answer.json()

    def _sent(self, method: str, path: str, more: dict[str, Any]) -> httpx2.Response:
        for _, stream in more.get("files", {}).values():
            stream.seek(0)  # it may be sent again
        try:
            return self._http.request(method, f"/v1/{path}", **more)
        except httpx2.HTTPError as error:
            raise ClusterNotRunning(f"{self._url} does not answer: {error}") from error


def _pause(answer: httpx2.Response) -> float | None:
    """Seconds after which to ask again; None for what is an answer. An error that is not of TACL is
    the proxy's: the process behind it was lost."""
    if answer.status_code in (429, 503):
        named = answer.headers.get("retry-after", "")
        return float(named) if named.isdecimal() else PAUSE
    return PAUSE if answer.status_code >= 500 and _error(answer) is None else None


def _composition(found: dict[str, Any]) -> Composition:
    parts = ("digest", "user", "method", "merged", "target")
    terms = tuple(RecipeTerm(**term) for term in found["recipe"])
    return Composition(**{part: found[part] for part in parts}, terms=terms)


def _made(found: dict[str, Any]) -> dict[str, Any]:
    """With the model as beside the cluster."""
    model = found["model"]
    return found | {"model": model and _composition(model).model_dump(mode="json")}


def _raised(answer: httpx2.Response) -> TaclError:
    """As the class that the server raised."""
    found = _error(answer)
    if found is None:
        return ClusterNotRunning(f"an answer {answer.status_code} that is not of TACL")
    name, message = found
    cls = getattr(errors, name, None)
    if isinstance(cls, type) and issubclass(cls, TaclError):
        return cls(message)
    return BadConfig(message) if answer.status_code < 500 else ClusterNotRunning(message)


def _error(answer: httpx2.Response) -> tuple[str, str] | None:
    """(class, message); None for what is not of TACL."""
    try:
        body = answer.json()
        return body["error"], body["message"]
    except (json.JSONDecodeError, KeyError, TypeError):
        return None
