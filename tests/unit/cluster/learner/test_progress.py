"""How often somebody is told of a step."""

from __future__ import annotations

from cluster.learner.progress import throttled


def test_a_step_is_told_at_most_once_a_second() -> None:
    now, told = 0.0, []

    def tell(*said: object) -> bool:
        told.append(said)
        return len(told) == 2

    tell_now_and_then, answers = throttled(tell, lambda: now), []
    for step in range(1, 31):
        now = 0.3 * step
        answers.append(tell_now_and_then(step, 30, 1 / step))
    assert [step for step, gives_way in enumerate(answers, 1) if gives_way] == [8]
    assert told[:2] == [(4, 30, 1 / 4), (8, 30, 1 / 8)]
    assert len(told) == 7
