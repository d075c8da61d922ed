"""What bfloat16 costs here: a product, measured once, and a step of a base model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tacl.backbone import Backbone, load_backbone
from tacl.models.linearized import LinearizedEncoder, linearize
from tacl.training import precision
from tacl.training.precision import ROWS, SIDE, bfloat16_time, faster_with
from tests.support import bases


def test_it_is_what_a_clock_says_and_is_measured_once() -> None:
    found = bfloat16_time()
    started = time.perf_counter()
    assert bfloat16_time() == found
    assert time.perf_counter() - started < 0.01

    def least(dtype: torch.dtype) -> float:
        x, w = torch.ones(ROWS, SIDE, dtype=dtype), torch.ones(SIDE, SIDE, dtype=dtype)
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            _ = x @ w
            times.append(time.perf_counter() - begun)
        return min(times)

    by_clock = least(torch.bfloat16) / least(torch.float32)
    assert by_clock / 4 < found < by_clock * 4


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backbone:
    """Where products in bfloat16 pay."""
    monkeypatch.setattr(precision, "faster", lambda: "bfloat16")
    return load_backbone(f"hf:{bases.bert(tmp_path)}?size=32")


def slow(*_: object) -> None:
    time.sleep(0.3)


Hook = Callable[..., object]


def patched(monkeypatch: pytest.MonkeyPatch, of_bfloat16: Hook, other: Hook = slow) -> None:
    """What happens after a pass in bfloat16, and after another."""

    def linearized(base: Backbone, dtype: torch.dtype | None = None) -> LinearizedEncoder:
        module = linearize(base, dtype)
        module.register_forward_hook(of_bfloat16 if dtype is torch.bfloat16 else other)
        return module

    monkeypatch.setattr(precision, "linearize", linearized)


def test_a_base_model_trains_in_the_format_that_a_step_is_faster_in(
    base: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched(monkeypatch, slow, other=lambda *_: None)
    assert faster_with(base) == "float32"
    patched(monkeypatch, lambda *_: None)
    assert faster_with(base) == "bfloat16"


def test_what_bfloat16_cannot_do_is_done_in_float32(
    base: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise NotImplementedError("no such kernel")

    patched(monkeypatch, fails)
    assert faster_with(base) == "float32"
    patched(monkeypatch, lambda module, given, found: (found[0] * math.inf, found[1]))
    assert faster_with(base) == "float32"


def test_where_products_do_not_pay_nothing_is_timed(
    base: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "faster", lambda: "float32")
    monkeypatch.setattr(precision, "linearize", None)
    assert faster_with(base) == "float32"
