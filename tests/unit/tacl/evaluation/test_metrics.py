"""Every definition of a table's numbers against its explicit loop."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tacl.compose import grid as of_grid
from tacl.compose.grid import COEFFICIENTS, best_coefficient
from tacl.evaluation.metrics import (
    absolute,
    accuracy,
    class_incremental,
    continual,
    disentanglement_error,
    normalized,
    rank_correlation,
)
from tacl.evaluation.tangents import Cached
from tacl.heads.head import Head

shares = st.floats(0.01, 1)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def head(seed: int, classes: int, size: int = 4) -> Head:
    weight = torch.nn.functional.normalize(noise(classes, size, seed=seed), dim=-1)
    return Head(weight, 10.0, tuple(f"{seed}-{c}" for c in range(classes)))


def predicted(one: Head, features: torch.Tensor) -> int:
    """argmax over classes of w_c . f (the length of f and the scale do not change it)."""
    scores = [
        sum(w * f for w, f in zip(row, features.tolist(), strict=True))
        for row in one.weight_CD.tolist()
    ]
    return scores.index(max(scores))


@given(st.integers(1, 30), st.integers(0, 99))
def test_accuracy(rows: int, seed: int) -> None:
    logits, labels = noise(rows, 3, seed=seed), torch.arange(rows) % 3
    right = sum(max(range(3), key=lambda c: logits[i, c]) == labels[i] for i in range(rows))
    assert accuracy(logits, labels) == pytest.approx(float(right) / rows)


def test_accuracy_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows"):
        accuracy(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.tuples(shares, shares), min_size=1))
def test_absolute_and_normalized(tasks: dict[str, tuple[float, float]]) -> None:
    merged = {t: pair[0] for t, pair in tasks.items()}
    individual = {t: pair[1] for t, pair in reversed(tasks.items())}
    total = ratios = 0.0
    for t in tasks:
        total += merged[t]
        ratios += merged[t] / individual[t]
    assert absolute(merged) == pytest.approx(total / len(tasks))
    assert normalized(merged, individual) == pytest.approx(ratios / len(tasks))


def test_normalized_is_a_mean_of_ratios_not_a_ratio_of_means() -> None:
    assert normalized({"a": 0.1, "b": 0.9}, {"a": 0.2, "b": 0.9}) == pytest.approx(0.75)


def test_undefined_ratios_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'b'"):
        normalized({"a": 1.0, "b": 0.5}, {"a": 1.0, "b": 0.0})
    with pytest.raises(ValueError, match="different tasks"):
        normalized({"a": 1.0}, {"b": 1.0})
    with pytest.raises(ValueError, match="no tasks"):
        absolute({})


def test_class_incremental_predicts_among_all_classes() -> None:
    heads = {"x": head(1, 3), "y": head(2, 2)}
    features = {"x": noise(20, 4, seed=3), "y": noise(15, 4, seed=4)}
    labels = {"x": torch.arange(20) % 3, "y": torch.arange(15) % 2}
    found = class_incremental(features, labels, heads)
    rows = torch.cat([heads["x"].weight_CD, heads["y"].weight_CD])
    joint = Head(rows, 10.0, tuple("abcde"))
    for task, first in (("x", 0), ("y", 3)):
        right = sum(
            predicted(joint, f) == first + label
            for f, label in zip(features[task], labels[task].tolist(), strict=True)
        )
        assert found[task] == pytest.approx(right / len(labels[task]))


def test_class_incremental_is_harder_than_knowing_the_task() -> None:
    heads = {"x": head(1, 3), "y": head(2, 5)}
    features = {"x": noise(50, 4, seed=5)}
    labels = {"x": heads["x"].logits(features["x"]).argmax(-1)}
    assert class_incremental(features, labels, heads)["x"] < 1.0


def test_best_coefficient_over_the_grid_against_a_loop() -> None:
    heads = {"x": head(1, 3), "y": head(2, 4)}
    cached = {
        t: Cached(
            noise(30, 4, seed=i), {v: noise(30, 4, seed=10 * i + j) for j, v in enumerate("xy")}
        )
        for i, t in enumerate(("x", "y"), start=5)
    }
    labels = {
        t: heads[t].logits(c.features_ND + 0.6 * c.tangents["x"]).argmax(-1)
        for t, c in cached.items()
    }
    scores = []
    for i in range(21):
        total = 0.0
        for t, rows in cached.items():
            f = rows.features_ND + (i / 20) * (rows.tangents["x"] + rows.tangents["y"])
            total += sum(predicted(heads[t], f[n]) == labels[t][n] for n in range(30)) / 30 / 2
        scores.append(round(float(total), 9))
    assert len(COEFFICIENTS) == 21
    assert (COEFFICIENTS[0], COEFFICIENTS[-1]) == (0.0, 1.0)
    expected = COEFFICIENTS[scores.index(max(scores))]
    assert best_coefficient(cached, labels, heads, {"x": 1.0, "y": 1.0}) == expected
    only_x = best_coefficient(cached, labels, heads, {"x": 1.0})
    assert only_x == pytest.approx(0.6, abs=0.101)


def test_the_best_coefficient_keeps_what_is_added_where_all_are_alike() -> None:
    heads, nothing = {"x": head(1, 3)}, torch.zeros(30, 4)
    cached = {"x": Cached(noise(30, 4, seed=5), {"v": nothing})}
    labels = {"x": heads["x"].logits(cached["x"].features_ND).argmax(-1)}
    assert best_coefficient(cached, labels, heads, {"v": 1.0}) == 0.05


@pytest.mark.parametrize("away", [3.0, 0.2])
def test_best_coefficient_to_unlearn_a_task_against_a_loop(
    away: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`y` is right at 0 and is left further behind the longer the way; `x` is right at 0.5, and its
    features move by as much as is said."""
    heads = {"x": head(1, 3), "y": head(2, 4)}
    cached = {
        "x": Cached(noise(200, 4, seed=5), {"v": away * noise(200, 4, seed=7)}),
        "y": Cached(noise(200, 4, seed=6), {"v": 3 * noise(200, 4, seed=8)}),
    }
    labels = {
        t: heads[t].logits(c.features_ND + at * c.tangents["v"]).argmax(-1)
        for (t, c), at in zip(cached.items(), (0.5, 0.0), strict=True)
    }
    shares = []
    for i in range(21):
        right = {
            t: sum(
                predicted(heads[t], c.features_ND[n] + i / 20 * c.tangents["v"][n]) == labels[t][n]
                for n in range(200)
            )
            for t, c in cached.items()
        }
        shares.append((int(right["x"]), int(right["y"])))
    most = max(x for x, _ in shares)
    best = 0
    least = math.inf
    for i, (x, y) in enumerate(shares):
        if x >= 0.95 * most and y < least:
            best, least = i, y
    looked, accurate = [], of_grid.accuracy
    monkeypatch.setattr(of_grid, "accuracy", lambda *rows: looked.append(rows) or accurate(*rows))
    found = best_coefficient(cached, labels, heads, {"v": 1.0}, ["y"])
    assert len(looked) <= 2 * len(COEFFICIENTS)  # once a task and coefficient
    assert found == COEFFICIENTS[best]
    assert found > 0  # unlike what is best for both
    assert found < 1 or away < 1  # only as far as `x` bears it


