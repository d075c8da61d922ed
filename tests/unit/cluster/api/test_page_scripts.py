"""The scripts of the page, without a browser: slow lines, fields, times and what was removed."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import playwright
import pytest

from cluster.api import page

DOM = Path(__file__).parents[3] / "support" / "page_dom.mjs"
NODE = Path(inspect.getfile(playwright)).parent / "driver" / "node"  # that of Playwright
Run = Callable[[str], Any]
REFUSED = "const refused = (error) => [error.status, error.message];"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs lines of a module beside the scripts of the page; returns what they give to `told`."""
    shutil.copytree(page.STATIC, tmp_path / "page")
    shutil.copy(DOM, tmp_path / "page_dom.mjs")
    (tmp_path / "package.json").write_text('{"type": "module"}')

    def told(lines: str) -> Any:
        start = 'import { settled } from "./page_dom.mjs";\n'
        end = "console.log(JSON.stringify(await told()));\nprocess.exit();\n"
        (tmp_path / "main.js").write_text(start + lines + end)
        asked = [NODE, "main.js"]
        zone = os.environ | {"TZ": "Asia/Tokyo", "LC_ALL": "en_US.UTF-8"}
        ran = subprocess.run(asked, cwd=tmp_path, env=zone, capture_output=True, timeout=20)
        assert ran.returncode == 0, ran.stderr.decode()
        return json.loads(ran.stdout)

    return told


def answering(body: str) -> str:
    """Every request is answered with a stream that `body` fills; it fails if it is given up."""
    return f"""
        const api = await import("./page/api.js");
        {REFUSED}
        const pause = (ms) => new Promise((done) => setTimeout(done, ms));
        const bytes = (text) => new TextEncoder().encode(text);
        globalThis.fetch = async (path, {{ signal }}) => new Response(new ReadableStream({{
          async start(to) {{
            signal.addEventListener("abort", () => to.error(new Error("aborted")));
            {body}
          }} }}));
        const told = () => api.me().catch(refused);
    """


def test_a_request_without_an_answer_ends(run: Run) -> None:
    lines = f"""
        const api = await import("./page/api.js");
        {REFUSED}
        globalThis.fetch = (path, {{ signal }}) => new Promise((_, failed) =>
          signal.addEventListener("abort", () => failed(new Error("aborted"))));
        const form = new FormData();
        form.set("file", new Blob(["x".repeat(1_600_000)]), "a.csv");
        const told = () => Promise.all([api.me().catch(refused), api.submit(form).catch(refused)]);
    """
    short, long = (f"No answer within {seconds} seconds. Try again." for seconds in (90, 1300))
    assert run(lines) == [[0, short], [0, long]]


def test_an_answer_that_stops_is_given_up_and_one_that_is_slow_is_not(run: Run) -> None:
    assert run(answering('to.enqueue(bytes("{"));')) == [
        0,
        "No answer within 90 seconds. Try again.",
    ]
    slow = """
        for (const part of ['{"user"', ': ', '"ann"', '}']) {
          to.enqueue(bytes(part));
          await pause(50_000);
        }
        to.close();
    """
    assert run(answering(slow)) == {"user": "ann"}


def test_half_an_answer_is_none(run: Run) -> None:
    half = """to.enqueue(bytes('{"user": ')); to.close();"""
    assert run(answering(half)) == [0, "The answer cannot be read. Try again."]


COMPOSING = """
    const compose = await import("./page/compose.js");
    const form = document.querySelector("#compose form");
    compose.showTerms([{ name: "news", version: 1 }, { name: "trec", version: 1 }]);
    const [pick, sign, slide, size] = form.querySelector(".terms").children.flatMap(
      (line) => [line.children[0].children[0], ...line.children.slice(1)]);
    const seen = async () => {
      await settled();
      const text = (one) => form.querySelector(one).textContent;
      return [text("output"), form.querySelector(".use").disabled, text(".report")];
    };
    const type = (value, valid = true) => {
      Object.assign(size, { value, validity: { valid } });
      size.dispatchEvent(new Event("input"));
      return seen();
    };
"""


def test_a_coefficient_that_is_no_number_is_an_error(run: Run) -> None:
    told = "const told = async () => [await type('2'), await type(''), await type('11', false),"
    told += "await type('0.5'), size.attributes['aria-invalid'], await type('0')];"
    good, empty, beyond, again, invalid, nothing = run(COMPOSING + told)
    assert good == ["+2*news", False, ""]
    for found in (empty, beyond):
        assert found[:2] == ["+?*news", True]
        assert found[2] == "The coefficient of news is no number from 0 to 1,000,000: type one."
    assert (again, invalid, nothing[0]) == (["+0.5*news", False, ""], "false", "nothing picked")


