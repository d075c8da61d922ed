"""Those who ask what they may: ann, who is measured, and bob, who has things made."""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections.abc import Mapping
from multiprocessing.synchronize import Event
from typing import Any

import httpx2

from jobs.benchmarks.load import is_close, recipe_of, terms_of
from tests.stress.hostile.scene import Place
from tests.stress.hostile.told import ANSWER, Lines, Told

PAUSE = 0.05  # seconds between an answer and the next question
MODELS = 40  # recipes that are asked about
LATE = 900.0  # seconds until a question that nobody answers is given up
TASKS = 12  # that bob submits at the most


class Person:
    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self.chance = random.Random(name)
        self._http = httpx2.Client(
            base_url=place.url, timeout=60, headers=place.headers(name), trust_env=False
        )
        self._lines = Lines(place.told(name))

    def once(self, what: str, verb: str, path: str, **content: Any) -> httpx2.Response | None:
        began = time.monotonic()
        try:
            found = self._http.request(verb, path, **content)
        except httpx2.HTTPError as error:
            found, status, cause = None, 0, type(error).__name__
        else:
            status, cause = found.status_code, error_of(found)
        self.tell(what, began, status, cause)
        return found

    def ask(self, what: str, verb: str, path: str, **content: Any) -> httpx2.Response | None:
        """Again and again, as every client does, until there is an answer; None when too late."""
        until = time.monotonic() + LATE
        while time.monotonic() < until:
            found = self.once(what, verb, path, **content)
            if found is not None and not _not_now(found):
                return found
            time.sleep(0.2)
        return None

    def tell(self, what: str, began: float, status: int, error: str = "", wrong: str = "") -> None:
        seconds = time.monotonic() - began
        self._lines.tell(Told(self.name, what, began, seconds, status, error, wrong))


def _not_now(found: httpx2.Response) -> bool:
    """What is not TACL's is of Ray's proxy, while the server behind it is being started."""
    return found.status_code >= 500 or found.status_code == 429 or error_of(found) == "proxy"


def error_of(found: httpx2.Response) -> str:
    """A class of `tacl.errors`; empty for a success, and "proxy" for what is not TACL's."""
    if found.status_code < 400:
        return ""
    try:
        return str(found.json()["error"])
    except (ValueError, KeyError, TypeError):
        return "proxy"


def wrong_with(found: Mapping[str, Any], digest: str, expected: Any) -> str:
    """Of an answer about one picture."""
    if found["digest"] != digest:
        return "of another model"
    return "" if is_close(expected, found["answers"][0]) else "other probabilities"


class Ann(Person):
    def live(self, stop: Event) -> None:
        asked, digest, recipe = 0, "", 0
        while not stop.is_set():
            if asked % 100 == 0:
                recipe = self.chance.randrange(MODELS)
                digest = self._composed(recipe) or digest
            asked += 1
            self._question(digest, recipe)
            time.sleep(PAUSE)
        self.place.keep(self.name, {"models": {self.name: digest}})

    def _composed(self, recipe: int) -> str | None:
        key = {"idempotency-key": uuid.uuid4().hex}
        body = {"terms": terms_of(recipe_of(recipe))}
        digests = set()
        for _ in range(2):  # the same again
            found = self.ask("compose", "POST", "/v1/compositions", json=body, headers=key)
            digests |= {found.json()["digest"]} if found is not None and found.is_success else set()
        if len(digests) > 1:
            self.tell("compose", time.monotonic(), 200, wrong="another answer to the same request")
        return digests.pop() if digests else None

    def _question(self, digest: str, recipe: int) -> None:
        number = self.chance.randrange(len(self.place.encoded))
        body = {"inputs": [{"image": self.place.encoded[number]}], "seconds": 30}
        began = time.monotonic()
        found = self.ask("predict", "POST", "/v1/predict", json=body)
        if found is None or not found.is_success:
            self.tell(ANSWER, began, found.status_code if found else 0, wrong="never answered")
            return
        expected = self.place.expected[recipe][number]
        self.tell(ANSWER, began, 200, wrong=wrong_with(found.json(), digest, expected))


class Bob(Person):
    """Has at most two things made at a time."""

    accepted: dict[str, str]  # task -> run
    runs: dict[str, str]  # compositions: run -> state when last seen

    def live(self, stop: Event) -> None:
        self.accepted, self.runs, sent = {}, {}, []
        while not stop.is_set():
            if len(sent) < self.place.making and self._owed() < 2:
                making = self._submit if len(self.accepted) < TASKS else self._make
                sent.append(making())
            self._repeat(self.chance.choice(sent)) if sent else None
            for path in ("/v1/interference", "/v1/vectors", "/v1/compositions/bob"):
                self.ask("look", "GET", path)
            stop.wait(1.0)
        self.place.keep(self.name, {"accepted": self.accepted, "runs": self.runs})

    def _owed(self) -> int:
        found = self.ask("look", "GET", "/v1/status")
        if found is None or not found.is_success:
            return 2
        tasks, work = found.json()["tasks"], found.json()["work"]
        mine = [one for one in tasks if one["owner"] == "bob" and one["state"] != "ready"]
        return len(mine) + sum(one["user"] == "bob" for one in work)

    def _submit(self) -> dict[str, Any]:
        name = f"task{len(self.accepted)}"
        name = f"bob.{name}" if self.chance.random() < 0.3 else name
        options = {"steps": 12, "refresh": "never", "seed": len(self.accepted)}
        if self.chance.random() < 0.7:
            options["heads"] = "trained"
        data = {"name": name, "private": str("." in name).lower(), "options": json.dumps(options)}
        sent = self._sent(
            "submit", "/v1/tasks", data=data, files=self.place.data_set(len(self.accepted))
        )
        if run := sent["answer"].get("run_id"):
            self.accepted[name] = run
        return sent

    def _make(self) -> dict[str, Any]:
        terms = [f"t{number}" for number in self.chance.sample(range(8), 3)]
        body = {"terms": terms, "method": self.chance.choice(["ties", "tsv", "iso"])}
        sent = self._sent("make", "/v1/making/recipe", json=body)
        if run := sent["answer"].get("run_id"):
            self.runs[run] = "accepted"
        return sent

    def _sent(self, what: str, path: str, **content: Any) -> dict[str, Any]:
        content["headers"] = {"idempotency-key": uuid.uuid4().hex}
        found = self.ask(what, "POST", path, **content)
        answer = found.json() if found is not None and found.is_success else {}
        return {"what": what, "path": path, "content": content, "answer": answer}

    def _repeat(self, sent: dict[str, Any]) -> None:
        """The same under the same key: the same run."""
        found = self.ask(sent["what"], "POST", sent["path"], **sent["content"])
        if found is None or not found.is_success or not sent["answer"]:
            return
        if found.json()["run_id"] != sent["answer"]["run_id"]:
            self.tell(sent["what"], time.monotonic(), 200, wrong="done twice")


def live(person: type[Ann | Bob], place: Place, name: str, stop: Event) -> None:
    os.setsid()  # at a machine of their own: see `attacks.elsewhere`
    person(place, name).live(stop)