@given(st.integers(2, 6).flatmap(lambda n: arrays(float, (n + 1, n), elements=st.floats(0, 1))))
def test_continual_metrics_against_their_sums(table) -> None:
    b, matrix = table[0], table[1:]
    found = continual(torch.from_numpy(matrix), torch.from_numpy(b))
    T = len(matrix)
    R = {(i, j): matrix[i - 1][j - 1] for i in range(1, T + 1) for j in range(1, T + 1)}
    before = range(1, T)
    assert found.acc == pytest.approx(sum(R[T, j] for j in range(1, T + 1)) / T)
    means = [sum(R[i, j] for j in range(1, i + 1)) / i for i in range(1, T + 1)]
    assert found.aia == pytest.approx(sum(means) / T)
    assert found.bwt == pytest.approx(sum(R[T, j] - R[j, j] for j in before) / (T - 1))
    peaks = [max(R[k, j] for k in range(1, T)) - R[T, j] for j in before]
    assert found.forgetting == pytest.approx(sum(peaks) / (T - 1))
    forward = [R[j - 1, j] - b[j - 1] for j in range(2, T + 1)]
    assert found.fwt == pytest.approx(sum(forward) / (T - 1))


def test_continual_metrics_of_a_known_table() -> None:
    R = torch.tensor([[0.9, 0.5], [0.7, 0.8]])
    found = continual(R, torch.tensor([0.1, 0.3]))
    assert found.acc == pytest.approx(0.75)
    assert found.aia == pytest.approx((0.9 + 0.75) / 2)
    assert found.bwt == pytest.approx(-0.2)
    assert found.forgetting == pytest.approx(0.2)
    assert found.fwt == pytest.approx(0.2)


