"""The home, its server and its users, and what each model must answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.client.client import Client
from cluster.domain.users import Role
from cluster.runtime.connection import leave
from cluster.storage.home import Home
from jobs.benchmarks.load import VECTORS, Expected, Oracle
from jobs.benchmarks.serving import free_port
from jobs.benchmarks.synthetic import founded, pictures_of
from tacl.embedded import classes, generate
from tacl.embedded.parquet import write_table

PICTURES = 16  # that are asked about
ROLES: dict[str, Role] = {
    "ann": "submitter",
    "bob": "submitter",
    "mallory": "submitter",
    "eve": "user",
    "root": "admin",
}
ROWS = 80  # of a submitted task
CPUS = 2


@dataclass(frozen=True)
class Place:
    """Where it happens; travels to the processes of the four."""

    folder: Path
    url: str
    tokens: Mapping[str, str]
    encoded: Sequence[str]  # pictures, as base64
    expected: Sequence[Sequence[Expected]]  # by recipe, by picture
    making: int  # things that bob has made at the most

    @property
    def home(self) -> Home:
        return Home(self.folder / "home")

    @property
    def secret(self) -> Path:
        """A picture of somebody else on this machine."""
        return self.folder / "secret.png"

    def headers(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[name]}"}

    def told(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"

    def keep(self, name: str, what: Mapping[str, Any]) -> None:
        (self.folder / f"{name}.kept.json").write_text(json.dumps(what))

    def kept(self, what: str) -> dict[str, str]:
        """Of all who kept something of this kind."""
        found: dict[str, str] = {}
        for path in self.folder.glob("*.kept.json"):
            found |= json.loads(path.read_text()).get(what, {})
        return found

    def data_set(self, number: int) -> dict[str, tuple[str, bytes]]:
        """Another one for every number."""
        images, labels = generate("digits", ROWS, seed=100 + number)
        write_table(
            file := self.folder / f"data{number}.parquet", images, labels, classes("digits")
        )
        return {"file": (file.name, file.read_bytes())}


def prepared(folder: Path, models: int, making: int) -> Place:
    """A running cluster with a server. This process is not connected to it afterwards: Ray ends
    whoever is when its cluster dies."""
    population = founded(folder / "home", VECTORS)
    client = Client(population.home.path)
    client.up(cpus=CPUS)
    oracle = Oracle(population, pictures_of(PICTURES))
    url = client.serve(port=free_port(), cpus=0.5).url
    tokens = {name: client.issue_token(name, role).token or "" for name, role in ROLES.items()}
    leave(client.home)
    expected = [oracle.expected(number) for number in range(models)]
    place = Place(folder, url, tokens, oracle.encoded, expected, making)
    place.secret.write_bytes(base64.b64decode(oracle.encoded[0]))
    return place
