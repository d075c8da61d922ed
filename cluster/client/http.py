"""A cluster over HTTP: the methods of the coordinator and predictor, as requests.

Errors of the server are raised as the same classes here. What it cannot answer now (it is busy, or
a process of it was lost) is requested again for a while: every request is idempotent, by its key or
by its content.
"""

from __future__ import annotations

import base64
import functools
import inspect
import os
import string
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints
from urllib.parse import quote

import httpx2
from pydantic import TypeAdapter, ValidationError

from cluster.api.schemas import EvaluationRun
from cluster.client.arguments import one_text, uploadable
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import RequestContext
from cluster.domain.compositions import Method
from cluster.domain.explanations import Explanations
from cluster.domain.methods import require_possible, require_shots
from cluster.domain.operations import Answers
from cluster.domain.receipts import MovedAlias, QueuedRun, Submitted
from cluster.domain.status import CompositionRun, Resources
from cluster.domain.tasks import ANY, UNSAID, Options, Reading
from cluster.domain.work import Evaluated
from cluster.errors import NAMES
from tacl.compose.terms import parse_recipe
from tacl.errors import BadConfig, ClusterNotRunning, NotAllowed, TaclError, UnknownRun

if TYPE_CHECKING:
    from cluster.data.answers import Table

T = TypeVar("T")
SECONDS = 120.0
UPLOAD_SECONDS = 1800.0  # data sets of others may be read first, and each row is checked
RETRY_SECONDS = 30.0  # seconds during which a request is repeated
PAUSE = 0.5  # seconds, where the server names none
# The connection was lost with the request on its way.
LOST = httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError
ROUTES = "/-/routes"  # what a 404 of Serve's proxy advises, while it has no application


def _said(reading: Reading) -> dict[str, str]:
    """`reading` as form fields. Raises BadConfig for class names that would arrive changed."""
    fields = reading.model_dump(exclude_none=True)
    return fields | ({"classes": one_text(fields["classes"])} if "classes" in fields else {})


# A method of the coordinator as a request: verb and path. Arguments that the path does not name are
# the body, or the query of a GET; an answer is of the type that the method returns.
OPERATIONS = {
    "retry": ("POST", "tasks/{task}/retry"),
    "cancel": ("POST", "tasks/{task}/cancel"),
    "task": ("GET", "tasks/{name}"),
    "logs": ("GET", "tasks/{task}/events"),
    "status": ("GET", "status"),
    "vectors": ("GET", "vectors"),
    "aliases": ("GET", "tasks/{task}/aliases"),
    "move_alias": ("PUT", "tasks/{task}/aliases/{name}"),
    "interference": ("GET", "interference"),
    "interference_of": ("GET", "tasks/{task}/interference"),
    "compose": ("POST", "compositions"),
    "composition_run": ("GET", "compositions/{user}/runs/{run_id}"),
    "cancel_compositions": ("POST", "compositions/{user}/cancel"),
    "update_composition": ("POST", "compositions/{user}/update"),
    "composition": ("GET", "compositions/{user}"),
    "users": ("GET", "compositions"),
    "accuracy_history": ("GET", "accuracy"),
    "run": ("GET", "runs/{run_id}"),
    "issue_token": ("POST", "users/{user}/tokens"),
    "rotate_token": ("POST", "tokens/{token}/rotate"),
    "revoke_tokens": ("DELETE", "users/{user}/tokens"),
    "tokens": ("GET", "tokens"),
    "usage": ("GET", "usage"),
}


