"""What the page asks of the API, without a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Form, Request, UploadFile
from fastapi.responses import JSONResponse, StreamingResponse

from cluster.api import page as assets


class FakeApi:
    """What the page asks of the API, answered from a few lists."""

    def __init__(self) -> None:
        self.token: str | None = None
        self.role = "submitter"
        self.models: dict[str, dict[str, Any]] = {}
        self.modality = "image"
        self.tasks: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.findings: list[dict[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self.changes = 0
        self.url = ""
        self.app = FastAPI()
        self._routes(self.app)
        assets.serve(self.app)

    def task(self, name: str, state: str, **facts: Any) -> None:
        """A task as it is now."""
        nothing = dict.fromkeys(("step", "steps", "loss", "version", "reason"))
        nothing |= {"accuracy_before": None, "accuracy_after": None}
        self.tasks = [task for task in self.tasks if task["name"] != name]
        self.tasks.append({**nothing, "name": name, "state": state, **facts})
        self.changes += 1

    def ready(self, *names: str) -> None:
        for name in names:
            facts = {"version": 1, "accuracy_before": 0.5, "accuracy_after": 0.81}
            self.task(name, "ready", **facts)

    def _routes(self, app: FastAPI) -> None:
        @app.middleware("http")
        async def guard(request: Request, answer: Any) -> Any:
            said = request.headers.get("authorization", "")
            if (
                self.token
                and request.url.path.startswith("/v1/")
                and said != f"Bearer {self.token}"
            ):
                return JSONResponse({"message": "sign in"}, 401)
            return await answer(request)

        @app.get("/v1/status")
        def status() -> Any:
            base = {"spec": "embedded", "modality": self.modality}
            return {"base": base, "tasks": self.tasks, "work": []}

        @app.get("/v1/me")
        def me() -> Any:
            return {"user": "me", "role": self.role}

        @app.get("/v1/compositions/{user}")
        def composition(user: str) -> Any:
            none = JSONResponse({"message": f"{user} has no model yet"}, 409)
            return self.models.get(user, none)

        @app.get("/v1/interference")
        def interference() -> Any:
            names = [task["name"] for task in self.tasks if task["version"]]
            relative = [[None, *(1.0 if s == t else 0.6 for t in names)] for s in names]
            vectors = [{"task": name, "version": 1} for name in names]
            found = {"vectors": vectors, "on": ["generic", *names], "logits": relative, "high": 0.5}
            return found | {"findings": self.findings}

        @app.get("/v1/accuracy")
        def accuracy(user: str | None = None) -> Any:
            return {"tasks": [task["name"] for task in self.tasks], "rows": self.rows}

        @app.post("/v1/compositions/{user}/evaluation")
        def evaluate(user: str) -> Any:
            self.asked.append(("evaluate", user))
            return {"run_id": "r", "result": {} if len(self.asked) > 2 else None}

        @app.post("/v1/compositions")
        async def compose(request: Request) -> Any:
            self.asked.append(("compose", await request.json()))
            return {"user": "me", "digest": "ab12" * 16}

        @app.post("/v1/predict")
        async def predict(request: Request) -> Any:
            self.asked.append(("predict", await request.json()))
            answer = {"signs": [["stop", 0.2]], "digits": [["zero", 0.75], ["nine", 0.05]]}
            base = {"signs": [["stop", 0.1]], "digits": [["nine", 0.6], ["zero", 0.3]]}
            found = {"user": "me", "digest": "ab12" * 16}
            return found | {"answers": [answer], "base": [base]}

        @app.post("/v1/tasks")
        async def submit(file: UploadFile, name: str = Form(), options: str = Form()) -> Any:
            if name in [task["name"] for task in self.tasks]:
                return JSONResponse({"message": f"there is a task {name} already"}, 409)
            given = (name, file.filename, len(await file.read()), json.loads(options))
            self.asked.append(("submit", given))
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


def finding(first: str, second: str, message: str) -> dict[str, Any]:
    return {"kind": "pair", "first": first, "second": second, "value": 0.4, "message": message}
