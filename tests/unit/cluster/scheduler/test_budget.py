"""What measuring and refreshing may cost."""

from __future__ import annotations

from cluster.domain.tasks import Options
from cluster.scheduler import budget as costs


def test_a_refresh_is_what_the_benchmark_counts() -> None:
    """8 steps of 12 rows and 704 rows without gradient, and what is measured again."""
    measured = (1 + costs.REMEASURED) * costs.CELL
    assert costs.REFRESH - measured == 8 * 12 + 704 * 2 // 5 + 1
    assert costs.allowance(1600, Options()) == 200 * 24 // 2
    assert costs.allowance(10, Options(steps=50)) == 50 * 24 // 2
    assert costs.allowance(10, Options(steps=50, penalty="cyclical")) == 50 * 18 // 2


def test_unspent_allowances_do_not_pile_up() -> None:
    balance = 0
    for _ in range(100):
        balance = costs.granted(balance, 1800)
    assert balance == 3600