def test_what_is_undefined_is_none() -> None:
    one = continual(torch.tensor([[0.9]]), torch.tensor([0.1]))
    assert (one.bwt, one.forgetting, one.fwt) == (None, None, None)
    assert one.acc == one.aia == pytest.approx(0.9)
    assert continual(torch.eye(2)).fwt is None


@pytest.mark.parametrize(
    "R", [torch.zeros(2, 3), torch.zeros(0, 0), torch.tensor([[1.0, float("nan")], [1.0, 1.0]])]
)
def test_incomplete_tables_are_refused(R: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="square and finite"):
        continual(R)
    with pytest.raises(ValueError, match="one entry"):
        continual(torch.eye(2), torch.zeros(3))


def test_disentanglement_error_against_a_loop() -> None:
    heads = (head(1, 3), head(2, 4))
    cached = tuple(
        Cached(noise(12, 4, seed=i), {"a": noise(12, 4, seed=i + 2), "b": noise(12, 4, seed=i + 4)})
        for i in (20, 30)
    )
    grid = [-3.0, -0.5, 0.0, 1.0]
    error = disentanglement_error(cached, heads, ("a", "b"), grid)  # pyright: ignore[reportArgumentType]
    for i, alpha in enumerate(grid):
        for j, beta in enumerate(grid):
            total = 0.0
            for t, rows in enumerate(cached):
                for n in range(12):
                    f, a, b = rows.features_ND[n], rows.tangents["a"][n], rows.tangents["b"][n]
                    alone = f + alpha * a if t == 0 else f + beta * b
                    both = f + alpha * a + beta * b
                    total += (predicted(heads[t], alone) != predicted(heads[t], both)) / 12
            assert error[i, j].item() == pytest.approx(total)
    assert error[2, 2] == 0
    assert error.max() > 0


def test_disentanglement_error_is_zero_without_interference_on_the_published_grid() -> None:
    nothing = torch.zeros(5, 4)
    mine = Cached(noise(5, 4), {"a": noise(5, 4, seed=1), "b": nothing})
    yours = Cached(noise(5, 4, seed=2), {"a": nothing, "b": noise(5, 4, seed=3)})
    error = disentanglement_error((mine, yours), (head(1, 3), head(2, 3)), ("a", "b"))
    assert error.shape == (21, 21)
    assert error.max() == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=20))
def test_rank_correlation_against_its_definition(pairs: list[tuple[int, int]]) -> None:
    def ranks(values: list[int]) -> list[float]:
        ordered = sorted(values)
        return [ordered.index(v) + (ordered.count(v) + 1) / 2 for v in values]

    left, right = (ranks([pair[i] for pair in pairs]) for i in (0, 1))
    mean = (len(pairs) + 1) / 2
    cross = sum((a - mean) * (b - mean) for a, b in zip(left, right, strict=True))
    sizes = [sum((a - mean) ** 2 for a in side) for side in (left, right)]
    expected = cross / (sizes[0] * sizes[1]) ** 0.5 if sizes[0] * sizes[1] else 0.0
    found = rank_correlation(*(torch.tensor([pair[i] for pair in pairs]) for i in (0, 1)))
    assert found == pytest.approx(expected, abs=1e-12)
