"""What the arrival of a task may cost the cluster beside its own training: half of one training.

It is spent on measuring what older vectors do to the newcomer, and on refreshing those that do the
most. What is left is added to the budget of the next arrivals. Costs are counted in rows of an
optimizer step: 5 matrix products each; a pass without gradient has 2 (ARCHITECTURE.md).
"""

from __future__ import annotations

from cluster.domain.tasks import Options
from tacl.training.config import RefreshConfig, default_config

PASS = 2 / 5  # cost of a row without gradient, in rows of a step
PROBE = 64  # rows of a probe
REMEASURED = 4  # other tasks on whose probes a refreshed vector is measured at once
CELL = round(PROBE * PASS)  # measuring one vector on one probe


def _refreshing() -> int:
    config = RefreshConfig(seed=0)
    steps = config.steps * (config.batch + config.other_batch)
    own = config.samples * config.batch / config.other_batch
    held_out = config.held_out * (own + config.samples)
    learnt_from = own + config.samples - held_out
    # Own rows, before; held-out rows, before and after; inputs of layers, with their moments.
    passes = (1 - config.held_out) * own + 2 * held_out + learnt_from
    return steps + round(passes * PASS) + (1 + REMEASURED) * CELL


REFRESH = _refreshing()


def allowance(rows: int, options: Options) -> int:
    """Half the cost of training a task with this number of rows."""
    config = default_config(
        rows, 0, (), steps=options.steps, batch=options.batch, penalty=options.penalty
    )
    return config.steps * (config.batch + config.penalty_batch) // 2


def granted(balance: int, allowance: int) -> int:
    """The balance after an arrival: its allowance, and what earlier ones left up to the same amount
    again; but enough for a refresh may always be saved up."""
    return allowance + min(balance, max(allowance, REFRESH))


def cells(balance: int) -> int:
    """How many pairs may be measured: the cost of a refresh is kept, if the balance covers it."""
    return max(0, (balance - REFRESH if balance >= REFRESH else balance) // CELL)
