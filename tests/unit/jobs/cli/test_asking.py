"""What the command line asks a person, and says of what was chosen."""

from __future__ import annotations

import getpass
import sys
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.errors import exit_code
from jobs.cli import app, asking, main
from tacl.errors import BadConfig
from tests.support.command_line import Tacl, ok
from tests.support.fakes import new_home


def test_init_asks_what_up_needs(tmp_path: Path) -> None:
    """Three questions, but those whose flags are given, and for data that the embedded model needs
    none of."""
    home = ("--home", str(tmp_path / "new"))
    for given, answers in (((), "embedded\n2\n"), (("--base", "embedded"), "2\n")):
        told = CliRunner().invoke(main.app, ["init", *home, *given], input=answers)
        assert "wrote" in ok(told)
        assert "CPUs to use" in told.stderr
        assert "CPUs to use" not in told.stdout  # which is for what was done alone
        assert "data" not in told.output
        file = tmp_path / "new" / "tacl.toml"
        assert file.read_text().splitlines()[1:] == ['base = "embedded"', "cpus = 2"]
        file.unlink()
    given = ("--base", "hf:some/encoder", "--generic", "", "--cpus", "1")
    refused = CliRunner().invoke(main.app, ["init", *home, *given])
    assert refused.exit_code == exit_code(BadConfig(""))
    assert "needs generic samples" in refused.stderr


def test_what_init_says_starts_that_home(tmp_path: Path) -> None:
    home, answers = str(tmp_path / "a home"), ("--base", "embedded", "--cpus", "1")
    told = ok(CliRunner().invoke(main.app, ["init", "--home", home, *answers]))
    assert told.endswith(f"start the cluster: tacl up --home '{home}'\n")


def test_init_asks_nothing_of_a_home_that_is_there(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home").path
    refused = CliRunner().invoke(main.app, ["init", "--home", str(home)], input="embedded\n2\n")
    assert refused.stderr.startswith(f"error: {home} is a home already")
    assert refused.exit_code == exit_code(BadConfig(""))


def test_init_asks_again_where_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And writes where things are, so that `up` finds them from any folder."""
    (tmp_path / "encoder").mkdir()
    (tmp_path / "texts.csv").write_text("text\na\n")
    monkeypatch.chdir(tmp_path)
    answers = ("embeded", "hf:./encodr", "hf:encoder", "text.csv", "texts.csv", "0", "2")
    told = CliRunner().invoke(main.app, ["init", "--home", "new"], input="\n".join(answers) + "\n")
    ok(told)
    for said in ("no scheme 'embeded'", "encodr", "text.csv: there is no file", "'0' is no number"):
        assert said in " ".join(told.output.split())
    written = (tmp_path / "new" / "tacl.toml").read_text()
    here = [f'base = "hf:{tmp_path}/encoder"', f'generic = "{tmp_path}/texts.csv"', "cpus = 2"]
    assert written.splitlines()[1:] == here


def test_a_submit_tells_what_is_shared(tacl: Tacl) -> None:
    def told(name: str, *how: str) -> str:
        found = ok(
            tacl("submit", name, "--data", "data.csv", "--again", "--refresh", "never", *how)
        )
        return " ".join(found.split())

    assert "rows are shared, unlabelled, with other tasks;" in told("faces")
    assert "none of them is shared;" in told("own", "--share", "none")
    assert "rows are shared, and no row;" in told("stated", "--share", "statistics")
    me = getpass.getuser()
    assert f"with the other tasks of {me};" in told(f"{me}.mine", "--private")
    theirs = told("ann.hers", "--private", "--owner", "ann", "--watch")
    assert "ann.hers: only ann can see more" in theirs


def test_what_is_erased_for_ever_is_asked_about_on_a_terminal(
    tacl: Tacl, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(tacl("submit", "faces", "--data", "data.csv", "--refresh", "never"))
    monkeypatch.setattr(asking, "_is_terminal", lambda stream: True)
    refused = tacl("remove", "faces", "--purge")  # nobody answers
    assert refused.exit_code == 1
    assert "Erase them?" in refused.stderr
    monkeypatch.setattr(asking, "_is_terminal", lambda stream: False)
    assert "its bytes are erased" in ok(tacl("remove", "faces", "--purge"))


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_only_who_can_answer_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Terminal()
    ended.close()
    for stdin, answers in ((Terminal(), True), (None, False), (ended, False), (StringIO(), False)):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stdin)
            assert asking.is_person() is answers


@pytest.mark.parametrize("shows", [True, False])
def test_a_question_is_on_the_terminal_wherever_stderr_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shows: bool
) -> None:
    monkeypatch.setattr(asking, "TERMINAL", str(tmp_path / "terminal"))
    monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
    stderr = Terminal() if shows else StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    assert asking.confirmed("Erase them?")
    assert ("Erase them?" in stderr.getvalue()) == shows
    assert shows or "Erase them?" in (tmp_path / "terminal").read_text()


def test_a_file_that_cannot_be_read_is_a_refusal_where_the_command_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything else is a defect, with its trace."""
    monkeypatch.chdir(tmp_path)
    here, elsewhere = tmp_path / "data" / "a.csv", tmp_path / "elsewhere"
    for named in ("data", "data/a.csv", Path("data/a.csv/b"), ["x", str(here)]):
        assert app.is_named(str(here), [None, 3, named])
    (tmp_path / "link").symlink_to("data")
    assert app.is_named(str(here), ["link"])
    assert not app.is_named(str(elsewhere), ["data", "", None])
    assert not app.is_named(None, ["data"])


def test_a_home_that_cannot_be_read_is_a_refusal_where_nobody_names_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TACL_HOME", raising=False)
    (tmp_path / ".tacl").write_text("no folder")
    refused = CliRunner().invoke(main.app, ["status"])
    assert refused.exit_code == exit_code(BadConfig(""))
    assert refused.stderr == f"error: {tmp_path}/.tacl/lock: Not a directory\n"
