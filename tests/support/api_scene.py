"""The API over a home in this process: the real coordinator, work done when looked at, guesses."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from cluster.api.access import hashed
from cluster.api.app import create_app
from cluster.api.service import Answered, Question
from cluster.client.client import Client
from cluster.data.compositions import prepared_in
from cluster.domain.compositions import CompositionMethod, Method
from cluster.domain.methods import head_blobs
from cluster.storage.home import Home
from tacl.errors import DataNotFound
from tests.support.fakes import asks, new_home
from tests.support.instant import InProcess, Instant


class Local:
    """`cluster.api.service.Service` without Ray."""

    def __init__(self, home: Path) -> None:
        self.home = new_home(home).path
        self.launcher = Instant(home=new_home(home))
        self.coordinator = InProcess(home, self.launcher)
        self.lock = threading.Lock()
        self.questions: list[Question] = []

    async def ask(self, method: str, *arguments: object) -> Any:
        return getattr(self.coordinator, method)(*arguments)

    async def predict(self, question: Question) -> Answered:
        self.questions.append(question)
        tasks = question.tasks or list(head_blobs(question.model))
        one = {task: [("a", 0.75), ("b", 0.25)] for task in tasks}
        answers = [one for _ in question.inputs]
        return Answered(answers, answers if question.beside_base else None)

    async def submit(self, data: Path, name: str, owner: str, fields: dict[str, Any]) -> Any:
        client = Client(self.home, coordinator=self.coordinator, user=owner)
        options = fields.pop("options")
        return client.submit(name, data, owner=owner, **fields, **options)

    async def prepare(
        self, terms: list[str], method: Method, given: dict[str, Any]
    ) -> CompositionMethod:
        return prepared_in(Home(self.home), terms, method, **given)

    def reference(self, name: str) -> Path:
        raise DataNotFound(f"no data set {name} was laid ready")


def scene(home: Path, open_to_all: bool = False, **people: Any) -> tuple[FastAPI, Local]:
    """`people`: roles by name; the token of a person is `token of NAME`."""
    service = Local(home)
    for name, role in people.items():
        service.coordinator.issue_token(
            asks(f"issue {name}"), name, role, hashed(f"token of {name}")
        )
    return create_app(service, open_to_all=open_to_all), service


def headers(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer token of {name}"}