def test_times_name_the_zone_of_the_reader(run: Run) -> None:
    lines = """
        const { clock, day } = await import("./page/dom.js");
        const told = () => [clock(1e9), day(1e9), clock(Date.now() / 1000), day(null)];
    """
    at, on, today, never = run(lines)
    assert "2001" in at
    assert "10:46" in at
    assert all("GMT+9" in one for one in (at, on, today))
    assert "GMT" not in never
    scripts = {file.name for file in page.STATIC.glob("*.js") if "toLocale" in file.read_text()}
    assert scripts == {"compose.js", "dom.js"}  # the one a number


def test_a_task_that_was_removed_leaves_the_lists(run: Run) -> None:
    lines = """
        const api = await import("./page/api.js"), tasks = await import("./page/tasks.js");
        const compose = await import("./page/compose.js");
        const task = (name) => ({ name, version: 1, state: "ready", created: 1 });
        const all = { version: "1", whole: true, gone: [], more: false, work: [] };
        const answers = [
          { ...all, tasks: [task("news"), task("trec")] },
          { ...all, whole: false, gone: ["news"], tasks: [] },
        ];
        globalThis.fetch = async () => new Response(JSON.stringify(answers.shift()));
        const look = async () => {
          const found = await api.status();
          tasks.show(found.tasks, found.work);
          compose.showTerms(found.tasks);
          const list = document.querySelector("#tasks").querySelector("ul.tasks");
          const terms = document.querySelector("#compose form").querySelector(".terms");
          return [list, terms].map((one) => one.children.length);
        };
        const told = async () => [await look(), await look()];
    """
    assert run(lines) == [[2, 2], [1, 1]]


def test_an_evaluation_is_waited_for_also_where_the_line_breaks(run: Run) -> None:
    lines = """
        const form = document.querySelector("#compose form");
        const compose = await import("./page/compose.js");
        compose.take({ user: "ann", method: "ties", terms: [] });
        const waits = { run_id: "9f", result: null }, done = { result: { absolute: 0.5 } };
        const lost = new Error("the line is down"), down = [503, {}], unseen = [404, {}];
        const answers = [[200, waits], lost, lost, down, down, unseen, [200, done]];
        globalThis.fetch = async () => {
          const [answer] = answers.splice(0, 1);
          if (answer instanceof Error) throw answer;
          return new Response(JSON.stringify(answer[1]), { status: answer[0] });
        };
        const told = async () => {
          form.querySelector(".measure").dispatchEvent(new Event("click"));
          for (let i = 0; i < 20; i++) await settled();
          return [form.querySelector(".told").textContent, answers.length];
        };
    """
    said, left = run(lines)
    assert "It was measured" in said
    assert left == 0


def test_a_picture_that_was_asked_about_is_held_until_it_is_drawn(run: Run) -> None:
    lines = """
        globalThis.FileReader = class {
          readAsDataURL() { this.result = "data:image/png;base64,YQ=="; this.onload(); }
        };
        globalThis.FormData = class {};
        const held = new Set();
        URL.createObjectURL = (file) => (held.add(`blob:${file.name}`), `blob:${file.name}`);
        URL.revokeObjectURL = (url) => held.delete(url);
        globalThis.fetch = async () => { throw new Error("the line is down"); };
        const drawn = [], create = document.createElement;
        document.createElement = (tag) => {
          const made = Object.assign(create(tag), { onload: null, onerror: null });
          if (tag === "img") drawn.push(made);
          return made;
        };
        const ask = await import("./page/ask.js");
        ask.reads("image");
        const section = document.querySelector("#try"), form = section.querySelector("form");
        const input = section.querySelector(".drop").querySelector("input");
        input.files = ["a.png", "b.png"].map((name) => ({ type: "image/png", name }));
        const told = async () => {
          input.dispatchEvent(new Event("change"));
          const chosen = held.size;
          form.dispatchEvent(new Event("submit"));
          await settled();
          const asked = held.size;
          drawn[0].onload();
          drawn[1].onerror();
          return [chosen, asked, held.size];
        };
    """
    assert run(lines) == [0, 2, 0]
