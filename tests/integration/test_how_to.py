"""Blocks of docs/how-to on a real cluster, with an encoder and data of a few kilobytes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.domain.work import Result, TrainWork, Work
from cluster.learner.learner import Learner
from cluster.runtime import launch
from jobs.benchmarks.serving import free_port
from jobs.cli import main
from tests.support import bases
from tests.support.blocks import blocks
from tests.support.places import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.timeout(600)]
CLASSES = ("business", "sports", "world")
OWN_DATA, HTTP = "docs/how-to/own-data.md", "docs/how-to/http.md"
URL = "http://127.0.0.1:8300"


class Brief(Learner):
    """Trains for five steps, whatever the rule says."""

    def work(self, work: Work) -> Result:
        if isinstance(work, TrainWork):
            options = work.submission.options.model_copy(update={"steps": 5, "engine": "plain"})
            submission = work.submission.model_copy(update={"options": options})
            work = work.model_copy(update={"submission": submission})
        return super().work(work)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What the examples take for granted; `tacl down` when one of them fails before it."""
    for name in ("models/minilm", "data/reviews", "data/news", "data/trec"):
        (tmp_path / name).mkdir(parents=True)
    bases.bert(tmp_path / "models/minilm")
    for name in ("reviews", "news", "trec"):
        rows = [
            {"text": f"{name} {row} sat on the mat", "label": CLASSES[row % 3]} for row in range(90)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"data/{name}/rows.jsonl").write_text(lines)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the learner below is found by Ray's workers
    monkeypatch.setattr(launch, "HEAD", (*launch.HEAD, "--learner", f"{__name__}:Brief"))
    yield tmp_path
    tacl("tacl down")


def tacl(line: str) -> str:
    """What a command prints. Its comment is none of it."""
    found = CliRunner().invoke(main.app, shlex.split(line, comments=True)[1:])
    assert found.exit_code == 0, f"{line}\n{found.output}"
    return found.stdout


def test_the_command_line(folder: Path) -> None:
    (example,) = blocks("sh", OWN_DATA)
    said = {line: tacl(line) for line in example.code.splitlines()}
    asked, evaluated = (next(t for c, t in said.items() if v in c) for v in ("query", "evaluate"))
    assert re.search("news|trec", asked)
    assert re.search("|".join(CLASSES), asked)
    assert "news" in evaluated
    assert "trec" in evaluated


def test_python_here_and_over_http(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here,), (over_http, a_table) = blocks("python", OWN_DATA), blocks("python", HTTP)
    here, down = here.code.rsplit("\n", 2)[:2]
    known: dict[str, Any] = {}
    exec(compile(here, OWN_DATA, "exec"), known)
    assert re.search("task='(news|trec)' label=", capsys.readouterr().out)
    (serving,) = blocks("sh", HTTP)
    port = free_port()
    serve, issue = (line.partition("#")[0] for line in serving.code.splitlines())
    tacl(f"{serve} --port {port}")
    (token,) = re.findall(r"[\w-]{43}", tacl(issue))

    def asked(code: str) -> str:
        assert URL in code
        at_port = code.replace(URL, f"http://127.0.0.1:{port}")
        exec(compile(at_port.replace('"..."', repr(token)), HTTP, "exec"), {})
        return capsys.readouterr().out

    told = asked(over_http.code)
    assert "'news': [(" in told
    assert "'trec'" not in told
    table = asked(a_table.code).splitlines()
    assert len(table) == 3  # a header and a line for each question
    assert all("news" in line for line in table[1:])
    exec(compile(down, OWN_DATA, "exec"), known)
