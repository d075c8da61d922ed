"""What predictors find in memory, in small."""

from __future__ import annotations

import pytest

from jobs.benchmarks import residency
from jobs.benchmarks.residency import EACH, LoadSizes, bench_residency, markdown


def test_a_keeper_of_every_model_finds_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of random recipes; with one predictor it is the same."""
    monkeypatch.setattr(residency, "PREDICTORS", (1, 4))
    monkeypatch.setattr(residency, "PARTS", (0.25, 1.0))
    sizes = LoadSizes(vectors=800, users=600, requests=8000)
    found = bench_residency(sizes, lambda done, total: None)
    assert len(found) == 8
    for one in found:
        assert one.bytes <= one.budget
        if one.predictors == 1:
            assert one.anywhere == one.keeper
            assert one.busiest == 1
        elif one.budget < 800 * EACH:
            assert one.keeper > one.anywhere + 0.02
            assert one.busiest < 2
    uniform, zipf = (one for one in found if (one.predictors, one.budget) == (1, 200 * EACH))
    assert uniform.anywhere == pytest.approx(0.25, abs=0.06)  # the part that is held
    assert zipf.anywhere > uniform.anywhere + 0.2
    whole = [one for one in found if one.budget == 800 * EACH]
    assert min(one.anywhere for one in whole) > 0.95
    assert markdown(found, sizes).count("\n| ") == 2 + len(found)
