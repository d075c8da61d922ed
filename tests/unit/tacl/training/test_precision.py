"""What a product in bfloat16 costs here is measured once."""

from __future__ import annotations

import time

import torch

from tacl.training.precision import ROWS, SIDE, bfloat16_time


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
