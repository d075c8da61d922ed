"""The cost of an arrival is flat, by the real plan."""

from __future__ import annotations

from jobs.benchmarks.arrivals import ARRIVALS, bench_arrivals


def test_an_arrival_costs_half_a_training_at_most_whatever_the_number_of_tasks() -> None:
    found = bench_arrivals((4, 14, 100))
    assert [one.tasks for one in found] == [4, 14, 100]
    assert all(0 < one.cost <= 0.5 for one in found)
    assert found[-1].cost <= 1.5 * found[1].cost
    assert all(one.refreshed >= 0.5 and one.measured * ARRIVALS >= one.tasks for one in found[:2])
