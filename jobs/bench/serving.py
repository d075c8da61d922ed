"""Asking over HTTP: many users, each with a recipe of their own, from a second process.

A home of its own with the embedded encoder and made-up vectors; the server as `tacl serve` starts
it; a loader that sends requests and checks every answer against its user's own model; and, in the
same run, a plain loop over the same batches with one model for all.
"""

from __future__ import annotations

import asyncio
import base64
import io
import math
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import torch
from PIL import Image

from cluster.blobs import Blobs
from cluster.client import Client
from cluster.coordinator import Coordinator
from cluster.home import Home, Settings, write
from cluster.launcher import Finished, Outcome
from cluster.materials import Materials
from cluster.messages import (
    BlobRef,
    Measured,
    Pair,
    Submission,
    Trained,
    TrainWork,
    VectorRef,
    Work,
)
from cluster.samples import store_rows, store_shard
from cluster.state import Needs, Node
from jobs.bench.timing import in_turns
from tacl.embedded import generate
from tacl.heads import prototype_head
from tacl.mixing import MixedEncoder, alone, summed
from tacl.tangents import cached_tangents
from tacl.vectors import TaskVector

VECTORS = 8
OF_EACH = 4  # vectors in a recipe
PICTURES = 16  # that are asked about
CLASSES = ("ash", "birch", "cedar", "date")
SIZE = 0.05  # of a made-up block, relative to theta0's standard deviation
ROWS = 64  # of a batch without a server around it

Say = Callable[[str], None]


class Made:
    """A `cluster.launcher.Launcher` whose vectors are random numbers: serving does not mind."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._materials = Materials(home, settings.base)
        self._module = self._materials.linearized()

    def nodes(self) -> tuple[Node, ...]:
        return (Node(2),)

    def start(self, work: Work, needs: Needs) -> Work:
        return work

    def poll(self, handle: Work) -> Outcome:
        if isinstance(handle, TrainWork):
            return Finished(self._trained(handle.submission))
        pairs: Any = getattr(handle, "pairs", ())
        return Finished(Measured(pairs=tuple(_pair(vector, shard) for vector, shard in pairs)))

    def free(self) -> tuple[Node, ...]:
        return ()

    def cancel(self, handle: Work) -> None:
        pass

    def _trained(self, task: Submission) -> Trained:
        noise = torch.Generator().manual_seed(sum(task.name.encode()))
        module, backbone = self._module, self._materials.backbone
        tau = {
            name: SIZE * _std(theta0) * torch.randn(theta0.shape, generator=noise)
            for name in module.blocks
            for theta0 in [module.theta0(name)]
        }
        vector = TaskVector.of_params(task.name, backbone.digest, "linearized", tau)
        rows = self._materials.labelled(task.train)
        features_ND = self._materials.features(rows.items)
        head = prototype_head(features_ND, rows.labels, task.classes)
        return Trained(
            vector_digest=vector.digest,
            vector_blob=self._materials.put_vector(vector),
            head_blob=self._materials.put_head(head),
            config={},
            metrics={},
            curves={},
            norm=1.0,
        )


def _std(theta0: torch.Tensor) -> float:
    return theta0.std().item() if theta0.numel() > 1 else 1.0


def _pair(vector: Any, shard: Any) -> Pair:
    return Pair(
        task=vector.task,
        version=vector.version,
        vector_digest=vector.digest,
        on=shard.task,
        shard_digest=shard.blob.digest,
        tau_jp=1.0 if vector.task == shard.task else 0.1,
        standard_error=0.0,
        rows=1,
    )


def populated(home: Home, settings: Settings, pictures: Sequence[bytes], tasks: int) -> None:
    """The home's registry and blobs as after the training of `tasks` tasks, t0, t1, ..."""
    write(home.settings_file, settings)
    coordinator = Coordinator(home.path, Made(home, settings))
    blobs = home.blobs()
    labels = [row % len(CLASSES) for row in range(len(pictures))]
    for number in range(tasks):
        data = store_rows(blobs, list(pictures), labels)
        shard = store_shard(blobs, list(pictures), [row == 0 for row in range(len(pictures))])
        coordinator.submit(_submission(f"t{number}", data, shard))
        while any(task["version"] is None for task in coordinator.status()["tasks"]):  # type: ignore[attr-defined]
            coordinator.tick()
    while coordinator.status()["work"]:
        coordinator.tick()
    coordinator.close()


def _submission(name: str, data: BlobRef, shard: BlobRef) -> Submission:
    return Submission(
        request_id=name,
        name=name,
        owner="bench",
        modality="image",
        classes=CLASSES,
        train=data,
        validation=data,
        test=data,
        shard=shard,
    )


# -- the load


