"""Those who send whatever they can think of, many requests at once, beside some that are sound."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import random
import time
from collections.abc import Awaitable, Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from PIL import Image

from jobs.benchmarks.load import is_close, recipe_of, terms_of
from tests.stress.hostile.people import MODELS, error_of
from tests.stress.hostile.scene import Place
from tests.stress.hostile.told import Lines, Told
from tests.unit.cluster.data.test_expansion import of_a_list, of_one_text
from tests.unit.cluster.data.test_fuzz import PICTURE_KINDS, harmed, picture, table

AT_ONCE = 8  # requests of each of them
ODD_JSON = (
    b"[" * 100_000,
    b'{"inputs":' * 20_000,
    b"\xff\xfe{}",
    b'{"user": NaN}',
    b"9" * 1_000_000,
)
ODD_TERMS = (
    "+t0" * 60,
    "1e308*t0",
    "-nan*t1",
    "t0@v99999999999",
    "t0@v99999999999999999999",
    "../t0",
    "t0@champion@v1",
    "\x00",
)
ODD_OPTIONS = (
    {"steps": 1e12},
    {"batch": 1e12},
    {"base": "x"},
    {"learner": "os:system"},
    {"lr": "NaN"},
)
ODD_PATHS = (
    "/v1/tasks/..%2f..%2fetc%2fpasswd", "/static/../../../etc/passwd", "/v1/runs/" + "f" * 64,
    "/v1/tasks/%00", "/v1/compositions/" + "x" * 5000, "/v2/models/t0/infer", "//v1/status",
)  # fmt: skip
ODD_HEADERS = (  # bytes: no text; and names by which Ray's proxy is steered
    (b"x-request-id", b"\xff"), (b"x-request-id", b"x" * 5000),
    (b"x-request-disconnect-disabled", b"\xff"), (b"x-request-disconnect-disabled", b"?1"),
    (b"x-request-timeout-seconds", b"1e-9"), (b"serve-multiplexed-model-id", b"\xff"),
    (b"idempotency-key", b"\xff" * 90), (b"accept-encoding", b"\xff"), (b"x-long", b"x" * 60_000),
)  # fmt: skip
FORBIDDEN = (
    ("GET", "/v1/compositions/ann"), ("GET", "/v1/metrics"), ("GET", "/v1/accuracy?user=ann"),
    ("DELETE", "/v1/users/ann/tokens"), ("POST", "/v1/compositions/ann/cancel"),
    ("POST", "/v1/tasks/task0/cancel"), ("POST", "/v1/compositions/bob/update"),
)  # fmt: skip


Files = tuple[list[bytes], list[bytes]]  # large pictures, and what unpacks to more


class Attacker:
    def __init__(self, place: Place, name: str, http: httpx2.AsyncClient, files: Files) -> None:
        self.place, self.name, self.http = place, name, http
        self.chance = random.Random(name)
        self.large, self.bombs = files
        self.models: dict[str, int] = {}  # recipe, by digest
        self.accepted: dict[str, str] = {}
        self._lines = Lines(place.told(name))

    async def send(
        self, what: str, verb: str, path: str, forbidden: bool = False, **content: Any
    ) -> httpx2.Response | None:
        """`forbidden`: no success is right."""
        began, wrong = time.monotonic(), ""
        try:
            found = await self.http.request(verb, path, **content)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            found, status, cause = None, 0, type(error).__name__
        else:
            status, cause = found.status_code, error_of(found)
            wrong = f"{verb} {path} was answered" if forbidden and found.is_success else ""
        seconds = time.monotonic() - began
        self._lines.tell(Told(self.name, what, began, seconds, status, cause, wrong))
        return found

    async def ask(self, what: str, pictures: list[bytes], **fields: Any) -> httpx2.Response | None:
        inputs = [{"image": base64.b64encode(one).decode()} for one in pictures]
        return await self.send(what, "POST", "/v1/predict", json={"inputs": inputs} | fields)

    # -- sound

    async def composes(self) -> None:
        recipe = self.chance.randrange(MODELS)
        body = {"terms": terms_of(recipe_of(recipe))}
        found = await self.send("compose", "POST", "/v1/compositions", json=body)
        if found is not None and found.is_success:
            self.models[found.json()["digest"]] = recipe

    async def asks(self) -> None:
        number, began = self.chance.randrange(len(self.place.encoded)), time.monotonic()
        found = await self.ask("predict", [base64.b64decode(self.place.encoded[number])])
        if found is None or not found.is_success:
            return
        answer = found.json()
        recipe = self.models.get(answer["digest"])
        if recipe is not None and not is_close(
            self.place.expected[recipe][number], answer["answers"][0]
        ):
            wrong = "other probabilities"
            self._lines.tell(Told(self.name, "predict", began, 0, 200, wrong=wrong))

    async def looks(self) -> None:
        paths = ("/v1/status", "/v1/vectors", "/v1/interference", "/v1/tasks/t0", "/v1/ready", "/")
        await asyncio.gather(*(self.send("look", "GET", path) for path in paths))

    # -- too much

    async def large_ones(self) -> None:
        count = self.chance.choice((1, 1, 4, 64))
        await self.ask("large pictures", [self.chance.choice(self.large)] * count)

    async def many(self) -> None:
        await self.ask("64 pictures", [base64.b64decode(self.place.encoded[0])] * 64, seconds=60)

    async def leaves(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await self.many()

    async def floods(self) -> None:
        await asyncio.gather(*(self.send("flood", "GET", "/v1/status") for _ in range(80)))

    async def listens(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.gather(*(self._listens() for _ in range(12)))

    async def _listens(self) -> None:
        with contextlib.suppress(httpx2.HTTPError):
            async with self.http.stream("GET", "/v1/events") as stream:
                async for _ in stream.aiter_bytes():
                    pass

    async def long_recipe(self) -> None:
        body = {"terms": [f"{n + 1}*t{n % 8}" for n in range(1000)]}
        await self.send("long recipe", "POST", "/v1/compositions", json=body)

    # -- what is harmed, odd, or somebody else's

    async def harmed_pictures(self) -> None:
        kinds = [self.chance.choice(PICTURE_KINDS) for _ in range(4)]
        await self.ask("harmed pictures", [harmed(picture(kind), self.chance) for kind in kinds])

    async def uploads(self) -> None:
        kind = self.chance.choice(("pictures.parquet", "pictures.jsonl", "csv"))
        raw = table(kind, self.place.secret, self.chance)
        await self._submit(f"a.{kind.rpartition('.')[2]}", raw)

    async def bomb(self) -> None:
        await self._submit("bomb.parquet", self.chance.choice(self.bombs), forbidden=True)

    async def _submit(self, file: str, raw: bytes, forbidden: bool = False) -> None:
        name = f"{self.name}{self.chance.randrange(10**9)}"
        data = {"name": name, "options": json.dumps({"steps": 8, "refresh": "never"})}
        sent = {"data": data, "files": {"file": (file, raw)}}
        found = await self.send("upload", "POST", "/v1/tasks", forbidden, **sent)
        if found is not None and found.is_success:
            self.accepted[name] = found.json()["run_id"]
            self.place.keep(self.name, {"accepted": self.accepted})
            await self.send("cancel", "POST", f"/v1/tasks/{name}/cancel")

    async def options(self) -> None:
        odd = self.chance.choice(ODD_OPTIONS)
        data = {"name": "odd", "options": json.dumps(odd)}
        sent = {"data": data, "files": self.place.data_set(0)}
        await self.send("odd options", "POST", "/v1/tasks", True, **sent)
        body = {"name": "odd", "reference": self.chance.choice(("..", "passwd", "secret.png"))}
        await self.send("references", "POST", "/v1/references", True, json=body)

    async def strangers(self) -> None:
        headers = {"authorization": self.chance.choice(("", "Bearer x", "Basic eA==", "Bearer "))}
        verb, path = self.chance.choice((("POST", "/v1/tasks"), ("POST", "/v1/predict")))
        body = b"x" * (1 << self.chance.randint(1, 23))
        await self.send("stranger", verb, path, True, headers=headers, content=body)

    async def others(self) -> None:
        verb, path = self.chance.choice(FORBIDDEN)
        await self.send("somebody else's", verb, path, True)
        body = {"user": "ann", "inputs": [{"image": self.place.encoded[0]}]}
        await self.send("somebody else's", "POST", "/v1/predict", True, json=body)

    async def odd_json(self) -> None:
        path = self.chance.choice(("/v1/predict", "/v1/compositions", "/v1/making/recipe"))
        headers = {"content-type": "application/json"}
        raw = self.chance.choice(ODD_JSON)
        await self.send("odd JSON", "POST", path, True, content=raw, headers=headers)
        body = {"terms": [self.chance.choice(ODD_TERMS)]}
        await self.send("odd terms", "POST", "/v1/compositions", json=body)

    async def odd_paths(self) -> None:
        await self.send("odd paths", "GET", self.chance.choice(ODD_PATHS))

    async def odd_headers(self) -> None:
        header = self.chance.choice(ODD_HEADERS)
        path = self.chance.choice(("/v1/status", "/v1/health"))
        await self.send("odd headers", "GET", path, headers=[header])

    # -- below HTTP

    async def slow(self) -> None:
        """Headers that never end, and something that is no HTTP."""
        address = urlsplit(self.place.url)
        open_ones = []
        try:
            for number in range(40):
                pair = await asyncio.open_connection(address.hostname, address.port)
                pair[1].write(b"GET / HTTP/1.1\r\nx: " if number % 4 else bytes(range(256)) * 40)
                open_ones.append(pair)
            await asyncio.sleep(3)
        except OSError:
            await asyncio.sleep(0.5)
        finally:
            for _, writer in open_ones:
                writer.close()


def large_pictures() -> list[bytes]:
    """Of some kilobytes: the largest that is taken, and larger ones."""
    found = []
    for side, kind in ((6300, "PNG"), (6300, "GIF"), (6300, "TIFF"), (13_000, "PNG")):
        options = {"compression": "group4"} if kind == "TIFF" else {}
        Image.new("1", (side, side)).save(file := io.BytesIO(), kind, **options)
        found.append(file.getvalue())
    return found


def bombs(place: Place) -> list[bytes]:
    found = []
    for write in (of_one_text, of_a_list):
        write(path := place.folder / f"{write.__name__}.parquet")
        found.append(path.read_bytes())
    return found


ATTACKS: tuple[Callable[[Attacker], Awaitable[None]], ...] = (
    *(Attacker.composes, Attacker.asks, Attacker.asks, Attacker.looks),
    *(Attacker.large_ones, Attacker.many, Attacker.many, Attacker.leaves, Attacker.floods),
    *(Attacker.listens, Attacker.long_recipe, Attacker.harmed_pictures, Attacker.harmed_pictures),
    *(Attacker.uploads, Attacker.bomb, Attacker.options, Attacker.strangers, Attacker.others),
    *(Attacker.odd_json, Attacker.odd_paths, Attacker.odd_headers, Attacker.slow),
)


def attack(place: Place, on: Event, stop: Event) -> None:
    """mallory and eve, while `on` is set. What they send is made before they stand back: of what a
    busy machine leaves over it would take minutes."""
    files = large_pictures(), bombs(place)
    elsewhere()
    asyncio.run(_attack(place, on, stop, files))


def elsewhere() -> None:
    """Attackers sit at machines of their own: what they take of this one's processors they take
    from nobody. Linux weighs processes of different sessions as groups (autogroup), so that a
    process's niceness counts within its own session alone."""
    os.setsid()
    os.nice(19)
    with contextlib.suppress(OSError):  # a system without such groups
        Path("/proc/self/autogroup").write_text("19")


async def _attack(place: Place, on: Event, stop: Event, files: Files) -> None:
    async with contextlib.AsyncExitStack() as stack:
        attackers = []
        for name in ("mallory", "eve"):
            limits = httpx2.Limits(max_connections=200)
            http = httpx2.AsyncClient(
                base_url=place.url,
                headers=place.headers(name),
                timeout=90,
                limits=limits,
                trust_env=False,
            )
            await stack.enter_async_context(http)
            attackers.append(Attacker(place, name, http, files))
        while not stop.is_set():
            if not on.is_set():
                await asyncio.sleep(0.05)
                continue
            busy = [asyncio.create_task(_busy(one)) for one in attackers for _ in range(AT_ONCE)]
            while on.is_set() and not stop.is_set():
                await asyncio.sleep(0.05)
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)


async def _busy(attacker: Attacker) -> None:
    while True:
        await attacker.chance.choice(ATTACKS)(attacker)
