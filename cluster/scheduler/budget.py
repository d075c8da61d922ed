"""What the arrival of a task may cost the cluster beside its own training: half of one training.

It is spent on measuring what older vectors do to the newcomer, and on refreshing those that do the
most. What is left waits for the next arrivals, whose budget it shares. Costs are counted in rows of
an optimizer step: 5 matrix products each; a pass without gradient has 2 (ARCHITECTURE.md).
"""

from __future__ import annotations

from cluster.domain.tasks import Options
from tacl.training.config import RefreshConfig, default_config

PASS = 2 / 5  # rows of a step that a row without gradient costs
PROBE = 64  # rows of a probe
REMEASURED = 4  # other tasks on whose probes a refreshed vector is measured at once
CELL = round(PROBE * PASS)  # measuring one vector on one probe


def _refreshing() -> int:
    config = RefreshConfig(seed=0)
    steps = config.steps * (config.batch + config.other_batch)
    own = config.samples * config.batch / config.other_batch
    held_out = config.held_out * (own + config.samples)
    learnt_from = own + config.samples - held_out
    # Of own rows before; of rows held out before and after; what goes into layers, and its moments.
    passes = (1 - config.held_out) * own + 2 * held_out + learnt_from
    return steps + round(passes * PASS) + (1 + REMEASURED) * CELL


REFRESH = _refreshing()


def allowance(rows: int, options: Options) -> int:
    """Half of the training of a task with so many rows."""
    chosen = {"steps": options.steps, "batch": options.batch, "penalty": options.penalty}
    config = default_config(rows, 0, (), **chosen)
    return config.steps * (config.batch + config.penalty_batch) // 2


def granted(balance: int, allowance: int) -> int:
    """What there is to spend after an arrival: of what earlier ones left, as much again at the
    most; but what a refresh needs may always be saved up."""
    return allowance + min(balance, max(allowance, REFRESH))


def cells(balance: int) -> int:
    """How many pairs may be measured: what a refresh needs is left, where there is as much."""
    return max(0, (balance - REFRESH if balance >= REFRESH else balance) // CELL)
