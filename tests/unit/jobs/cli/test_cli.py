"""The command line over the real coordinator in this process: what is printed, and exit codes."""

from __future__ import annotations

import getpass
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.api.service import Answered
from cluster.errors import exit_code
from cluster.runtime import doctor
from cluster.scheduler.state import Node
from jobs.cli import app, main
from tacl.errors import (
    AliasMoved,
    BadConfig,
    BadName,
    BadRecipe,
    Erased,
    RunFailed,
    UnknownTask,
    UnknownVector,
)
from tests.support.command_line import Tacl, as_json, ok
from tests.support.instant import Guess, Instant


def test_a_session(tacl: Tacl, tmp_path: Path) -> None:
    told = ok(tacl("submit", "faces", "--data", "data.csv", "--owner", "ann", "--refresh", "never"))
    assert "texts from column 'text'; 2 classes from 'label': a, b" in told
    assert "rows: 40 = 32 training + 4 validation + 4 test; 32 of the training rows are" in told
    assert "8 are probe rows" in told
    assert "left out" not in told
    assert "faces is queued" in told
    alone = ("--penalty", "none", "--refresh", "never")
    ok(tacl("submit", "digits", "--data", "data.csv", "--again", "--watch", *alone))
    ok(tacl("wait"))
    table = ok(tacl("status"))
    assert "2 of 2 CPUs free on 1 node" in table
    assert next(line for line in table.splitlines() if "faces" in line).split() == [
        *("faces", "ready", "v1", "50.0", "90.0", "90.0", "80.0", "ann")
    ]
    assert "training" in ok(tacl("logs", "faces")) or "submitted" in ok(tacl("logs", "faces"))
    assert "faces@v1" in ok(tacl("vectors"))
    assert "digits" not in ok(tacl("vectors", "faces"))
    assert "nothing had failed" in ok(tacl("retry", "faces"))
    assert "new version v2 is the champion: less interference" in ok(tacl("refresh", "faces"))
    model = ok(tacl("compose", "alice", "+faces", "-digits"))
    assert "+1  faces@v2" in model
    assert "-1  digits@v1" in model
    report = ok(tacl("evaluate", "alice"))
    lines = [line.split() for line in report.splitlines()]
    assert next(line for line in lines if line[:1] == ["faces"])[-4:] == [
        *("2", "50.0", "90.0", "88.0")
    ]
    assert "normalised" in report
    assert ["faces", "yes", "2", "50.0", "66.7", "no", "(1)"] in lines
    answer = ok(tacl("query", "alice", "what is it?", "--task", "digits", "--top", "1"))
    assert [line.split() for line in answer.splitlines()[2:]] == [["digits", "a", "0.750"]]
    ok(tacl("compose", "bob", "+faces", "+digits"))
    unnamed = ok(tacl("query", "bob", "what is it?", "and this?", "--top", "3"))
    rows = [line.split() for line in unnamed.splitlines() if line.endswith("50")]
    assert [row[1:] for row in rows] == 2 * [["a", "0.750"], ["a", "0.750"], ["b", "0.250"]]
    assert {row[0] for row in rows[:2]} == {"faces", "digits"}


def test_the_classes_of_a_task_are_shown(tacl: Tacl) -> None:
    for name in ("faces", "digits"):
        ok(tacl("submit", name, "--data", "data.csv", "--again", "--refresh", "never"))
    ok(tacl("wait"))
    ok(tacl("compose", "alice", "+faces"))
    of_another = ("evaluate", "alice", "+digits", "--classes", "faces")
    for refused in (("evaluate", "alice", "--classes", "face"), of_another):
        answer = tacl(*refused)
        assert answer.exit_code == exit_code(UnknownTask(""))
        assert "no task of alice's model is named face" in answer.stderr
    assert app.client(None).accuracy_history("alice").rows == ()  # nothing was evaluated
    told = ok(tacl("evaluate", "alice", "--classes", "faces"))
    lines = [line.split() for line in told.splitlines()]
    for row in (["no", "2", "100.0", "80.0"], ["class", "no", "yes"], ["yes", "1", "1"]):
        assert row in lines
    assert ["digits"] not in [line[:1] for line in lines]
    assert "the classes of digits" in ok(
        tacl("evaluate", "alice", "+digits", "--classes", "digits")
    )


