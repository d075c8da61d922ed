"""How often somebody is told of a step."""

from __future__ import annotations

from cluster.learner.progress import now_and_then


def test_a_step_is_told_at_most_once_a_second() -> None:
    now, told = 0.0, []
    tell = now_and_then(lambda *said: told.append(said), lambda: now)
    for step in range(1, 31):
        now = 0.3 * step
        tell(step, 30, 1 / step)
    assert told[:2] == [(4, 30, 1 / 4), (8, 30, 1 / 8)]
    assert len(told) == 7