class Server:
    """One server and one token, by default $TACL_TOKEN. `http`: used instead of the network. Raises
    BadConfig for a malformed URL or token."""

    def __init__(
        self, url: str, token: str | None = None, http: httpx2.Client | None = None
    ) -> None:
        self._url = url.rstrip("/")
        token = (token or os.environ.get("TACL_TOKEN") or "").strip()
        if not (token.isascii() and token.isprintable()):  # the library's errors would quote it
            raise BadConfig("the token has letters that none of TACL has; see `tacl users issue`")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = http or httpx2.Client(base_url=self._url, timeout=SECONDS)
        except httpx2.InvalidURL as error:
            raise BadConfig(f"{url} is no address of a server: {error}") from error
        self.coordinator = cast(CoordinatorAPI, _RemoteCoordinator(self))

    def upload(
        self,
        context: RequestContext,
        name: str,
        data: Path,
        private: bool,
        options: Options,
        again: bool = False,
        *,
        templates: Sequence[str] = (),
        reading: Reading = UNSAID,
    ) -> Submitted:
        fields = {"name": name, "private": str(private).lower(), "again": str(again).lower()}
        fields |= _said(reading) | {"templates": list(templates)}
        fields["options"] = options.model_dump_json(exclude_unset=True)
        with data.open("rb") as stream:
            files = {"file": (data.name, stream)}
            sent = {"data": fields, "files": files, "timeout": UPLOAD_SECONDS}
            return self.call("POST", "tasks", Submitted, context, **sent)

    def start_composition(
        self,
        context: RequestContext,
        user: str,
        terms: Sequence[str],
        method: Method,
        reading: Reading,
        data: dict[str, Any],
    ) -> CompositionRun:
        """`data` as for `Client.start_composition`."""
        given = {k: v for k, v in data.items() if v is not None}
        given |= _said(reading)
        rows = [kind for kind in ("fit", "adapt") if kind in given]
        require_possible(method, parse_recipe(terms), rows, given.get("select"))
        require_shots(given.get("fit"), given.get("shots"))
        fields = {"user": user, "terms": list(terms), "method": method}
        if not rows:
            body = fields | given
            return self.call("POST", "making/recipe", CompositionRun, context, json=body)
        with uploadable(given.pop(rows[0]), {}) as file, file.open("rb") as stream:
            files = {"file": (file.name, stream)}
            sent = {"data": fields | given, "files": files, "timeout": UPLOAD_SECONDS}
            return self.call("POST", f"making/{rows[0]}", CompositionRun, context, **sent)

    def query(
        self, user: str, inputs: Sequence[bytes | str], tasks: Sequence[str] | None
    ) -> Answers:
        """Answers of the user's model, as it is when the request arrives."""
        body = {"user": user, "inputs": _wire(inputs), "tasks": tasks}
        return self.call("POST", "predict", Answers, json=body)

    def explain(self, user: str, inputs: Sequence[bytes | str], task: str | None) -> Explanations:
        body = {"user": user, "inputs": _wire(inputs), "task": task}
        return self.call("POST", "explain", Explanations, json=body)

    def predict(self, user: str, inputs: Sequence[bytes | str], task: str | None) -> Table:
        """A table as of `cluster.data.answers.answer_table`; one request must hold the inputs."""
        from cluster.data.answers import ARROW
        from cluster.data.predicting import as_stream, read

        params = {"user": user} | ({"task": task} if task else {})
        content = {"params": params, "content": as_stream(inputs)}
        answer = self._asked("POST", "predict/arrow", {"content-type": ARROW}, content)
        try:
            return read(answer.content)
        except (ValueError, OSError) as error:  # as those of Arrow are
            raise self._foreign(answer) from error

    def call(
        self,
        verb: str,
        path: str,
        form: type[T],
        context: RequestContext | None = None,
        **content: Any,
    ) -> T:
        """Send a request; returns the answer. Raises the server's error, or ClusterNotRunning."""
        key = _key(context.request_id) if context and verb != "GET" else {}
        answer = self._asked(verb, path, key, content)
        try:
            return _reader(form).validate_json(answer.content)
        except ValidationError as error:
            raise self._foreign(answer) from error

    def _foreign(self, answer: httpx2.Response) -> ClusterNotRunning:
        location = answer.headers.get("location")
        to = (
            f" and points to {location}; if that is its server, use its address" if location else ""
        )
        return ClusterNotRunning(
            f"{self._url} gave an answer {answer.status_code} that is not of TACL, or of "
            f"another version of it{to}; see which server has this address"
        )

    def _asked(
        self, verb: str, path: str, headers: dict[str, str], content: dict[str, Any]
    ) -> httpx2.Response:
        content["headers"] = self._headers | headers
        found = self._sent(verb, path, content, LOST)
        until = time.monotonic() + RETRY_SECONDS  # from the first failure: it may have taken long
        while (pause := _pause(found)) is not None and time.monotonic() + pause < until:
            time.sleep(pause)
            # A server was there: if it refuses a connection now, it is being started.
            found = self._sent(verb, path, content, (*LOST, httpx2.ConnectError))
        if isinstance(found, httpx2.HTTPError):
            raise self._silent(found) from found
        if found.is_success:
            return found
        raise self._foreign(found) if (error := _error(found)) is None else _raised(found, *error)

    def _sent(
        self, verb: str, path: str, content: dict[str, Any], lost: tuple[type[Exception], ...]
    ) -> httpx2.Response | httpx2.HTTPError:
        """The answer, or an error of a class of `lost`, after which the request is sent again."""
        for _, stream in content.get("files", {}).values():
            stream.seek(0)  # it may be sent again
        try:
            return self._http.request(verb, f"/v1/{path}", **content)
        except httpx2.HTTPError as error:
            if isinstance(error, lost):
                return error
            raise self._silent(error) from error
        # Text that is not UTF-8, a number that JSON cannot write, or a path that is too long.
        except (ValueError, httpx2.InvalidURL) as error:
            raise BadConfig(f"what is asked cannot be sent: {error}") from error

    def _silent(self, error: httpx2.HTTPError) -> ClusterNotRunning:
        return ClusterNotRunning(
            f"{self._url} does not answer: {error}. Start its server (tacl serve, on its "
            "machine), or use another address."
        )


