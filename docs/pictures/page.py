"""The pictures of the page in docs/: a home of its own, its cluster and server, a real Chromium.

`python docs/pictures/page.py` takes some minutes. What is seen is what was trained for it.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from cluster import Client
from jobs.benchmarks.serving import free_port
from tacl import embedded
from tacl.embedded.parquet import png
from tests.support.tab import FLAGS, says

HERE = Path(__file__).parent
TASKS, LAST, USER = ("signs", "land"), "faces", "alice"
MOST = 150 << 10  # bytes of a picture


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        client = Client(Path(place) / "home")
        try:
            url, token = served(client)
            with sync_playwright() as playwright:
                path = shutil.which("chromium") or shutil.which("chromium-browser")
                browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
                beginning(tab(browser, url, token, 768, 1000, "dark"))
                trained(client, Path(place))
                composing(tab(browser, url, token, 768, 1180))
                asking(tab(browser, url, token, 390, 1150), Path(place))
                overview(tab(browser, url, token, 1920, 1080), client, Path(place))
                browser.close()
        finally:
            client.down()


def served(client: Client) -> tuple[str, str]:
    """Where the page is, and a token: of a home without tasks."""
    client.up("embedded")
    token = client.issue_token(USER, "submitter").token
    assert token is not None  # it is new
    return client.serve(port=free_port(), cpus=0.5).url, token


def trained(client: Client, folder: Path) -> None:
    """Tasks that arrive one after another, and after each the model of all."""
    for number, task in enumerate(TASKS, 1):
        submit(client, folder, task, steps=40)
        client.wait()
        client.compose(USER, [f"+{name}" for name in TASKS[:number]])
        client.evaluate(USER)


def submit(client: Client, folder: Path, task: str, steps: int) -> None:
    embedded.write_parquet(task, folder / task, train_rows=300, test_rows=100, seed=0)
    client.submit(task, folder / task, steps=steps)


def tab(browser: Any, url: str, token: str, width: int, height: int, colours: str = "light") -> Any:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours)
    page.set_default_timeout(120_000)
    page.goto(url)
    page.locator("#sign-in input").fill(token)
    page.locator("#sign-in button").click()
    says(page, "#link", "live")
    return page


def beginning(page: Any) -> None:
    says(page, ".empty", "No task yet")
    says(page, "#accuracy .scroll", "No model has been measured")
    kept(page, "page-empty")


def overview(page: Any, client: Client, folder: Path) -> None:
    """With a task that trains."""
    page.locator("#accuracy table").wait_for()
    submit(client, folder, LAST, steps=120)
    says(page, f"#task-{LAST}", " left")
    kept(page, "page-1920")


def composing(page: Any) -> None:
    page.get_by_role("button", name="Pick all").click()
    page.get_by_role("button", name="Preview its accuracy").click()
    page.locator(".foreseen table").wait_for()
    at(page, "compose")
    kept(page, "page-768")


def asking(page: Any, folder: Path) -> None:
    images, _ = embedded.generate("signs", 3, seed=77)
    (folder / "sign.png").write_bytes(png(images[-1]))
    page.locator("#try input[type=file]").set_input_files(folder / "sign.png")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("Why?").click()
    says(page, "#try table", "together")
    at(page, "try")
    kept(page, "page-390")


def at(page: Any, section: str) -> None:
    page.evaluate(f"location.hash = '{section}'")
    page.wait_for_timeout(500)


def kept(page: Any, name: str) -> None:
    file = HERE / f"{name}.webp"
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(file, quality=82, method=6)
    if file.stat().st_size > MOST:
        raise ValueError(f"{file} has {file.stat().st_size} bytes; at most {MOST} are kept")


if __name__ == "__main__":
    main()
