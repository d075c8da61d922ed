"""A fake of the API for the page, without a cluster."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import FastAPI, Form, Query, Request, UploadFile
from fastapi.responses import JSONResponse, StreamingResponse

from cluster.api import page as assets
from cluster.domain.base import PAGE
from tacl.compose.terms import parse_term
from tests.support.declared import Declared


class FakeApi:
    """The API's answers to the page, from a few lists."""

    def __init__(self) -> None:
        self.token: str | None = None
        self.people = ["ann"]
        self.tokens: list[dict[str, Any]] = []
        self.role = "submitter"
        self.models: dict[str, dict[str, Any]] = {}
        self.modality, self.head_kind = "image", "text"
        self.tasks: list[dict[str, Any]] = []
        self.work: list[dict[str, Any]] = []
        self.partly = False  # whether a client with the full status is informed of what is gone
        self.told = set[str]()  # work
        self.rows: list[dict[str, Any]] = []
        self.findings: list[dict[str, Any]] = []
        self.loudest: list[dict[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self.missing = 0
        self.generic: float | None = 0.1  # effect of every vector on the generic samples
        self.change: float | None = 0.6  # and on the answers for another task
        self.high = 0.5  # changes from which the page warns
        self.held = set[str]()  # paths that are not answered until they are removed here
        self.failing = Counter[str]()  # paths, with the number of 503 answers still to give
        self.trouble: str | None = None
        self.explains = "ab12" * 16  # digest of the current model
        self.more = 0  # number of its classes beyond three
        self.changes = 0
        self.url = ""
        self.app = FastAPI()
        self.app.router.route_class, self.app.state.undeclared = Declared, list[str]()
        for routes in (self._guard, self._cluster, self._models, self._people, self._submitting):
            routes(self.app)
        assets.serve(self.app)

    def task(self, name: str, state: str, **facts: Any) -> None:
        """Add or replace a task in its current state."""
        nothing = dict.fromkeys(("step", "steps", "loss", "version", "reason"))
        nothing |= {"accuracy_before": None, "accuracy_after": None, "run_id": f"training {name}"}
        self.tasks = [task for task in self.tasks if task["name"] != name]
        self.tasks.append({**nothing, "name": name, "state": state, **facts})
        self.changes += 1

    def ready(self, *names: str) -> None:
        for name in names:
            facts = {"version": 1, "accuracy_before": 0.5, "accuracy_after": 0.81}
            self.task(name, "ready", **facts)

    def measured(
        self,
        accuracies: dict[str, float],
        at: float = 1e9,
        unknowns: dict[str, float] | None = None,
        frozen: dict[str, float] | None = None,
        **means: float,
    ) -> None:
        """An evaluated sum; what is not among the `means` was not measured."""
        fixed = {"terms": [f"+{name}@v1" for name in accuracies], "label": "", "at": at}
        fixed |= {"user": "me", "method": "sum"}
        fixed["absolute"] = sum(accuracies.values()) / len(accuracies)
        absent = dict.fromkeys(("unknown", "frozen_known", "frozen_unknown"))
        each = {"accuracies": accuracies, "unknowns": unknowns or {}, "frozen": frozen or {}}
        self.rows.append({**fixed, **absent, **each, **means})

    def _guard(self, app: FastAPI) -> None:
        @app.middleware("http")
        async def guard(request: Request, answer: Any) -> Any:
            said = request.headers.get("authorization", "")
            if (
                self.token
                and request.url.path.startswith("/v1/")
                and said != f"Bearer {self.token}"
            ):
                return JSONResponse({"message": "sign in"}, 401)
            while request.url.path in self.held:
                await asyncio.sleep(0.05)
            if self.failing[request.url.path] > 0:
                self.failing[request.url.path] -= 1
                return JSONResponse({"message": "The coordinator does not answer now."}, 503)
            return await answer(request)

    def _cluster(self, app: FastAPI) -> None:
        @app.get("/v1/status")
        def status(since: str = "") -> Any:
            base = {"spec": "embedded", "modality": self.modality, "head_kind": self.head_kind}
            told = {"base": base, "tasks": self.tasks, "work": self.work}
            told["trouble"] = self.trouble
            whole, before = not (self.partly and since), self.told
            self.told = {run["run_id"] for run in self.work}
            gone = [] if whole else sorted(before - self.told)
            return told | {"version": "1", "whole": whole, "more": False, "gone": gone}

        @app.get("/v1/me")
        def me() -> Any:
            return {"user": "me", "role": self.role}

        @app.get("/v1/compositions")
        def compositions(whose: str) -> Any:
            return [one for user, one in self.models.items() if user == whose]

        @app.get("/v1/compositions/{user}")
        def composition(user: str) -> Any:
            none = JSONResponse({"message": f"{user} has no model yet"}, 409)
            return self.models.get(user, none)

        @app.get("/v1/interference")
        def interference() -> Any:
            on = [task["name"] for task in self.tasks]
            names = [task["name"] for task in self.tasks if task["version"]]
            own = {s: {s: 1.0} for s in names}
            known = [[own[s].get(t, self.change if t in own else None) for t in on] for s in names]
            found = {"vectors": [{"task": name, "version": 1} for name in names], "high": self.high}
            found |= {"on": ["generic", *on], "missing": self.missing}
            found |= {"logits": [[None, *row] for row in known]}
            found |= {"raw": [[self.generic, *row] for row in known]}
            return found | {"findings": self.findings, "loudest": self.loudest}

        @app.get("/v1/accuracy")
        def accuracy(user: str | None = None) -> Any:
            return {"tasks": [task["name"] for task in self.tasks], "rows": self.rows}

    def _models(self, app: FastAPI) -> None:
        @app.post("/v1/compositions/{user}/evaluation")
        def evaluate(user: str, without: bool, term: Annotated[list[str], Query()] = []) -> Any:  # noqa: B006
            self.asked.append(("evaluate", (user, *term)))
            done = len([one for one in self.asked if one[0] == "evaluate"]) % 2 == 0
            return {"run_id": "r", "result": _evaluated(term) if done else None}

        @app.get("/v1/runs/{run_id}")
        def run(run_id: str) -> Any:
            return {"run_id": run_id, "step": 100, "steps": 400, "expected": time.time() + 40}

        @app.post("/v1/explain")
        async def explain(request: Request) -> Any:
            self.asked.append(("explain", await request.json()))
            return {"user": "me", "digest": self.explains, "explanations": [_explained(self.more)]}

        @app.get("/v1/vectors")
        def vectors(task: str, after: str = "") -> Any:
            shared = {
                "digest": "cd34" * 16,
                "created": 1e9,
                "metrics": {},
                "arrivals": [{}],
                "met": 2,
            }
            first = {"version": 1, "parent": None, "champion": False}
            second = {"version": 2, "parent": 1, "champion": True}
            page = {"": first, f"{task}@v1": second}  # one at a time
            return [shared | page[after]] if after in page else []

    def _people(self, app: FastAPI) -> None:
        @app.get("/v1/tokens")
        def tokens(after: str = "") -> Any:
            page = sorted({one["user"] for one in self.tokens if one["user"] > after})[:PAGE]
            return [one for one in self.tokens if one["user"] in page]

        @app.get("/v1/usage")
        def usage(after: str = "") -> Any:
            users = {*self.people, *(one["user"] for one in self.tokens)}
            share = {"queued": 1, "queued_most": 32, "stored": 3 << 30, "stored_most": 64 << 30}
            share |= {"ran": 90, "ran_most": 1440}
            page = sorted(user for user in users if user > after)[:PAGE]
            return [{"user": user, **share} for user in page]

        @app.post("/v1/users/{user}/tokens")
        async def issue(user: str, request: Request) -> Any:
            body = await request.json()
            self.asked.append(("issue", (user, body)))
            self.tokens.append({"user": user, "role": body["role"], "used": None, "expires": None})
            return {"user": user, "role": body["role"]}

        @app.delete("/v1/users/{user}/tokens")
        def revoke(user: str) -> Any:
            self.tokens = [one for one in self.tokens if one["user"] != user]
            return {"user": user, "revoked": 1}

    def sum(self, *terms: str) -> dict[str, Any]:
        """A sum pinned to the current versions of the tasks."""
        versions = {task["name"]: task["version"] for task in self.tasks}
        pinned = [
            {
                "vector": {"task": term.name, "version": term.version or versions[term.name]},
                "coefficient": term.coefficient,
            }
            for term in map(parse_term, terms)
        ]
        return {"user": "me", "digest": "ab12" * 16, "method": "sum", "terms": pinned}

    def _submitting(self, app: FastAPI) -> None:
        @app.post("/v1/compositions")
        async def compose(request: Request) -> Any:
            body = await request.json()
            self.asked.append(("compose", body))
            return self.sum(*body["terms"])

        @app.post("/v1/compositions/{user}/update")
        def update(user: str) -> Any:
            self.asked.append(("update", user))
            old = self.models[user]["terms"]
            return self.sum(*(f"{one['coefficient']}*{one['vector']['task']}" for one in old))

        @app.post("/v1/predict")
        async def predict(request: Request) -> Any:
            body = await request.json()
            self.asked.append(("predict", body))
            many = len(body["inputs"])
            answer = {"signs": [["stop", 0.2]], "digits": [["zero", 0.75], ["nine", 0.05]]}
            base = {"signs": [["stop", 0.1]], "digits": [["nine", 0.6], ["zero", 0.3]]}
            strange = [one.get("text") == "???" for one in body["inputs"]]
            belonging = [{"probability": 0.9 - 0.88 * one, "none": one} for one in strange]
            found = {"user": "me", "digest": "ab12" * 16, "belonging": belonging}
            return found | {"answers": [answer] * many, "base": [base] * many}

        @app.post("/v1/tasks")
        async def submit(
            request: Request, file: UploadFile, name: str = Form(), options: str = Form()
        ) -> Any:
            if name in [task["name"] for task in self.tasks]:
                return JSONResponse({"message": f"there is a task {name} already"}, 409)
            form = await request.form()
            rest: dict[str, Any] = {key: value for key, value in form.items() if value}
            rest |= {"templates": form.getlist("templates")} if "templates" in form else {}
            rest |= {"file": (file.filename, len(await file.read()))}
            self.asked.append(("submit", rest | {"options": json.loads(options)}))
            self.task(name, "queued")
            return {"task": name, "state": "queued", "notes": ["read as Latin-1"]}

        @app.get("/v1/events")
        def events() -> Any:
            return StreamingResponse(self._changes(), media_type="text/event-stream")

    async def _changes(self) -> AsyncIterator[str]:
        told = -1
        while True:
            if told != self.changes:
                told = self.changes
                yield f"event: changed\ndata: {json.dumps({'number': told})}\n\n"
            await asyncio.sleep(0.05)


def _evaluated(terms: list[str]) -> dict[str, Any]:
    names = [term.lstrip("+-").rpartition("*")[2] for term in terms]
    left = {term: {n: 0.5 if n in term else 0.82 for n in names} for term in terms}
    means = {"absolute": 0.8, "task_unknown": 0.7, "frozen_known": 0.75, "frozen_unknown": 0.6}
    return {"per_task": {name: {"composed": 0.8} for name in names}, "without": left, **means}


def _explained(more: int) -> dict[str, Any]:
    """An explanation of a model with `more` classes beyond three."""
    unlikely = {f"class {number}": -1.0 - number for number in range(more)}
    logits = {"digits": {"zero": 3.0, "nine": 1.0}, "signs": {"stop": 2.0, **unlikely}}
    half = {task: {name: value / 2 for name, value in of.items()} for task, of in logits.items()}
    best = {"task": "digits", "label": "zero", "probability": 0.75}
    other = {"task": "signs", "label": "stop", "probability": 0.6}
    shared = {"length": 1.0, "share": 0.5, "logits": half}
    base = {"part": "base model", "without": None, "probability": None}
    vector = {"part": "+digits@v1", "without": other, "probability": 0.2}
    return {"best": best, "logits": logits, "parts": [shared | base, shared | vector]}


def finding(first: str, second: str, message: str) -> dict[str, Any]:
    return {
        "kind": "interference",
        "first": first,
        "second": second,
        "value": 0.4,
        "message": message,
    }