class _RemoteCoordinator:
    """`CoordinatorAPI` over HTTP: by OPERATIONS, and by own methods where that is not enough."""

    def __init__(self, server: Server) -> None:
        self._server = server
        # by run, the request to repeat under the same key to get its result
        self._evaluations: dict[str, tuple[RequestContext, str, dict[str, Any]]] = {}

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method not in OPERATIONS:
            raise NotAllowed(f"{method} is not there over HTTP; do it where the home is")
        return functools.partial(self._ask, method)

    def _ask(self, method: str, *arguments: object) -> Any:
        verb, path = OPERATIONS[method]
        signature = inspect.signature(getattr(CoordinatorAPI, method))
        bound = signature.bind(self, *arguments)
        bound.apply_defaults()
        given = dict(list(bound.arguments.items())[1:])  # without self
        context = given.pop("context", None)
        place = path.format_map({name: _quoted(value) for name, value in given.items()})
        _require_names(method, place)
        rest = {name: value for name, value in given.items() if f"{{{name}}}" not in path}
        if verb == "GET":  # a query has no null; in a body, null is not the same as absent
            rest = {name: value for name, value in rest.items() if value is not None}
        content = {"params" if verb == "GET" else "json": rest} if rest else {}
        return self._server.call(verb, place, _returned(method), context, **content)

    def cluster(self) -> Resources:
        return self._ask("status", RequestContext(), "").room

    def move_alias(
        self, context: RequestContext, task: str, name: str, version: int, expected: int | None
    ) -> MovedAlias:
        before = "any" if expected == ANY else expected
        return self._ask("move_alias", context, task, name, version, before)

    def evaluate(
        self,
        context: RequestContext,
        user: str,
        materialized: bool,
        without: bool,
        terms: Sequence[str],
    ) -> QueuedRun:
        params = {"materialized": materialized, "without": without, "term": list(terms)}
        place = f"compositions/{_quoted(user)}/evaluation"
        _require_names("evaluate", place)
        asked = context, place, params
        run_id = self._evaluated(*asked).run_id
        self._evaluations[run_id] = asked
        return QueuedRun(run_id=run_id)

    def evaluation(self, context: RequestContext, run_id: str) -> Evaluated | None:
        """Repeat the request of an evaluation, which is how a server reports its result. Raises
        UnknownRun for a run that was not started here."""
        if run_id not in self._evaluations:
            raise UnknownRun(f"evaluation {run_id} was not asked for here; ask for it again")
        return self._evaluated(*self._evaluations[run_id]).result

    def _evaluated(
        self, context: RequestContext, path: str, params: dict[str, Any]
    ) -> EvaluationRun:
        return self._server.call("POST", path, EvaluationRun, context, params=params)


def _require_names(method: str, place: str) -> None:
    """Raises BadConfig for an empty name in a path, which would make it another request."""
    if not all(place.split("/")):
        raise BadConfig(f"{method}: a name that is asked about is empty")


def _key(request_id: str) -> dict[str, str]:
    """The header of an idempotency key; characters that a header cannot have are escaped."""
    return {"idempotency-key": quote(request_id, string.punctuation.replace("%", ""))}


def _quoted(value: object) -> str:
    """A value as part of a path. What is not UTF-8 becomes no valid name; the server says so."""
    return quote(str(value), "", errors="replace")


def _wire(inputs: Sequence[bytes | str]) -> list[dict[str, str]]:
    return [
        {"text": one} if isinstance(one, str) else {"image": base64.b64encode(one).decode()}
        for one in inputs
    ]


@functools.cache
def _returned(method: str) -> Any:
    return get_type_hints(getattr(CoordinatorAPI, method))["return"]


@functools.cache
def _reader(form: Any) -> TypeAdapter[Any]:
    return TypeAdapter(form)


def _pause(answer: httpx2.Response | httpx2.HTTPError) -> float | None:
    """Seconds after which to repeat a request; None if its answer is final. An error that is not of
    TACL is of the proxy: the process behind it was lost, or its application is being started. An
    exception is a lost connection."""
    if isinstance(answer, httpx2.HTTPError):
        return PAUSE
    if answer.status_code in (429, 503):
        named = answer.headers.get("retry-after", "")
        return max(PAUSE, float(named)) if named.isdecimal() else PAUSE
    if answer.is_success or _error(answer) is not None:
        return None
    return PAUSE if answer.status_code >= 500 or _has_no_application(answer) else None


def _has_no_application(answer: httpx2.Response) -> bool:
    """Whether Serve's proxy answers that it knows no application yet; its 404 has no other mark."""
    return answer.status_code == 404 and ROUTES in answer.text


def _raised(answer: httpx2.Response, name: str, message: str) -> TaclError:
    """The error of an answer, of the class that the server raised."""
    if (cls := NAMES.get(name)) is not None:
        return cls(message)
    return BadConfig(message) if answer.status_code < 500 else ClusterNotRunning(message)


def _error(answer: httpx2.Response) -> tuple[str, str] | None:
    """(class, message); None for what is not of TACL."""
    try:
        body = answer.json()
        name, message = body["error"], body["message"]
    except (ValueError, KeyError, TypeError):
        return None
    return (name, message) if isinstance(name, str) and isinstance(message, str) else None
