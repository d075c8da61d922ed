"""What bfloat16 costs here: a product, measured once, and a step of a base model."""

from __future__ import annotations

import time
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


@pytest.mark.parametrize(
    ("slow", "expected"), [(torch.bfloat16, "float32"), (None, "bfloat16")], ids=str
)
def test_a_base_model_trains_in_the_format_that_a_step_is_faster_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: torch.dtype | None, expected: str
) -> None:
    def slower(base: Backbone, dtype: torch.dtype | None = None) -> LinearizedEncoder:
        module = linearize(base, dtype)
        if dtype is slow:
            module.register_forward_pre_hook(lambda *_: time.sleep(0.2))
        return module

    monkeypatch.setattr(precision, "linearize", slower)
    monkeypatch.setattr(precision, "SECONDS", 0.01)
    assert faster_with(load_backbone(f"hf:{bases.bert(tmp_path)}?size=32")) == expected
