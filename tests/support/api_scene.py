"""The API over a home in this process: a real coordinator, instant work, and a fake predictor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Concatenate

from fastapi import FastAPI
from starlette.routing import BaseRoute

from cluster.api.access import hashed
from cluster.api.app import create_app
from cluster.api.service import Answered, M, P, Question, R, SentFiles
from cluster.domain.api import CoordinatorAPI
from cluster.domain.base import RequestContext
from cluster.domain.figures import PredictorFigures, StoreFigures
from cluster.storage.drafts import scratch
from cluster.storage.home import Home
from tacl.errors import DataNotFound
from tests.support.fakes import new_home
from tests.support.instant import Guess, InProcess, Instant

ROUTES: dict[bool, list[BaseRoute]] = {}  # by whether the API is open to all


class Local:
    """`cluster.api.service.Service` without Ray."""

    def __init__(self, home: Path) -> None:
        self.home = new_home(home).path
        self.launcher = Instant(home=new_home(home))
        self.coordinator = InProcess(home, self.launcher)
        self.lock = threading.Lock()
        self.questions: list[Question] = []
        kept = {"vectors": 4, "models": 1, "bytes": 99, "hits": 7, "misses": 4}
        self.answering = [PredictorFigures(predictor="p1", passes=2, questions=5, **kept)]

    async def ask(
        self,
        method: Callable[Concatenate[CoordinatorAPI, P], R],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> R:
        return getattr(self.coordinator, method.__name__)(*arguments, **named)

    async def predict(self, question: Question) -> Answered:
        self.questions.append(question)
        return Guess(belonging=0.5).ask(question)

    async def predictors(self) -> list[PredictorFigures]:
        return self.answering

    async def stored(self) -> StoreFigures:
        return StoreFigures(blobs=3, bytes=300)

    async def reads(self) -> bool:
        return True

    async def prepare(self, given: SentFiles[M]) -> M:
        return given.stored(Home(self.home))

    def scratch(self) -> AbstractContextManager[Path]:
        return scratch(self.home / "cache")

    def reference(self, name: str) -> Path:
        raise DataNotFound(f"no data set {name} is here")


def scene(home: Path, open_to_all: bool = False, **people: Any) -> tuple[FastAPI, Local]:
    """An API and its service. `people`: roles by name; a person's token is `token of NAME`."""
    service = Local(home)
    for name, role in people.items():
        service.coordinator.issue_token(RequestContext(), name, role, hashed(f"token of {name}"))
    app = create_app(service, open_to_all=open_to_all)
    # FastAPI works out the parameters of a route at its first request, again for each application.
    # Routes keep no reference to an application: `request.app` is that of the request.
    app.router.routes[:] = ROUTES.setdefault(open_to_all, list(app.router.routes))
    return app, service


def headers(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer token of {name}"}