@pytest.mark.parametrize("name", ["[/x]", "[red]x", ":smile:"])
def test_the_name_of_a_class_is_never_markup(
    tacl: Tacl, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(tacl("submit", "faces", "--data", "data.csv"))
    ok(tacl("wait"))
    ok(tacl("compose", "alice", "+faces"))
    answered = Answered([{"faces": [(name, 0.75), ("b", 0.25)]}])
    monkeypatch.setattr(Guess, "ask", lambda self, question: answered)
    assert ["faces", name, "0.750"] in [
        line.split() for line in ok(tacl("query", "alice", "what is it?")).splitlines()
    ]


def test_who_submits_hears_of_a_gpu_that_stays_idle(tacl: Tacl, launcher: Instant) -> None:
    launcher.room = (Node(2, 1),)
    ok(tacl("status"))  # the coordinator looks
    given = ("--data", "data.csv", "--again")
    assert "1 GPU that no learner uses: --gpus-per-worker 1\n" in ok(tacl("submit", "a", *given))
    assert "learner" not in ok(tacl("submit", "b", *given, "--gpus-per-worker", "1"))


def test_answers_and_models_are_explained(tacl: Tacl) -> None:
    for name in ("faces", "digits"):
        ok(tacl("submit", name, "--data", "data.csv", "--again", "--refresh", "never"))
    ok(tacl("wait"))
    ok(tacl("compose", "alice", "+faces", "0.5*digits"))
    told = ok(tacl("explain", "alice", "what is it?", "--task", "faces"))
    rows = {line.split("  ")[0]: line.split()[1:] for line in told.splitlines()}
    assert "faces: a, probability 0.750" in told
    assert rows["base model"] == ["model", "33.3", "+1.00"]
    assert rows["+0.5*digits@v1"] == ["33.3", "+1.00", "faces:", "b", "0.400"]
    assert rows["together"] == ["100.0", "+3.00"]
    assert "added to each logit" not in told
    told = ok(tacl("explain", "alice", "what is it?", "--top", "3"))
    _, head, *lines = told.partition("added to each logit")[2].splitlines()
    assert " ".join(head.split()) == "part digits: a faces: a digits: b"
    rows = [line.split() for line in lines]
    assert rows[0] == ["base", "model", "+1.00", "+1.00", "+0.50"]
    assert rows[3] == ["together", "+3.00", "+3.00", "+1.50"]
    found = as_json(tacl("explain", "alice", "what is it?", "--task", "digits", "--json"))
    (one,) = found["explanations"]
    assert (one["best"]["task"], one["logits"]) == ("digits", {"digits": {"a": 3.0, "b": 1.5}})
    told = ok(tacl("explain", "alice"))
    rows = {line.split("  ")[0]: line.split()[1:] for line in told.splitlines()}
    assert rows["accuracy %"] == ["%", "88.0", "88.0"]
    for task, row in (("faces", "+faces@v1"), ("digits", "+0.5*digits@v1")):
        gains = dict(zip(rows["vector"], rows[row], strict=True))
        assert gains == {"faces": "-2.0", "digits": "-2.0"} | {task: "+38.0"}
    for given in (("--task", "digits"), ("--top", "2")):
        assert tacl("explain", "alice", *given).exit_code == exit_code(BadConfig(""))
    ok(tacl("compose", "alice", "+faces", "+digits", "--method", "ties"))
    merged = tacl("explain", "alice")
    assert merged.exit_code == exit_code(BadRecipe(""))
    assert "merged by ties" in merged.stderr


def test_a_wrong_value_is_refused_in_plain_words(tmp_path: Path) -> None:
    """Before anything is started."""
    for arguments, said in (
        (("submit", "a", "--data", "d", "--penalty", "mixd"), "'mixd' is not one of"),
        (("up", "--home", str(tmp_path / "new"), "--base", "embeded"), "no scheme 'embeded'"),
        (("up", "--home", str(tmp_path / "new"), "--base", "timm:net@no.pt"), "there is no file"),
        (("up", "--home", str(tmp_path / "new"), "--base", "embedded", "--cpus", "0"), "'--cpus'"),
        (("pretrain", "--out", str(tmp_path / "new"), "--steps", "0"), "'--steps'"),
        (("bench", "all", "--out", str(tmp_path / "new" / "all.md")), "'--out'"),
        (("bench", "scale", "--out", str(tmp_path)), "'--out'"),
        (("pretrain", "--out", str(tmp_path / "new"), "--seed", "-1"), "'--seed'"),
    ):
        refused = CliRunner().invoke(main.app, list(arguments))
        assert refused.exit_code != 0
        assert said in refused.stderr
        assert "Value error" not in refused.stderr


def test_a_split_that_is_left_out_is_told(tacl: Tacl, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for split, labels in (("train", "01" * 20), ("validation", "01" * 4), ("test", None)):
        given = labels or ["-1"] * 9
        lines = [f"{split} {row},{label}" for row, label in enumerate(given)]
        (tmp_path / f"data/{split}.csv").write_text("\n".join(["text,label", *lines]))
    told = ok(tacl("submit", "faces", "--data", "data"))
    assert "rows: 48 = 36 training + 4 validation + 8 test; 36 of the training rows" in told
    assert "\nleft out, no labels: split test\n" in told


def test_json(tacl: Tacl) -> None:
    submitted = as_json(tacl("submit", "faces", "--data", "data.csv", "--json"))
    assert (submitted["task"], submitted["state"]) == ("faces", "queued")
    waited = as_json(tacl("wait", "faces", "--json"))
    assert waited["tasks"][0]["state"] == "ready"
    assert as_json(tacl("status", "--json"))["users"] == []
    assert as_json(tacl("vectors", "--json"))[0]["task"] == "faces"
    assert as_json(tacl("logs", "faces", "--json"))
    composed = as_json(tacl("compose", "alice", "+faces", "--json"))
    evaluated = as_json(tacl("evaluate", "alice", "--json"))
    assert set(evaluated) >= {"per_task", "absolute", "normalized", "class_incremental"}
    assert set(evaluated["per_task"]["faces"]) >= {"zero_shot", "individual", "composed"}
    assert evaluated["by_class"]["faces"]["confusion"] == [[2, 0], [1, 1]]
    asked = as_json(tacl("query", "alice", "x", "--json"))
    assert asked["digest"] == composed["digest"]
    assert asked["answers"][0]["faces"][0] == ["a", 0.75]
    assert asked["best"] == [{"task": "faces", "label": "a", "probability": 0.75}]


@pytest.mark.parametrize("weight", ["--strength", "--penalty-weight"])
def test_what_is_chosen_of_the_penalty_is_the_tasks(tacl: Tacl, weight: str) -> None:
    chosen = ("--penalty", "mixed", weight, "2", "--grow-strength")
    ok(tacl("submit", "faces", "--data", "data.csv", *chosen))
    ok(tacl("submit", "digits", "--data", "data.csv", "--again"))
    options = {t["name"]: t["options"] for t in as_json(tacl("status", "--json"))["tasks"]}
    names = ("penalty", "strength", "grow_strength")
    assert [options["faces"][name] for name in names] == ["mixed", 2.0, True]
    assert "grow_strength" not in options["digits"]


def test_terms_that_look_like_options(tacl: Tacl) -> None:
    for name in ("faces", "home", "json"):
        ok(tacl("submit", name, "--data", "data.csv", "--again", "--refresh", "never"))
    ok(tacl("wait"))
    terms = ["-faces", "-0.5*home", "-json@v1"]
    model = as_json(tacl("compose", "alice", *terms, "--json"))
    assert [(t["coefficient"], t["vector"]["task"]) for t in model["terms"]] == [
        (-1.0, "faces"),
        (-0.5, "home"),
        (-1.0, "json"),
    ]


def test_interference_is_printed_and_drawn(
    tacl: Tacl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("faces", "digits"):
        ok(tacl("submit", name, "--data", "data.csv", "--again", "--refresh", "never"))
    ok(tacl("wait"))
    table = ok(tacl("interference", "--picture", "out/matrix.png"))
    rows = [line.split() for line in table.splitlines() if line.startswith("faces@v1")]
    assert rows == [
        ["faces@v1", "1.00", "0.25"],  # answers for faces, digits
        ["faces@v1", "1.00", "0.25"],  # their inputs
        ["faces@v1", "0.500", "2.000", "0.500"],  # and on generic
    ]
    assert (tmp_path / "out/matrix.png").read_bytes().startswith(b"\x89PNG")
    assert "heat map: out/matrix.png" in table
    monkeypatch.setenv("HOME", str(tmp_path / "out"))
    drawn = as_json(tacl("interference", "--picture=~/again.png", "--json"))["picture"]
    assert drawn == str(tmp_path / "out/again.png")
    assert Path(drawn).exists()
    assert as_json(tacl("interference", "--json"))["picture"] is None  # drawn where that is asked
    told = ok(tacl("interference", "faces"))
    assert "effect of the vector of faces on 2 shards" in told
    rows = [line.split() for line in told.splitlines() if "@v1" in line]
    assert rows[0] == ["faces@v1", "digits", "0.25", "0.25", "0.500"]
    assert rows[-1][:2] == ["digits@v1", "faces"]
    assert tacl("interference", "faces", "--picture", "x.png").exit_code == exit_code(BadConfig(""))
    Path("out/file").touch()
    refused = tacl("interference", "--picture", "out/file/matrix.png")
    assert refused.exit_code == exit_code(BadConfig(""))
    assert "out/file" in refused.stderr


def test_a_store_grows(tacl: Tacl, tmp_path: Path) -> None:
    ok(tacl("submit", "faces", "--data", "data.csv"))
    (tmp_path / "more.txt").write_text("\n".join(f"more {i}" for i in range(20)))
    told = ok(tacl("submit", "faces", "--add-samples", "more.txt"))
    assert told.strip() == "faces: 20 new samples, 52 in all"


ERRORS = {
    "more samples train nothing": (
        ["submit", "old", "--add-samples", "data.csv", "--watch", "--private", "--steps", "5"],
        43,
        "--watch, --private, --steps",
    ),
    "rolled back from": (["alias", "old", "--back", "--from", "v3"], 43, "--from"),
    "no version": (["alias", "old", "v99999999999999999999"], 43, "not a version"),
    "a version of no task": (["compose", "ann", "+old@v99999999999999999999"], 34, "no term"),
    "no data": (["submit", "x"], 43, "--data"),
    "both": (["submit", "x", "--data", "data.csv", "--add-samples", "data.csv"], 43, "--data"),
    "no path": (["submit", "x", "--data", "./none.csv"], 20, "none.csv"),
    "bad name": (["submit", "x/y", "--data", "data.csv"], 30, "letters"),
    "taken": (["submit", "old", "--data", "data.csv"], 31, "old"),
    "bad column": (["submit", "x", "--data", "data.csv", "--label-column", "z"], 21, "text"),
    "not listed": (["submit", "x", "--data", "data.csv", "--classes", "a,c"], 25, "'b'"),
    "no name": (
        ["submit", "x", "--data", "data.csv", "--classes", "a,b,"],
        21,
        "'a,b,': write each",
    ),
    "a name twice": (
        ["submit", "x", "--data", "data.csv", "--classes", "a,b,a"],
        21,
        "'a,b,a': write",
    ),
    "no workers": (["submit", "x", "--data", "data.csv", "--workers", "0"], 43, "workers"),
    "no room": (["submit", "x", "--data", "data.csv", "--workers", "9"], 41, "CPU"),
    "no task": (["logs", "none"], 32, "none"),
    "no vector": (["compose", "alice", "+old@v9"], 33, "v"),
    "no term": (["compose", "alice", "+old", "--jsn"], 34, "term"),
    "no model": (["query", "alice", "x"], 36, "tacl compose alice"),
    "a name misspelt": (["logs", "odl"], 32, "no task is named odl (did you mean old?); there is"),
    "a term misspelt": (["compose", "alice", "+odl"], 32, "did you mean old?"),
    "awaited misspelt": (["wait", "odl"], 32, "did you mean old?"),
    "a verb misspelt": (["sumbit", "x"], 2, "Did you mean 'submit'?"),
    "usage": (["submit", "x", "--data", "data.csv", "--penalty", "odd"], 2, "cyclical"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(tacl: Tacl, case: str) -> None:
    arguments, code, words = ERRORS[case]
    ok(tacl("submit", "old", "--data", "data.csv", "--watch"))
    result = tacl(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert len(as_json(tacl("status", "--json"))["tasks"]) == 1
    if code != 2:
        assert [line for line in result.stderr.splitlines() if line.startswith("error: ")] == [
            result.stderr.splitlines()[-1]
        ]
        body = json.loads(tacl(*arguments, "--json").stderr)
        assert body["exit_code"] == code
        assert body["message"] in result.stderr


def test_a_failed_run(tacl: Tacl, launcher: Instant) -> None:
    launcher.broken = {"faces"}
    result = tacl("submit", "faces", "--data", "data.csv", "--watch")
    assert result.exit_code == 40
    assert "not a number at step 3" in result.stderr.splitlines()[-1]
    assert "not a number at step 3" in ok(tacl("status"))
    launcher.broken = set()
    assert "1 run queued again" in ok(tacl("retry", "faces"))
    ok(tacl("wait", "faces"))


def test_doctor(tacl: Tacl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor, "_libraries", lambda: doctor.Check(check="torch", ok=True, found="loads")
    )
    found = as_json(tacl("doctor", "--json"))
    assert {one["check"] for one in found} >= {"Python", "packages", "torch", "memory", "home"}
    assert "running: " in next(one["found"] for one in found if one["check"] == "cluster")


# -- what is kept, and what not


def test_versions_are_moved_rolled_back_and_compared(tacl: Tacl) -> None:
    ok(tacl("submit", "faces", "--data", "data.csv", "--refresh", "never"))
    ok(tacl("submit", "digits", "--data", "data.csv", "--again", "--refresh", "never"))
    ok(tacl("wait"))
    ok(tacl("compose", "alice", "+faces"))
    ok(tacl("refresh", "faces"))
    assert "tacl compose alice --update" in ok(tacl("status"))
    assert "faces@v2 " in ok(tacl("compose", "alice", "--update")) + " "
    assert "--update" not in ok(tacl("status"))
    assert ok(tacl("alias", "faces", "v1")) == "faces@champion is now v1\n"
    assert tacl("alias", "faces", "v2", "--from", "v2").exit_code == exit_code(AliasMoved(""))
    assert as_json(tacl("alias", "faces", "--back", "--json"))["version"] == 2
    assert ok(tacl("alias", "faces@blessed", "v1")) == "faces@blessed is now v1\n"
    shown = ok(tacl("alias", "faces"))
    assert ["blessed", "v1"] in [line.split() for line in shown.splitlines()]
    assert sum("champion" in line for line in shown.splitlines()) == 5  # now, and four moves
    assert "faces@v1" in ok(tacl("compose", "bob", "+faces@blessed"))
    listed = as_json(tacl("vectors", "faces", "--json"))
    assert [(one["version"], one["parent"], one["champion"]) for one in listed] == [
        (1, None, False),
        (2, 1, True),
    ]
    assert [met["task"] for met in listed[1]["arrivals"]] == ["generic", "digits"]
    differences = as_json(tacl("vectors", "faces", "--compare", "v1,v2", "--json"))
    assert differences["made"]["parent"] == [None, 1]
    assert differences["config"] == {"steps": [3, None]}
    assert "parent" in ok(tacl("vectors", "faces", "--compare", "1,2"))
    assert tacl("vectors", "faces", "--compare", "v1").exit_code == exit_code(BadConfig(""))
    assert tacl("compose", "bob").exit_code == exit_code(BadRecipe(""))
    assert tacl("alias", "faces", "v9").exit_code == exit_code(UnknownVector(""))
    misspelt = tacl("alias", "faces@chmapion")
    assert misspelt.exit_code == exit_code(UnknownVector(""))
    assert "no alias of faces is named chmapion (did you mean champion?)" in misspelt.stderr
    assert tacl("alias", "faces@v3", "v1").exit_code == exit_code(BadName(""))


def test_a_refresh_says_which_version_is_the_champion(tacl: Tacl) -> None:
    for name in ("faces", "digits"):
        ok(tacl("submit", name, "--data", "data.csv", "--again", "--refresh", "never"))
    ok(tacl("wait"))
    first = ok(tacl("refresh", "faces"))
    assert first == "faces: new version v2 is the champion: less interference\n"
    ok(tacl("alias", "faces", "--back"))
    again = ok(tacl("refresh", "faces"))
    made, _, command = again.strip().partition(" To make v2 the champion: ")
    assert made == "faces: new version v2: less interference; the champion is v1."
    assert ok(tacl(*command.split()[1:])) == "faces@champion is now v2\n"
    app.client(None).refresh("faces")  # one of v2 is owed
    ok(tacl("alias", "faces", "v1"))
    meanwhile = ok(tacl("refresh", "faces"))
    assert "new version v3: less interference; the champion is v1. To make v3" in meanwhile


def test_cancelling_and_removing(tacl: Tacl, launcher: Instant) -> None:
    launcher.broken |= {"faces"}
    ok(tacl("submit", "faces", "--data", "data.csv", "--refresh", "never"))
    assert ok(tacl("cancel", "faces", "--keep")) == "faces: 1 run cancelled\n"
    assert ok(tacl("cancel", "faces", "--keep")) == "faces: nothing runs or waits\n"
    assert "cancelled" in ok(tacl("status"))
    assert tacl("wait", "faces").exit_code == exit_code(RunFailed(""))
    assert "out of the sample store and its name is free" in ok(tacl("cancel", "faces"))
    ok(tacl("submit", "faces", "--data", "data.csv", "--refresh", "never"))
    ok(tacl("cancel", "faces", "--keep"))
    launcher.broken.clear()
    assert "1 run queued again" in ok(tacl("retry", "faces"))
    ok(tacl("wait", "faces"))
    ok(tacl("submit", "digits", "--data", "data.csv", "--again", "--watch", "--refresh", "never"))
    ok(tacl("compose", "alice", "+faces", "-0.5*digits"))
    assert "models that use it keep working: alice" in ok(tacl("remove", "faces"))
    told = " ".join(ok(tacl("status")).split())
    assert "user alice: faces was removed; the model works on as it is" in told
    assert "it without: tacl compose alice -0.5*digits" in told
    assert tacl("vectors", "faces").exit_code == exit_code(UnknownTask(""))
    ok(tacl("query", "alice", "what is it?"))
    assert "no longer work: alice" in ok(tacl("remove", "faces", "--purge"))
    gone = tacl("query", "alice", "what is it?", "--json")
    assert gone.exit_code == exit_code(Erased(""))
    assert "needs faces@v1" in json.loads(gone.stderr)["message"]
    told, me = " ".join(ok(tacl("status")).split()), getpass.getuser()
    assert re.search(rf"faces was purged on 20\d\d-\S+ \S+ \(by {me}\): the model answers no", told)
    assert told.endswith("Compose it again: tacl compose alice -0.5*digits")
    assert as_json(tacl("gc", "--dry-run", "--json")) == {"blobs": 0, "bytes": 0, "others": 0}
    assert ok(tacl("gc")).startswith("freed 0.0 MiB: 0 blobs")


def test_a_private_task_is_submitted(tacl: Tacl) -> None:
    private = ("--data", "data.csv", "--private", "--owner", "ann")
    assert tacl("submit", "faces", *private).exit_code == exit_code(BadName(""))
    ok(tacl("submit", "ann.faces", *private))
    assert "faces" not in ok(tacl("status"))
    assert tacl("logs", "ann.faces").exit_code == exit_code(UnknownTask(""))


def test_what_each_task_would_owe_to_each_vector_of_a_recipe(tacl: Tacl) -> None:
    for name in ("faces", "digits"):
        ok(tacl("submit", name, "--data", "data.csv", "--again", "--refresh", "never"))
    ok(tacl("wait"))
    ok(tacl("compose", "alice", "+faces"))
    told = ok(tacl("evaluate", "alice", "+faces", "0.5*digits", "--without"))
    rows = {line.split("  ")[0]: line.split()[1:] for line in told.splitlines()}
    gains = dict(zip(rows["vector"], rows["+0.5*digits@v1"], strict=True))
    assert gains == {"faces": "-2.0", "digits": "+38.0"}
    assert "normalised" in told
    assert "owes" not in ok(tacl("evaluate", "alice"))
