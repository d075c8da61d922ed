"""How sure a difference between two rows of a table is."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jobs.experiments import bootstrap
from jobs.experiments.bootstrap import interval, packed, unpacked
from jobs.experiments.markdown import markdown
from jobs.experiments.table import Column, Entry, Numbers, Table
from jobs.experiments.tables import addition
from jobs.experiments.tables.addition import finish

BITS = st.lists(st.booleans(), min_size=1, max_size=70).map(torch.tensor)


@given(BITS)
def test_rows_survive_packing(right_N: torch.Tensor) -> None:
    assert torch.equal(unpacked(packed(right_N)), right_N)


@given(BITS, st.data())
def test_an_interval_holds_its_mean_and_turns_with_the_question(
    ours_N: torch.Tensor, data: st.DataObject
) -> None:
    theirs_N = torch.tensor(
        data.draw(st.lists(st.booleans(), min_size=len(ours_N), max_size=len(ours_N)))
    )
    mean, low, high = interval([{"a": ours_N}], [{"a": theirs_N}])
    assert low - 1e-9 <= mean <= high + 1e-9 or len(ours_N) < 20  # of few rows it is coarse
    assert mean == pytest.approx(ours_N.double().mean().item() - theirs_N.double().mean().item())
    back = interval([{"a": theirs_N}], [{"a": ours_N}])
    assert back == pytest.approx((-mean, -high, -low))


def test_its_width_is_that_of_the_paired_difference() -> None:
    """Rows that both have right or wrong add nothing to it; seeds share the rows."""
    rows = 1000
    theirs = torch.arange(rows) % 2 == 0
    ours = theirs.clone()
    ours[1:200:2] = True  # 100 that they have wrong
    mean, low, high = interval([{"a": ours}] * 3, [{"a": theirs}] * 3)
    assert mean == pytest.approx(0.1)
    expected = 1.96 * math.sqrt(0.1 * 0.9 / rows)
    assert (high - mean, mean - low) == pytest.approx((expected, expected), rel=0.15)
    tasks = ("a", "b")  # of two tasks the mean is surer
    _, low_2, high_2 = interval([dict.fromkeys(tasks, ours)], [dict.fromkeys(tasks, theirs)])
    assert (high_2 - low_2) == pytest.approx((high - low) / math.sqrt(2), rel=0.15)


def told(*given: tuple[str, int, list[bool]]) -> Table:
    """A table whose rows are right as given, by variant and seed."""
    columns = (Column("absolute", "absolute"), Column("class_incremental", "class-incremental"))
    table = Table("t", "t", "", columns, {"suite": dict.fromkeys(SETTINGS, 1), "base": "b"})
    for variant, seed, bits in given:
        right = {
            key: {"a": packed(torch.tensor(bits))} for key in ("absolute", "class_incremental")
        }
        accuracy: Numbers = {"absolute": sum(bits) / 8, "individual": 1.0}
        table.add(Entry(variant, seed, "", "", {}, {"a": accuracy}, right=right))
    return table


def test_a_table_tells_the_differences_of_the_seeds_that_both_have() -> None:
    table = told(
        ("mixed-longer+inner", 0, [True] * 8),
        ("mixed-longer+inner", 1, [True] * 8),
        ("frozen-logistic", 1, [True, False] * 4),
        ("ties", 1, [False] * 8),
    )
    finish(table)
    assert {(one.variant, one.against, one.seeds) for one in table.differences} == {
        ("mixed-longer+inner", "frozen-logistic", (1,))
    }
    assert "| mixed-longer+inner | frozen-logistic | 1 | +50.0 [" in markdown(table)


def test_a_difference_is_drawn_once_however_often_its_table_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[int] = []

    def counted(ours: list[bootstrap.Right], theirs: list[bootstrap.Right]) -> tuple[float, ...]:
        drawn.append(len(ours))
        return bootstrap.interval(ours, theirs)

    monkeypatch.setattr(addition, "interval", counted)
    addition._interval.cache_clear()
    ours, theirs = [True, False, True] * 3, [False, True, True] * 3
    table = told(("taujp+inner", 0, ours), ("tsv-m", 0, theirs))
    finish(table)
    before = table.differences
    finish(table)
    assert (table.differences, drawn) == (before, [1])  # both columns have the same rows here
    table.add(told(("tsv-m", 0, ours)).entries[0])
    finish(table)
    assert [one.mean for one in table.differences] == [0.0, 0.0]


SETTINGS = ("name", "steps", "batch", "learning_rate", "strength", "norm", "precision", "base")
