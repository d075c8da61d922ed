"""What is measured of the verbs, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.benchmarks import verbs
from jobs.benchmarks.timing import Race
from tests.support.command_line import read


@pytest.mark.parametrize("words", [*verbs.READS, *verbs.COMPUTES], ids=" ".join)
def test_every_verb_is_one_of_the_command_line(words: verbs.Words) -> None:
    read([*words, "--home", "x"])


def test_where_something_is_computed_nothing_is_missed() -> None:
    slow, quick, computing = "status", "vectors", "query ann sign.png"
    found = verbs.times(Race({slow: [1.1, 1.3, 9.0], quick: [0.5] * 3, computing: [3.0] * 3}))
    assert [one.missed for one in found] == [True, False, False]
    assert found[0].seconds == 1.3
    lines = verbs.markdown(verbs.VerbTimes(3, "a processor", found)).splitlines()
    assert lines[-3:] == [
        "| `tacl status` | 1.30 | 3.95 | 1, missed |",
        "| `tacl vectors` | 0.50 | 0.00 | 1 |",
        "| `tacl query ann sign.png` | 3.00 | 0.00 | computes |",
    ]


def test_a_verb_that_fails_has_no_time(tmp_path: Path) -> None:
    verbs._typed(("--version",), tmp_path)()
    with pytest.raises(RuntimeError, match="no home of TACL yet"):
        verbs._typed(("status", "--home", str(tmp_path)), tmp_path)()