@dataclass(frozen=True)
class Load:
    """What a number of users saw."""

    users: int
    requests: int
    seconds: float
    latencies: tuple[float, ...]
    wrong: int
    bytes_per_user: float
    cold: float  # seconds from composing to the first answer, of a recipe never asked before

    def facts(self) -> dict[str, float]:
        cuts = statistics.quantiles(self.latencies, n=100, method="inclusive")
        return {
            "users": self.users,
            "requests": self.requests,
            "per_second": self.requests / self.seconds,
            "p50": cuts[49],
            "p95": cuts[94],
            "p99": cuts[98],
            "cold": self.cold,
            "bytes_per_user": self.bytes_per_user,
            "wrong": self.wrong,
        }


class Oracle:
    """What every user must be told, by cached tangents: additions only, no pass of the server's."""

    def __init__(self, client: Client, pictures: Sequence[bytes]) -> None:
        home = client.home
        settings = home.settings()
        assert settings is not None
        materials = Materials(home, settings.base)
        refs = [VectorRef(**_known(one)) for one in client.vectors()]
        self.taus = {ref.task: materials.vector(ref).to_params() for ref in refs}
        self.heads = {ref.task: materials.head(ref.head_blob) for ref in refs}
        self.backbone, self.module = materials.backbone, materials.linearized()
        self.items = [self.backbone.prepare(raw) for raw in pictures]
        self._cached = cached_tangents(self.module, self.backbone, self.items, self.taus)

    def is_right(self, recipe: Mapping[str, float], picture: int, answer: Any) -> bool:
        features_ND = self._cached.linearized(recipe)
        for task in recipe:
            head = self.heads[task]
            shares_C = head.logits(features_ND[picture : picture + 1]).softmax(-1)[0]
            expected = dict(zip(head.classes, shares_C.tolist(), strict=True))
            if any(abs(expected[name] - share) > 1e-4 for name, share in answer[task]):
                return False
        return answer.keys() == recipe.keys()


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in VectorRef.model_fields if name in facts}


def recipe_of(user: int) -> dict[str, float]:
    """Another one for every user: which vectors, and how much of each."""
    choose = random.Random(user)
    tasks = choose.sample(range(VECTORS), OF_EACH)
    return {f"t{t}": round(choose.uniform(0.1, 1.5), 6) for t in sorted(tasks)}


def terms_of(recipe: Mapping[str, float]) -> list[str]:
    return [f"+{coefficient}*{task}" for task, coefficient in recipe.items()]


def load(
    client: Client,
    url: str,
    users: int,
    requests: int,
    at_once: int,
    oracle: Oracle,
    pictures: Sequence[bytes],
) -> Load:
    """Users in turn ask about one picture each; every answer is checked."""
    token = client.issue_token("loader", "admin")["token"]
    before = _stored(client)
    for user in range(users):
        client.compose(f"u{user}", terms_of(recipe_of(user)))
    grown = (_stored(client) - before) / users
    encoded = [base64.b64encode(raw).decode() for raw in pictures]
    asks = [(n % users, n % len(pictures)) for n in range(requests)]
    started = time.perf_counter()
    told = asyncio.run(_sent(url, token, asks, encoded, at_once))
    seconds = time.perf_counter() - started
    wrong = sum(
        not oracle.is_right(recipe_of(user), picture, answer)
        for (user, picture), (_, answer) in zip(asks, told, strict=True)
    )
    cold = _cold(client, url, token, users, encoded[0])
    latencies = tuple(taken for taken, _ in told)
    return Load(users, requests, seconds, latencies, wrong, grown, cold)


async def _sent(
    url: str, token: str, asks: Sequence[tuple[int, int]], encoded: Sequence[str], at_once: int
) -> list[tuple[float, Any]]:
    """Seconds and answer of every request, at most `at_once` on the way."""
    gate = asyncio.Semaphore(at_once)
    headers = {"authorization": f"Bearer {token}"}
    limits = httpx2.Limits(max_connections=at_once)
    async with httpx2.AsyncClient(headers=headers, timeout=120, limits=limits) as http:

        async def one(user: int, picture: int) -> tuple[float, Any]:
            async with gate:
                started = time.perf_counter()
                body = {"user": f"u{user}", "inputs": [{"image": encoded[picture]}], "seconds": 60}
                found = await http.post(f"{url}/v1/predict", json=body)
                found.raise_for_status()
                return time.perf_counter() - started, found.json()["answers"][0]

        return await asyncio.gather(*(one(*ask) for ask in asks))


def _cold(client: Client, url: str, token: str, user: int, encoded: str) -> float:
    """A recipe that nobody asked before, from composing it to its answer."""
    started = time.perf_counter()
    client.compose(f"u{user}", terms_of(recipe_of(100_000 + user)))
    asyncio.run(_sent(url, token, [(user, 0)], [encoded], 1))
    return time.perf_counter() - started


def _stored(client: Client) -> int:
    """Bytes of the registry's tables; its log holds copies of pages for a while."""
    with closing(sqlite3.connect(client.home.path / "registry.sqlite")) as db:
        figures = [db.execute(f"PRAGMA page_{what}").fetchone()[0] for what in ("count", "size")]
    return math.prod(figures)


# -- the passes alone


