"""What the examples of docs/how-to/penalty.md are to show, shown of them as they stand there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.blocks import blocks


def ran(number: int) -> Any:
    return blocks("python", "docs/how-to/penalty.md")[number].run()


def test_an_own_training_loop() -> None:
    known = ran(0)
    tacl, base, head, vector = (known[name] for name in ("tacl", "base", "head", "vector"))
    assert (vector.task, vector.base) == ("mine", base.digest)
    here = tacl.evaluate(base, (known["x"], known["y"]), head, {"mine": vector})
    assert here.accuracy({"mine": 1.0}) > here.accuracy({}) + 0.03
    there = tacl.evaluate(base, (known["other_x"], [0] * 64), head, {"mine": vector})
    assert there.tau_jp("mine") < 0.2 * here.tau_jp("mine")  # the penalty


def test_training_on_a_dict_of_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    known = ran(1)
    tacl, base, vectors = (known[name] for name in ("tacl", "base", "vectors"))
    lines = [line.split(" ", 1) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in lines] == ["first", "second"]
    for name, told in lines:
        zero_shot, own, of_sum = (float(one) for one in told.strip("[]").split(","))
        assert own > zero_shot + 0.03
        assert of_sum > own - 0.03
        (other,) = vectors.keys() - {name}
        found = tacl.evaluate(base, known["tasks"][name], known["heads"][name], vectors)
        assert found.tau_jp(other) < 0.2 * found.tau_jp(name)
    tacl.linearize(base).load_tau(known["tau"])
