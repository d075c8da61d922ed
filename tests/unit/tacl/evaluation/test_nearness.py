"""Which sets of inputs are of one kind: by their definition, and for what is embedded."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from tacl.backbone import load_backbone
from tacl.embedded import generate, tasks
from tacl.embedded.parquet import png
from tacl.evaluation.nearness import LEAST, NEAR, are_near, centroid_distance

ROWS = 64


def drawn(rows: int, seed: int, mean: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return mean + torch.randn(rows, 300, generator=generator)


def test_it_is_the_distance_of_the_means_of_the_variance() -> None:
    found = [
        centroid_distance(drawn(4000, seed), drawn(4000, seed + 1, mean=0.3)) for seed in range(4)
    ]
    assert found == pytest.approx([0.3**2] * 4, rel=0.1)


def test_two_parts_of_one_set_are_apart_by_nothing_on_average() -> None:
    found = [centroid_distance(drawn(ROWS, seed), drawn(ROWS, 100 + seed)) for seed in range(50)]
    assert abs(sum(found) / len(found)) < 0.002
    assert max(found) < NEAR


def test_of_a_few_rows_nothing_is_known() -> None:
    few = drawn(LEAST - 1, 0)
    assert centroid_distance(few, few) == centroid_distance(drawn(ROWS, 0), few) == math.inf
    assert are_near(drawn(LEAST, 0), drawn(LEAST, 1))


def test_rows_that_are_all_the_same_are_near_themselves() -> None:
    same, other = torch.ones(ROWS, 5), torch.zeros(ROWS, 5)
    assert are_near(same, same)
    assert not are_near(same, other)


@pytest.mark.train
def test_embedded_tasks_are_near_themselves_drawn_again_and_not_each_other() -> None:
    backbone = load_backbone("embedded")

    @torch.no_grad()
    def features(task: str, seed: int) -> torch.Tensor:
        pictures = [backbone.prepare(png(image)) for image in generate(task, ROWS, seed)[0]]
        return backbone.encoder(backbone.collate(pictures)).float()

    first, second = ({task: features(task, seed) for task in tasks()} for seed in (1, 2))
    assert all(are_near(first[task], second[task]) for task in tasks())
    for one, other in itertools.combinations(tasks(), 2):
        assert not are_near(first[one], second[other]), (one, other)
