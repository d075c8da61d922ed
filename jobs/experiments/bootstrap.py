"""How much better one row of a table is than another on the same test rows, with an interval: the
paired bootstrap (Efron and Tibshirani, 1993; for classifiers, Koehn 2004)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SAMPLES = 2000
LEVEL = 0.95

Right = Mapping[str, Tensor]  # by task: which of its test rows are right, bool [N]


@dataclass(frozen=True)
class Difference:
    """The difference of a number between two variants: its mean over tasks and seeds; with
    probability LEVEL it is between `low` and `high`. Shares in [-1, 1]."""

    key: str
    variant: str
    against: str
    mean: float
    low: float
    high: float
    seeds: tuple[int, ...]


def interval(ours: Sequence[Right], theirs: Sequence[Right]) -> tuple[float, float, float]:
    """Mean, low and high of the difference of the mean accuracy over tasks. There is one Right for
    each seed; a task has the same test rows in all seeds, so they are drawn together."""
    found_S = torch.zeros(SAMPLES, dtype=torch.float64)
    mean, tasks = 0.0, ours[0].keys()
    for number, task in enumerate(sorted(tasks)):
        pairs = zip(ours, theirs, strict=True)
        gain_RN = torch.stack([a[task].double() - b[task].double() for a, b in pairs])
        gain_N = gain_RN.mean(0)
        chance = torch.Generator().manual_seed(number)
        drawn_SN = torch.randint(len(gain_N), (SAMPLES, len(gain_N)), generator=chance)
        found_S += gain_N[drawn_SN].mean(1) / len(tasks)
        mean += gain_N.mean().item() / len(tasks)
    tail = (1 - LEVEL) / 2
    low, high = found_S.quantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return mean, low, high


def packed(right_N: Tensor) -> str:
    """The rows as COUNT:HEX, one bit a row."""
    bits = "".join("1" if one else "0" for one in right_N.tolist())
    return f"{len(bits)}:{int(bits, 2):x}"


def unpacked(text: str) -> Tensor:
    count, _, digits = text.partition(":")
    return torch.tensor([bit == "1" for bit in f"{int(digits, 16):0{count}b}"])
