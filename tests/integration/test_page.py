"""The page in a real Chromium: what a person sees, types and is told."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Form, Request, UploadFile
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.testclient import TestClient
from PIL import Image

from cluster.api import page as assets
from tests.support.api_scene import scene
from tests.support.listening import serving
from tests.support.needs import need

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
ADVICE = "install a Chromium, such as Debian's package chromium"
EVIL = "<img src=x onerror=document.title='run'>"


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


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    path = need("browser", shutil.which("chromium") or shutil.which("chromium-browser"), ADVICE)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    api = FakeApi()
    with serving(api.app) as api.url:
        yield api


class Seen:
    """A tab, what it loaded, and what went wrong in it."""

    def __init__(self, chromium: Any, url: str, **options: Any) -> None:
        self.url = url
        self.context = chromium.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(15000)
        self.urls: list[str] = []
        self.errors: list[str] = []
        self.blocked: list[str] = []  # by the policy
        self.page.on("request", lambda request: self.urls.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: self.blocked.extend(_blocked(line.text)))
        self.page.goto(url)

    def close(self) -> None:
        """Nothing went wrong in it, and nothing came from elsewhere."""
        self.context.close()
        assert self.errors + self.blocked == []
        assert [u for u in self.urls if not u.startswith((self.url, "blob:", "data:"))] == []


def _blocked(line: str) -> list[str]:
    return [line] if "Content Security Policy" in line else []


@pytest.fixture
def open_page(chromium: Any, api: FakeApi) -> Iterator[Any]:
    opened: list[Seen] = []

    def open_it(**options: Any) -> Any:
        opened.append(Seen(chromium, api.url, **options))
        return opened[-1].page

    yield open_it
    for one in opened:
        one.close()


def says(page: Any, selector: str, words: str) -> None:
    page.locator(selector).filter(has_text=words).first.wait_for()


# -- what happens is seen


def test_tasks_are_seen_as_they_arrive_and_train(api: FakeApi, open_page: Any) -> None:
    page = open_page()
    says(page, ".empty", "No task yet")
    says(page, "#link", "live")
    api.task("digits", "queued", reason="waits for 1 CPU")
    says(page, "#task-digits", "waits for 1 CPU")
    api.task("digits", "training")
    says(page, "#task-digits .progress", "starting")
    api.task("digits", "training", step=30, steps=120, loss=1.25)
    says(page, "#task-digits", "30 of 120 steps, loss 1.25")
    assert page.locator("#task-digits progress").get_attribute("value") == "30"
    api.ready("digits")
    says(page, "#task-digits", "50.0 → 81.0 %")
    api.task("signs", "failed", reason="the loss is not a number")
    says(page, "#task-signs.failed", "not a number")
    assert page.locator("#compose .terms li").count() == 1  # of signs there is nothing to compose


def test_what_people_named_is_never_markup(api: FakeApi, open_page: Any) -> None:
    api.task("x", "failed", reason=EVIL)
    page = open_page()
    says(page, "#task-x", EVIL)
    assert page.title() == "TACL"


def test_matrices(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    api.findings = [finding("digits", "signs", "digits disturbs signs")]
    api.rows = [
        {"terms": ["+digits@v1"], "label": "", "at": 1e9, "accuracies": {"digits": 0.9}},
        {
            "label": "",
            "terms": ["+digits@v1", "+signs@v1"],
            "at": 2e9,
            "accuracies": {"digits": 0.8, "signs": 0.6},
        },
    ]
    page = open_page()
    page.locator("#heat .main-svg").first.wait_for()  # drawn, under the policy
    assert page.locator("#heat .heatmaplayer image").count() == 1
    says(page, "#interference .findings", "digits disturbs signs")
    page.get_by_text("As numbers").click()
    numbers = page.locator("#interference table tbody td").all_inner_texts()
    assert numbers == ["1.00", "0.60", "0.60", "1.00"]
    assert page.locator("#accuracy tbody td").all_inner_texts() == [
        *("90.0", "", "90.0"),
        *("80.0", "60.0", "70.0"),
    ]


def finding(first: str, second: str, message: str) -> dict[str, Any]:
    return {"kind": "pair", "first": first, "second": second, "value": 0.4, "message": message}


# -- a model, by keyboard alone


def test_compose_with_the_keyboard(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs", "faces")
    api.findings = [finding("digits", "signs", "digits disturbs signs")]
    page = open_page()
    page.locator("#compose .terms li").nth(2).wait_for()
    page.locator("#compose .terms input[type=checkbox]").first.focus()
    keys = page.keyboard
    keys.press("Space")  # +digits
    for key in ("Tab", "Tab", "ArrowLeft", "ArrowLeft"):  # its sign, its slider: 0.9
        keys.press(key)
    for key in ("Tab", "Tab", "Tab", "Enter"):  # its number, the next task, its sign
        keys.press(key)
    says(page, "#compose output", "+0.9*digits −signs")
    says(page, "#compose .report", "digits disturbs signs")
    says(page, "#compose .report", "signs changes the answers for digits by 0.60")
    page.locator("#compose .use").focus()
    keys.press("Enter")
    says(page, "#compose .told", "ab12ab12ab12")
    page.get_by_role("button", name="Measure it on test rows").click()
    says(page, "#compose .told", "being measured")
    says(page, "#compose .told", "was measured")
    recipe = {"user": None, "terms": ["+0.9*digits", "-signs"]}
    assert api.asked == [("compose", recipe), ("evaluate", "me"), ("evaluate", "me")]


def test_nothing_picked_is_no_model(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs")
    page = open_page()
    page.get_by_role("button", name="Pick all").click()
    says(page, "#compose output", "+digits +signs")
    for box in page.locator("#compose .terms input[type=checkbox]").all():
        box.uncheck()
    assert page.locator("#compose .use").is_disabled()
    says(page, "#compose output", "nothing picked")


# -- ask it


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, "PNG")
    return file.getvalue()


def test_a_picture_is_asked_about(api: FakeApi, open_page: Any) -> None:
    import base64

    api.ready("digits")
    page = open_page()
    page.get_by_role("button", name="Ask", exact=True).click()
    says(page, "#try .told.error", "Choose a picture")
    assert not page.locator("#try textarea").is_visible()
    file = {"name": "p.png", "mimeType": "image/png", "buffer": png()}
    page.locator("#try input[type=file]").set_input_files(file)
    page.get_by_role("button", name="Ask", exact=True).click()
    says(page, "#try .answer h3", "digits: zero")
    sides = [side.all_inner_texts() for side in page.locator("#try .beside > div").all()]
    (own,), (base,) = sides
    assert own == "me’s model\nzero digits\n0.75\nstop signs\n0.20\nnine digits\n0.05"
    assert base == "the base alone\nnine digits\n0.60\nzero digits\n0.30\nstop signs\n0.10"
    ((_, asked),) = api.asked
    assert base64.b64decode(asked["inputs"][0]["image"]) == png()


def test_a_text_is_asked_about(api: FakeApi, open_page: Any) -> None:
    api.modality = "text"
    page = open_page()
    page.locator("#try textarea").fill("Stocks fell on Monday.")
    page.get_by_role("button", name="Ask", exact=True).click()
    says(page, "#try .answer", "zero")
    ((_, asked),) = api.asked
    assert asked["inputs"] == [{"text": "Stocks fell on Monday."}]
    assert not page.locator("#try .drop").is_visible()


# -- submit, sign in, small screens, a cluster that goes away


def test_submit(api: FakeApi, open_page: Any) -> None:
    api.ready("digits")
    page = open_page()
    page.get_by_text("Submit a task").click()
    csv = {"name": "x.csv", "mimeType": "text/csv", "buffer": b"text,label\na,b\n"}
    for name in ("digits", "signs"):
        page.locator("#submit input[name=name]").fill(name)
        page.locator("#submit input[type=file]").set_input_files(csv)
        page.locator("#submit button").click()
        says(page, "#submit .told", "there is a task" if name == "digits" else "signs is queued")
        page.locator("#submit input[name=skip_bad]").check()
    says(page, "#submit .told", "read as Latin-1")
    assert api.asked == [("submit", ("signs", "x.csv", 15, {"skip_bad": True}))]
    says(page, "#task-signs", "queued")


def test_sign_in(api: FakeApi, open_page: Any) -> None:
    api.token = "secret"
    page = open_page()
    page.locator("#sign-in input").fill("wrong")
    page.locator("#sign-in button").click()
    says(page, "#sign-in .error", "No such token")
    assert not page.locator("#main").is_visible()
    page.locator("#sign-in input").fill("secret")
    page.locator("#sign-in button").click()
    says(page, "#link", "live")
    assert not page.locator("#sign-in").is_visible()
    assert page.locator("#main").is_visible()
    says(page, "#who", "signed in as me (submitter)")
    page.get_by_role("button", name="Sign out").click()
    page.locator("#sign-in").wait_for()
    assert not page.locator("#main").is_visible()


def test_who_may_not_submit_is_not_asked_to(api: FakeApi, open_page: Any) -> None:
    api.role = "user"
    page = open_page()
    says(page, "#who", "open to all")
    says(page, ".empty", "No task yet")
    page.locator("#tasks details").wait_for(state="hidden")
    assert not page.get_by_text("Submit one below").is_visible()
    assert not page.get_by_role("button", name="Sign out").is_visible()


def test_the_model_that_there_is_is_ticked(api: FakeApi, open_page: Any) -> None:
    api.ready("digits", "signs", "faces")
    recipe = [("digits", 1.0), ("signs", -0.5)]
    terms = [{"vector": {"task": task}, "coefficient": factor} for task, factor in recipe]
    api.models["me"] = {"user": "me", "digest": "cd", "method": "sum", "recipe": terms}
    api.models["eve"] = {"user": "eve", "digest": "ef", "method": "ties", "terms": ["+a", "+b"]}
    page = open_page()
    says(page, "#compose output", "+digits −0.5*signs")
    ticked = [box.is_checked() for box in page.locator("#compose .terms [type=checkbox]").all()]
    assert ticked == [True, True, False]
    api.changes += 1
    page.locator("#compose .terms [type=checkbox]").nth(2).check()
    says(page, "#compose output", "+digits −0.5*signs +faces")  # what a person ticks stays
    page.locator("#compose input[name=user]").fill("eve")
    page.locator("#compose input[name=user]").press("Tab")
    says(page, "#compose .told", "made by ties of +a +b")
    assert page.locator("#compose output").inner_text() == "nothing picked"


def test_a_phone(api: FakeApi, open_page: Any) -> None:
    """Nothing is wider than the screen; what is wide scrolls inside itself."""
    names = [f"a-task-with-a-long-name-{i}" for i in range(8)]
    api.ready(*names)
    api.rows = [{"terms": names, "label": "", "at": 1e9, "accuracies": dict.fromkeys(names, 0.9)}]
    page = open_page(viewport={"width": 360, "height": 740}, has_touch=True)
    page.locator("#heat .main-svg").first.wait_for()
    page.locator("#accuracy table").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for link in page.locator("nav a").all():
        box = link.bounding_box()
        assert box["x"] + box["width"] <= 360  # none is cut
    year = page.evaluate("new Date(1e12).toLocaleDateString([], {dateStyle: 'short'})")
    says(page, "#accuracy small", year)
    boxes = page.locator("button:visible, summary:visible").all()
    assert min(box.bounding_box()["height"] for box in boxes) >= 24  # of a finger


def test_a_cluster_that_goes_away_is_said(api: FakeApi, open_page: Any) -> None:
    page = open_page()
    says(page, "#link", "live")
    page.context.set_offline(True)
    page.evaluate("document.dispatchEvent(new CustomEvent('composed'))")
    says(page, "#link.lost", "does not answer")


# -- with the real routes and the real coordinator


def test_a_visit(chromium: Any, tmp_path: Path) -> None:
    """Sign in, submit, watch, compose, measure, ask."""
    app, service = scene(tmp_path / "home", ann="submitter")
    rows = ["text,label", *(f"sentence {i},{'ab'[i % 2]}" for i in range(40))]
    csv = {"name": "x.csv", "mimeType": "text/csv", "buffer": "\n".join(rows).encode()}
    with serving(app) as url:
        seen = Seen(chromium, url)
        page = seen.page
        page.locator("#sign-in input").fill("token of ann")
        page.locator("#sign-in button").click()
        says(page, "#who", "signed in as ann (submitter)")
        says(page, ".empty", "No task yet")
        page.get_by_text("Submit a task").click()
        for name in ("letters", "x/y"):
            page.locator("#submit input[name=name]").fill(name)
            page.locator("#submit input[type=file]").set_input_files(csv)
            page.locator("#submit button").click()
            if name == "letters":
                says(page, "#submit .told", "letters is queued")
        assert page.locator("#submit input:invalid").count() == 1  # a name with a slash
        says(page, "#task-letters", "50.0 → 90.0 %")
        page.locator("#heat .main-svg").first.wait_for()
        page.get_by_role("button", name="Pick all").click()
        page.get_by_role("button", name="Use this model").click()
        says(page, "#compose .told", "This is ann’s model now")
        page.get_by_role("button", name="Measure it on test rows").click()
        says(page, "#accuracy tbody", "88.0")
        page.locator("#try textarea").fill("Is it a letter?")
        page.get_by_role("button", name="Ask", exact=True).click()
        says(page, "#try .beside", "0.75")
        seen.close()
    (question,) = service.questions
    assert question.inputs == ["Is it a letter?"]
    assert [str(term.vector.task) for term in question.model.terms] == ["letters"]


# -- the files


def test_the_files_and_their_policy() -> None:
    client = TestClient(FakeApi().app)
    home = client.get("/")
    assert home.headers["content-type"].startswith("text/html")
    policy = home.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name in ("page/main.js", "page/page.css", "page/icon.svg", "page/plotly.min.js"):
        found = client.get(f"/{name}")
        assert found.status_code == 200
        assert found.headers["content-security-policy"] == policy
        assert found.headers["x-content-type-options"] == "nosniff"
    assert client.get("/page/__init__.py").status_code == 404
    assert client.get("/page/%2e%2e/__init__.py").status_code == 404
    unchanged = client.get("/page/main.js", headers={"if-none-match": etag(client)})
    assert unchanged.status_code == 304


def etag(client: TestClient) -> str:
    return client.get("/page/main.js").headers["etag"]


def test_the_plots_travel_compressed() -> None:
    client = TestClient(FakeApi().app)
    plain = client.get("/page/plotly.min.js", headers={"accept-encoding": "identity"})
    packed = client.get("/page/plotly.min.js")
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content  # unpacked by the client
    assert len(plain.content) > 1e6
