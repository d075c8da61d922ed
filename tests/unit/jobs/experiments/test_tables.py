"""Tables and their requests, without anything trained."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.exceptions
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cluster.errors import exit_code
from jobs.cli.main import app
from jobs.experiments import runner, saw, suites
from jobs.experiments.catalogue import TABLES
from jobs.experiments.context import Experiment
from jobs.experiments.methods import METHODS
from jobs.experiments.runner import (
    TableRequest,
    _side_by_side,
    fill,
    reproduce,
    require_known,
    waves,
)
from jobs.experiments.table import Column, Entry, Table, grown, spread
from jobs.experiments.tables import addition
from tacl.compose import grid
from tacl.errors import BadConfig, DataNotFound, RunFailed, TaclError
from tacl.training.config import Precision
from tests.support import small_suite


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=21, max_size=21))
def test_the_coefficient_of_a_negation_against_a_loop(points: list[tuple[float, float]]) -> None:
    table = dict(zip(grid.COEFFICIENTS, points, strict=True))
    best = 0.0
    for coefficient, (target, control) in table.items():
        least_so_far, most_kept = table[best]
        better = target < least_so_far or (target == least_so_far and control > most_kept)
        if control >= 0.95 * table[0.0][1] and better:
            best = coefficient
    least = 0.95 * table[0.0][1]
    assert grid.lowest(lambda c: table[c][0], lambda c: table[c][1], least) == best


def test_without_class_names_only_what_sees_nothing_sees_labels_for_the_heads(
    experiment: Experiment,
) -> None:
    alone, joint = METHODS["zero-shot"], METHODS["mtl-softmax"]
    untrained = replace(joint, make=alone.make)  # for time
    found = [addition.entry(experiment, one).saw_training for one in (alone, untrained)]
    assert found == [saw.HEADS, saw.ALL_LABELS]


def test_a_table_of_other_columns_is_kept_and_not_mixed(tmp_path: Path) -> None:
    def table(*keys: str) -> Table:
        return Table("t", "t", "", tuple(Column(key, key) for key in keys), {})

    old, file = table("a"), tmp_path / "t.json"
    old.add(Entry("linear", 0, "labels", "nothing", {"a": 1.0}))
    file.write_text(json.dumps(old.as_dict()))
    assert grown(table("a"), file).variants() == ["linear"]
    with pytest.raises(BadConfig, match=r"1 rows made otherwise: columns \[.*move it away"):
        grown(table("a", "b"), file)


def test_rows_about_other_data_are_not_mixed(tmp_path: Path) -> None:
    def table(train: int, test: int) -> Table:
        data = {"one": {"classes": 2, "train": train, "test": test}}
        return Table("t", "t", "", (), {}, data)

    old, file = table(90, 50), tmp_path / "t.json"
    old.add(Entry("linear", 0, "labels", "nothing", {"a": 1.0}))
    file.write_text(json.dumps(old.as_dict()))
    assert grown(table(89, 50), file).variants() == ["linear"]  # of another seed
    assert grown(Table("t", "t", "", (), {}), file).data == old.data
    with pytest.raises(BadConfig, match=r"1 rows made otherwise: data\.one\.test 50, now 49; move"):
        grown(table(90, 49), file)


def test_a_mean_and_its_deviation() -> None:
    assert spread([0.25, None, 0.75]) == (0.5, pytest.approx(0.3535534), 2)
    assert spread([0.5]) == (0.5, None, 1)
    assert spread([None]) is None


def test_what_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def code(name: str, suite: str, data: Path, *more: str) -> int:
        options = ["--suite", suite, "--data", str(data), "--out", str(out), "--local", *more]
        return CliRunner().invoke(app, ["reproduce", name, *options]).exit_code

    assert code("magic", "text8", tmp_path) == exit_code(BadConfig())
    assert code("addition", "text9", tmp_path) == exit_code(BadConfig())
    assert code("addition", "text8", tmp_path / "none") == exit_code(DataNotFound())
    assert code("addition", "text8", tmp_path, "--seeds", "one") == exit_code(BadConfig())
    assert code("addition", "text8", tmp_path, "--methods", "magic") == exit_code(BadConfig())
    assert not out.exists()


Ask = Callable[..., TableRequest]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """What `tacl reproduce` asks for; nothing is made."""
    asked: list[TableRequest] = []

    def noted(request: TableRequest, say: object) -> None:
        asked.append(request)
        raise BadConfig("not made")

    monkeypatch.setattr(runner, "reproduce", noted)

    def request(name: str, *more: str) -> TableRequest:
        places = ["--data", str(tmp_path), "--out", str(tmp_path), "--local"]
        CliRunner().invoke(app, ["reproduce", name, *places, *more])
        return asked[-1]

    return request


def test_its_places_may_lie_in_the_own_home_which_no_shell_puts_in_after_a_sign(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sets").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    made = ask("addition", "--suite", "text8", "--data=~/sets", "--out=~/tables")
    assert (made.data, made.out) == (tmp_path / "sets", tmp_path / "tables")


def test_the_command_of_a_table_can_be_given_to_a_shell(ask: Ask) -> None:
    methods = "strength 0,strength 3"
    made = ask("sensitivity", "--suite", "text8", "--base", "hf:a?b", "--methods", methods)
    assert made.variants == methods.split(",")
    words = shlex.split(made.command)
    assert words[:3] == ["tacl", "reproduce", "sensitivity"]
    assert words[words.index("--methods") + 1] == methods
    assert words[words.index("--base") + 1] == "hf:a?b"
    assert words[words.index("--precision") + 1] == made.suite.precision
    assert "--local" in words


def test_a_table_goes_on_in_its_precision_unless_another_is_told(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "faster", lambda device: "float32")

    def precision(*told: str, suite: str = "text8") -> Precision:
        return ask("addition", "--suite", suite, *told).suite.precision

    assert precision() == "float32"
    for name in ("text8", "vision8"):
        begun = {"suite": {"precision": "bfloat16"}}
        (tmp_path / f"addition-{name}.json").write_text(json.dumps({"settings": begun}))
        assert precision(suite=name) == "bfloat16"
        assert precision("--precision", "float32", suite=name) == "float32"
    assert precision(suite="text14") == "float32"


def test_an_unknown_method_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(BadConfig, match="no method magic; there are zero-shot"):
        require_known(TABLES["addition"], suites.text8(), ["magic"])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ray.exceptions.RayTaskError(
                "run", "Traceback ...", DataNotFound("no data of two")
            ).as_instanceof_cause(),
            DataNotFound("no data of two"),
        ),
        (
            ray.exceptions.OutOfMemoryError("killed for its memory"),
            RunFailed("two, seed 0: killed for its memory; what is finished is kept"),
        ),
    ],
)
def test_a_piece_that_fails_beside_others_says_why_and_no_more(
    error: Exception, told: TaclError
) -> None:
    def get(piece: object) -> None:
        raise error

    on_ray = SimpleNamespace(
        exceptions=ray.exceptions,
        remote=lambda **_: lambda run: SimpleNamespace(remote=lambda piece: piece),
        wait=lambda waiting, num_returns: (waiting[:1], waiting[1:]),
        get=get,
    )
    with pytest.raises(type(told), match=f"^{told}$"):
        _side_by_side(on_ray, [("two, seed 0", lambda: None)], lambda line: None)


def test_rows_made_otherwise_are_told_of_before_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # an import of it raises ImportError
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    request = small_suite.request(tmp_path, "out", "addition", ["zero-shot"])
    with pytest.raises(ImportError):
        fill(request, lambda line: None)
    columns = [column._asdict() for column in request.spec.columns]
    there = {"settings": {}, "columns": columns, "entries": [], "commands": [], "data": {}}
    request.out.mkdir(exist_ok=True)
    (request.out / "addition-small.json").write_text(json.dumps(there))
    with pytest.raises(BadConfig, match="made otherwise"):
        fill(request, lambda line: None)


@pytest.mark.parametrize("there", ["", "10.0.0.1:6379"])
def test_into_a_cluster_of_its_own_nobody_else_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    begun: list[tuple[str, str, str]] = []

    def init(address: str, **_: object) -> None:
        begun.append((address, os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"]))
        raise ConnectionError

    for name, value in {"ADDRESS": there, "AUTH_MODE": "disabled", "AUTH_TOKEN": ""}.items():
        monkeypatch.setenv(f"RAY_{name}", value)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    request = small_suite.request(tmp_path, "out", "addition", ["zero-shot"])
    with pytest.raises(ConnectionError):
        fill(request, lambda line: None)
    ((address, mode, token),) = begun
    if there:
        assert (address, mode, token) == (there, "disabled", "")
    else:
        assert (address, mode, len(token)) == ("local", "token", 64)


@pytest.mark.parametrize("start", [fill, reproduce])
def test_what_a_table_lacks_is_told_of_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[..., Any]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # an import of it raises ImportError
    lines: list[str] = []
    request = small_suite.request(tmp_path, "out", "few-shot", ["linear"])
    for absent in ("target", "generic"):
        (tmp_path / "data" / absent).rename(tmp_path / absent)
        with pytest.raises(DataNotFound, match=f"no data of {absent}"):
            start(request, lines.append)
    sightless = replace(request, spec=TABLES["test-time"])
    with pytest.raises(BadConfig, match="text tower"):
        start(sightless, lines.append)
    with pytest.raises(BadConfig, match="no targets"):
        start(replace(request, suite=replace(request.suite, targets=())), lines.append)
    assert {line.partition(" ")[0] for line in lines} == {"data", "apart"}


def test_a_piece_finds_base_and_data_from_any_directory(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = small_suite.request(place, "anywhere", "addition", ["zero-shot"])
    base = request.suite.base.replace(f"{place}/", "")
    suite = replace(request.suite, base=base)
    here = replace(request, suite=suite, data=Path("data"), out=Path("anywhere"))
    monkeypatch.chdir(place)
    _, [(_, piece)] = waves(here)
    monkeypatch.chdir(tmp_path)  # as of a cluster that was started elsewhere
    piece()
    made = {cell.parent.name for cell in place.glob("anywhere/.cells/*/*.json")}
    assert {"data", "head", "features"} <= made
