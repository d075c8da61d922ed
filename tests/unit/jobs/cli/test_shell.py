"""The command line in a shell: the home, help, completion, an interrupt."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from cluster.client.client import Client
from cluster.domain.operations import StartedCluster
from cluster.errors import exit_code
from jobs.cli import app, main
from tacl.errors import BadConfig, StorageUnavailable
from tests.support.command_line import Tacl, command_of, flags_of, ok


def test_the_home_may_be_named_before_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path | None] = []

    def client(home: Path | None) -> None:
        asked.append(home)
        raise BadConfig("no cluster")

    monkeypatch.setattr(app, "client", client)
    monkeypatch.setenv("TACL_HOME", "/elsewhere")
    for words in (
        ["status"],
        ["--home", "/a", "status"],
        ["--home", "/a", "status", "--home", "/b"],
    ):
        CliRunner().invoke(main.app, words)
    assert asked == [Path("/elsewhere"), Path("/a"), Path("/b")]


def test_flags_of_a_start_are_told_to_have_no_effect_on_what_runs(
    tacl: Tacl, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = StartedCluster(
        home="/a home",
        base="embedded",
        digest="ba5e",
        modality="image",
        generic_rows=7,
        address="127.0.0.1:1",
        pid=1,
        started=False,
    )
    monkeypatch.setattr(Client, "up", lambda *_, **__: found)
    told = ok(tacl("up", "--cpus", "3"))
    assert "--cpus had no effect, stop it first: tacl down --home '/a home'" in told
    assert "effect" not in ok(tacl("up"))
    ok(tacl("up", "--base", "hf:./gone"))  # what the home has may be gone, as for the client
    found = found.model_copy(update={"started": True})
    assert "effect" not in ok(tacl("up", "--cpus", "3"))


def test_flags_show_no_value_in_the_help(tacl: Tacl) -> None:
    for verb in ((), ("submit",), ("query",), ("users",), ("users", "issue"), ("bench",)):
        text = ok(tacl(*verb, "--help"))
        assert "bool" not in text
    assert "--skip-bad" in ok(tacl("submit", "--help"))


def test_lines_of_the_help_end_where_those_of_the_terminal_do(tacl: Tacl) -> None:
    assert "younger than a day, which may belong to a submission" in ok(tacl("gc", "--help"))
    assert (
        app.in_paragraphs("""One line
    of two.

    Another.""")
        == "One line of two.\n\nAnother."
    )


def test_brackets_of_a_form_are_no_markup_of_the_help(tacl: Tacl) -> None:
    for verb, form in (("compose", "NAME[@vN|@ALIAS]"), ("import", "OWNER/NAME[@REVISION]")):
        assert form in ok(tacl(verb, "--help"))


def test_a_shell_completes_verbs_flags_and_their_choices() -> None:
    def completed(words: str) -> list[str]:
        asked = {"_TACL_COMPLETE": "complete_bash", "COMP_WORDS": words}
        asked["COMP_CWORD"] = str(len(words.split()) - 1)
        program = "from jobs.cli.main import app; app(prog_name='tacl')"
        command = [sys.executable, "-c", program]
        found = subprocess.run(
            command, env=os.environ | asked, capture_output=True, text=True, check=False
        )
        return found.stdout.split()

    assert completed("tacl su") == ["submit"]
    assert completed("tacl submit --pen") == ["--penalty", "--penalty-weight"]
    assert completed("tacl compose ann --method t") == ["ties", "tsv"]


def test_a_shell_completes_names_of_tasks_and_users(
    tacl: Tacl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def completed(words: str) -> list[str]:
        asked = {"_TACL_COMPLETE": "complete_bash", "COMP_WORDS": words}
        asked["COMP_CWORD"] = str(len(words.split()) - 1)
        found = CliRunner().invoke(main.app, [], env=asked, prog_name="tacl")
        assert found.exception is None
        return found.output.split()

    for name in ("signs", "silk"):
        ok(tacl("submit", name, "--data", "data.csv", "--again", "--watch"))
    ok(tacl("compose", "alice", "+signs"))
    assert completed("tacl retry si") == ["signs", "silk"]
    assert completed("tacl wait silk sig") == ["signs"]
    assert completed("tacl compose alice +0.5*sil") == ["+0.5*silk"]
    assert completed("tacl query alice x --task sig") == ["signs"]
    assert completed("tacl evaluate al") == ["alice"]
    for user in ("ann", "anna"):
        ok(tacl("compose", user, "+signs"))
    assert completed("tacl evaluate ann") == ["ann", "anna"]
    assert completed("tacl retry nothing") == []
    monkeypatch.setattr(app, "client", Client)  # of a home where no cluster runs
    assert completed("tacl retry si") == []
    assert completed("tacl --home data.csv retry si") == []  # of one that cannot be read


def test_a_character_that_cannot_be_shown_is_told_by_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that the terminal lacks, or a byte of a file's name that is no text."""
    shown = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(shown, encoding="latin-1"))
    monkeypatch.setattr(main, "app", lambda: print("\xe9 \u65e5 \udce4", flush=True))
    main.main()
    assert shown.getvalue() == b"\xe9 \\u65e5 \\udce4\n"


@pytest.mark.parametrize(
    ("asked", "where", "said"),
    [
        (["wait"], "cluster.client.client.Client.wait", "detached; the work goes on"),
        (["evaluate", "alice"], "cluster.client.client.Client.evaluate", "detached; the work"),
        (["up"], "cluster.client.client.Client.up", "stopped\n"),
    ],
)
def test_an_interrupt_says_what_becomes_of_the_work(
    asked: list[str], where: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    done = CliRunner().invoke(main.app, [*asked, "--home", str(tmp_path)])
    assert done.exit_code == 130
    assert done.stderr.startswith(said)


def test_names_are_of_the_home_before_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Path | None]()

    def client(home: Path | None) -> NoReturn:
        asked.append(home)
        raise BadConfig("none is there")

    monkeypatch.setattr(app, "client", client)
    monkeypatch.setenv("TACL_HOME", "/elsewhere")
    words = {"COMP_WORDS": "tacl --home /a retry si", "COMP_CWORD": "4"}
    environment = {"_TACL_COMPLETE": "complete_bash", **words}
    CliRunner().invoke(main.app, [], env=environment, prog_name="tacl")
    assert asked == [Path("/a")]


def test_a_full_disk_behind_the_answer_is_a_refusal() -> None:
    program = (
        "from jobs.cli import main; from cluster.client.client import Client\n"
        "Client.logs = lambda *_: []; main.main()"
    )
    command = [sys.executable, "-c", program, "logs", "x", "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == exit_code(StorageUnavailable(""))
    assert json.loads(done.stderr)["message"].startswith("there is no room for what is written")


def test_an_interrupt_while_verbs_are_imported_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(name: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("jobs.cli.main")
    assert stop.value.code == 130
    assert stop.value.__suppress_context__


def test_only_what_asks_a_home_has_the_flag_for_it() -> None:
    for words in (["pretrain"], ["bench", "step"], ["bench", "scale"], ["restore"]):
        assert "--home" not in flags_of(command_of(words)[0])
    for words in (["status"], ["bench", "arrivals"]):
        assert "--home" in flags_of(command_of(words)[0])
