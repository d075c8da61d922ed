"""tacl compose: other methods than the sum, and what is refused before anything is stored."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from datasets import Dataset

from cluster.domain.methods import LEARNS
from cluster.errors import exit_code
from jobs.cli.options import composition_options
from tacl.errors import BadRecipe
from tests.support.command_line import Tacl, as_json, ok
from tests.support.declared import openapi


def test_composing_by_other_methods(tacl: Tacl, tmp_path: Path) -> None:
    for name in ("faces", "digits"):
        ok(tacl("submit", name, "--data", "data.csv", "--again", "--refresh", "never"))
    ok(tacl("wait"))
    merged = ok(tacl("compose", "alice", "+faces", "-0.5*digits", "--method", "ties"))
    assert "alice's model" in merged
    assert ", by ties" in merged
    assert "-0.5  digits@v1" in merged
    assert [line.split() for line in merged.splitlines() if line.startswith("faces")] == [
        ["faces", "2", "50.0", "60.0", "80.0"]
    ]
    few = ("--fit", "data.csv", "--shots", "4", "--select", "blockwise:1")
    learned = ok(tacl("compose", "alice", "+faces", "digits", "--method", "atlas", *few))
    assert "+0.25 to +1.5  faces@v1" in learned
    assert "accuracies on rows held out" in learned
    judged = ok(tacl("evaluate", "alice"))
    assert "fitted" in judged
    assert "is not judged" not in judged
    assert "materialized %" not in judged
    assert "materialized %" in ok(tacl("evaluate", "alice", "--materialized"))
    assert as_json(tacl("status", "--json"))["users"][0]["method"] == "atlas"
    assert "alice: no composition runs cancelled" in ok(tacl("compose", "alice", "--cancel"))
    assert tacl("compose", "alice", "+faces", "--cancel").exit_code == exit_code(BadRecipe(""))
    asked = as_json(tacl("query", "alice", "what is it?", "--json"))
    assert next(iter(asked["answers"][0])) == "fitted"
    (tmp_path / "new.txt").write_text("\n".join(f"a new line {i}" for i in range(20)))
    adapted = tacl(
        *("compose", "alice", "faces", "digits", "--method", "atlas", "--adapt", "new.txt"),
        *("--classes", "x, y", "--json"),
    )
    found = as_json(adapted)
    assert (found["state"], found["method"]) == ("ready", "atlas")
    assert found["model"]["target"]["classes"] == ["x", "y"]
    assert found["report"]["tau_jp"]
    assert "fitted is not judged: no labelled rows of it were held out" in ok(
        tacl("evaluate", "alice")
    )
    ok(tacl("refresh", "faces"))
    hint = " ".join(ok(tacl("status")).split())
    how = "--method atlas --adapt DATA --classes x,y (DATA: the same rows again"
    assert f"newer versions of faces: tacl compose alice +digits +faces {how}" in hint


@pytest.mark.parametrize("kind", ["fit", "adapt"])
def test_flags_and_fields_say_the_same(kind: str) -> None:
    """And name the methods that learn from such rows, as they are declared."""
    body = openapi()["components"]["schemas"][f"Body_{kind}_v1_making_{kind}_post"]["properties"]
    flags = {one.name: get_args(one.annotation)[1] for one in composition_options()}
    assert body["file"]["description"].startswith(flags[kind].help)
    assert tuple(body["method"]["enum"]) == LEARNS[kind]
    assert f"For {' and '.join(LEARNS[kind])}: " in flags[kind].help
    if kind == "fit":
        assert body["shots"]["description"] == flags["shots"].help


def test_a_user_misspelt_is_told_of_who_has_a_model(tacl: Tacl) -> None:
    ok(tacl("submit", "faces", "--data", "data.csv"))
    ok(tacl("wait"))
    ok(tacl("compose", "alice", "+faces"))
    for verb in (("query", "alcie", "x"), ("evaluate", "alcie")):
        assert "(did you mean alice?)" in tacl(*verb).stderr
    assert "did you mean" not in tacl("query", "zoe", "x").stderr


def test_an_unknown_option_is_no_term(tacl: Tacl) -> None:
    for verb in ("evaluate", "compose"):
        assert "no option is named --clases; --help" in tacl(verb, "alice", "--clases").stderr


NOT_MADE: dict[str, tuple[str, int, str]] = {
    "few rows": ("old --method atlas --fit data.csv --shots 21", 23, "class a has 20"),
    "no shots": ("old --method atlas --fit data.csv", 43, "--shots"),
    "none of each": ("old --method atlas --fit data.csv --shots 0", 43, "shots: Input should be"),
    "more than any": ("old --method atlas --fit data.csv --shots 10001", 43, "equal to 10000"),
    "no labels": ("old --method atlas --fit bare.csv --shots 2", 21, "which column is the class"),
    "one class": ("old --method atlas --fit one.csv --shots 2", 24, "one class only"),
    "pictures": ("old --method atlas --adapt pictures.parquet", 26, "texts"),
    "nowhere": ("old --method atlas --fit none.csv --shots 2", 20, "none.csv"),
    "a sum": ("old --fit data.csv --shots 2", 43, "sum learns nothing from labelled rows"),
    "labels": ("old --method adamerging --fit data.csv --shots 2", 43, "atlas can"),
    "signs": ("-old --method atlas", 34, "this recipe adds none"),
    "selection": ("old --method ties --select blockwise:1", 43, "atlas"),
    "both": ("old --method atlas --fit data.csv --shots 2 --adapt data.csv", 43, "not both"),
    "no vector": ("old@v9 --method ties", 33, "v9"),
    "no name": (
        "old --method atlas --adapt bare.csv --classes ham,",
        43,
        "'ham,': write each name",
    ),
    "only commas": ("old --method atlas --adapt bare.csv --classes ,", 43, "',': write each name"),
    "empty": ("old --method atlas --adapt bare.csv --classes=", 43, "'': write each name once"),
    "a name twice": ("old --method atlas --adapt bare.csv --classes a,b,a", 43, "'a,b,a': write"),
    "labelled": ("old --method atlas --fit data.csv --shots 2 --classes a,b,", 43, "'a,b,': write"),
    "of no rows": ("old --method atlas --classes a,b", 43, "classes of no rows; give the rows"),
    "a column of no rows": ("old --method ties --input-column x", 43, "input_column of no rows"),
    "no such column": (
        "old --method atlas --fit data.csv --shots 2 --label-column kind",
        21,
        "no column 'kind'",
    ),
    "update": ("--update --method ties", 34, "--update"),
    "method": ("old --method magic", 2, "magic"),
}


@pytest.mark.parametrize("case", NOT_MADE)
def test_what_cannot_be_made_is_refused_before_anything_is_stored(
    tacl: Tacl, tmp_path: Path, case: str
) -> None:
    arguments, code, words = NOT_MADE[case]
    ok(tacl("submit", "old", "--data", "data.csv"))
    ok(tacl("wait"))
    (tmp_path / "bare.csv").write_text("text\n" + "\n".join(f"line {i}" for i in range(20)))
    (tmp_path / "one.csv").write_text("text,label\n" + "\n".join(f"l {i},a" for i in range(20)))
    bytes_of = {"bytes": b"x", "path": None}
    Dataset.from_dict({"image": [bytes_of] * 8}).to_parquet(tmp_path / "pictures.parquet")
    before = sorted((tmp_path / "home" / "blobs").rglob("*"))
    result = tacl("compose", "alice", *arguments.split())
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert words in result.stderr
    assert sorted((tmp_path / "home" / "blobs").rglob("*")) == before
    assert as_json(tacl("status", "--json"))["work"] == []
    assert as_json(tacl("status", "--json"))["users"] == []
