"""Heads fitted again as rows of the addition table."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from jobs.experiments.fitted import FROZEN, PARTS, fitted
from jobs.experiments.runner import reproduce
from jobs.experiments.tables.addition import ANSWERING
from tacl.heads.head import beside
from tests.support import small_suite


@pytest.mark.train
def test_the_row_is_of_the_sum_with_heads_of_all_tasks(tmp_path: Path) -> None:
    methods = ["taujp", "taujp+inner", "taujp+refresh+inner"]
    request = small_suite.request(tmp_path, "out", "addition", methods)
    entries = {one.variant: one for one in reproduce(request).table.entries}
    before, after = entries["taujp"], entries["taujp+inner"]
    assert (after.saw_training, after.saw_merging) == (before.saw_training, "labels of all tasks")
    assert after.tasks["one"]["zero_shot"] == before.tasks["one"]["zero_shot"]
    assert after.merging.cpu_seconds > before.merging.cpu_seconds

    known = small_suite.request(
        tmp_path, "known", "addition", ["frozen-inner-logistic", "taujp+inner"]
    )
    *_, last = reproduce(known).table.entries  # rows at theta0 were encoded for another row
    its = small_suite.bench_of(known)
    parts = [(task, part) for task in its.pool for part in dict.fromkeys((*PARTS, *FROZEN))]
    assert last.merging.cpu_seconds > sum(its.seen_plain(*one).cost.cpu_seconds for one in parts)

    experiment = small_suite.bench_of(request)
    cells = experiment.cells
    method, refreshed = ANSWERING["taujp+inner"], ANSWERING["taujp+refresh+inner"]
    model = method.model(experiment)
    heads = fitted(experiment, model.first, experiment.plain).tensors()
    under = fitted(
        experiment, refreshed.added(experiment), experiment.plain
    )  # the vectors as they are now
    assert cells.made == []
    assert any(not torch.equal(under.tensors()[task], heads[task]) for task in experiment.pool)
    weight_CD = torch.cat([heads[task] for task in experiment.pool])
    start = 0
    for task in experiment.pool:
        labels_N = experiment.rows(task).labels_N("test")
        features_ND = beside(experiment.plain(task, "test"), model.features(task, "test"))
        found_N = (features_ND @ weight_CD.T).argmax(-1)
        share = (found_N == labels_N + start).double().mean().item()
        assert after.tasks[task]["class_incremental"] == pytest.approx(share)
        start += len(experiment.rows(task).classes)