def passes(oracle: Oracle, rounds: int, say: Callable[[int, int], None]) -> dict[str, float]:
    """Rows per second of one batch: one model for all rows by the dual forward, a loop over users
    with a model each, and all users mixed in one pass."""
    backbone, module = oracle.backbone, oracle.module
    items = [oracle.items[row % len(oracle.items)] for row in range(ROWS)]
    batch: Any = backbone.collate(items)
    recipes = [recipe_of(row) for row in range(ROWS)]
    module.load_tau(summed(recipes[0], oracle.taus))
    mixed = MixedEncoder(backbone.encoder, backbone.trainable, oracle.taus)
    runs = {
        "one model": lambda: _dual(module, batch),
        "mixed": lambda: mixed(batch, [(recipe, 1) for recipe in recipes]),
        "a loop over 8 users": lambda: [
            alone(module, batch[row : row + 1], recipes[row], oracle.taus) for row in range(8)
        ],
    }
    times = in_turns(runs, rounds, "cpu", say)
    rows = {"one model": ROWS, "mixed": ROWS, "a loop over 8 users": 8}
    return {name: rows[name] / found.median for name, found in times.items()}


@torch.no_grad()
def _dual(module: Any, batch: Any) -> torch.Tensor:
    return module.linearized(batch)


def bench_serving(
    client: Client, counts: Sequence[int], requests: int, at_once: int, rounds: int, say: Say
) -> dict[str, Any]:
    """On the cluster of a `populated` home; its server is started and stopped."""
    pictures = pictures_of(PICTURES)
    oracle = Oracle(client, pictures)
    say("passes without a server")
    torch.set_num_threads(1)
    alone = passes(oracle, rounds, lambda done, total: None)
    best = 3 / (2 + OF_EACH)
    url = client.serve(port=8311)["url"]
    loads = []
    for users in counts:
        say(f"{users} users, {requests} requests")
        found = load(client, url, users, requests, at_once, oracle, pictures)
        loads.append(found.facts())
    client.stop_serving()
    share = alone["mixed"] / alone["one model"]
    return {
        "vectors": VECTORS,
        "of_each": OF_EACH,
        "rows_per_second": alone,
        "share": share,
        "of_the_best": share / best,
        "at_once": at_once,
        "loads": loads,
    }


def pictures_of(count: int) -> list[bytes]:
    images_NHWC, _ = generate("digits", count, seed=7)
    return [_png(image_HWC) for image_HWC in images_NHWC]


def _png(image_HWC: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image_HWC).save(file, format="PNG")
    return file.getvalue()


def founded(folder: Path) -> Home:
    """A home with the embedded encoder and VECTORS made-up vectors, whose cluster does not run."""
    from cluster.learner import Learner

    home = Home(folder)
    folder.mkdir(parents=True, exist_ok=True)
    blobs = folder / "blobs"
    pictures = pictures_of(2 * PICTURES)
    base = Learner(str(folder)).describe_base("embedded")
    shard = store_shard(Blobs(blobs), pictures, [row == 0 for row in range(len(pictures))])
    populated(home, Settings(base=base, generic=shard, blobs=str(blobs)), pictures, VECTORS)
    return home


def bench_alone(
    counts: Sequence[int], requests: int, at_once: int, rounds: int, say: Say
) -> dict[str, Any]:
    """The whole of it in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        say("making vectors")
        client = Client(founded(Path(folder) / "home").path)
        client.up(cpus=2)
        try:
            return bench_serving(client, counts, requests, at_once, rounds, say)
        finally:
            client.down()


def written(found: Mapping[str, Any]) -> str:
    """As Markdown."""
    passes, loads = found["rows_per_second"], found["loads"]
    lines = [
        "# Asking over HTTP",
        "",
        f"Embedded encoder, {found['vectors']} made-up vectors, {found['of_each']} in every "
        "recipe, another recipe for every user. `tacl bench serve --out results/serving.md` makes "
        "this. Times are of the machine and what else ran on it; ratios are of one run.",
        "",
        f"## Passes without a server, {ROWS} rows, one thread",
        "",
        "| what | rows per second |",
        "|---|---|",
        *(f"| {name} | {rate:.1f} |" for name, rate in passes.items()),
        "",
        f"{ROWS} users in one pass reach {found['share']:.2f} of one model for all rows: "
        f"{found['of_the_best']:.2f} of 3/(2 + k), what products of every vector could reach.",
        "",
        f"## Requests of one picture, {found['at_once']} at once, one predictor",
        "",
        "| users | requests | per second | p50 ms | p95 ms | p99 ms | cold recipe ms | "
        "registry bytes per user | wrong answers |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in loads:
        times = (f"{1000 * one[name]:.0f}" for name in ("p50", "p95", "p99", "cold"))
        cells = (f"{one['users']}", f"{one['requests']}", f"{one['per_second']:.1f}", *times)
        lines.append(f"| {' | '.join(cells)} | {one['bytes_per_user']:.0f} | {one['wrong']} |")
    return "\n".join(lines) + "\n"
