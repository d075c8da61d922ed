"""Heads fitted again as rows of the addition table."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from jobs.experiments import fitted as module
from jobs.experiments.cache import Cell
from jobs.experiments.context import Experiment
from jobs.experiments.fitted import fitted
from jobs.experiments.models import Model
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

    experiment = small_suite.bench_of(request)
    cells = experiment.cells
    method, refreshed = ANSWERING["taujp+inner"], ANSWERING["taujp+refresh+inner"]
    model = method.model(experiment)
    heads = fitted(experiment, model.first, experiment.plain).tensors()
    under = fitted(
        experiment, refreshed.added(experiment), experiment.plain
    )  # the vectors as they are now
    experiment.plain("generic", module.GENERIC_TEST)  # what *none of these* was measured on
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


@pytest.mark.train
def test_rows_that_dual_passes_measure_are_not_passed_again_at_theta0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PARTS", ("train:20", "validation"))
    monkeypatch.setattr(module, "FROZEN", ("train:30", "validation"))
    monkeypatch.setattr(module, "REST", "train:20-30")
    experiment = small_suite.bench_of(small_suite.request(tmp_path, "out", "addition", []))
    method = ANSWERING["taujp+inner"]
    model = method.model(experiment)
    cell = fitted(experiment, model.first, experiment.plain)
    passed = [one for one in experiment.cells.made if one.startswith("plain train")]
    assert passed == [f"plain train:20-30 of {task}, seed 0" for task in experiment.pool]

    (task, *_) = experiment.pool
    pairs = module._pairs(experiment, _seen(experiment, model), "train:20", experiment.plain)
    found = module._with_rest(experiment, experiment.plain, task, pairs[task][0])
    one_pass = experiment.plain(task, "train:30")
    assert torch.allclose(found.features_ND, one_pass, atol=1e-5)
    assert torch.equal(found.labels_N, experiment.rows(task).labels_N("train:30"))

    costs = [one.cost.cpu_seconds for one in (*_seen(experiment, model).values(), cell)]
    rest = [experiment.seen_plain(task, "train:20-30").cost.cpu_seconds for task in experiment.pool]
    validation = method.cost(model, cell).cpu_seconds - sum(costs) - sum(rest)
    judged = [module._seen(experiment, model.first, t, "validation") for t in experiment.pool]
    assert validation == pytest.approx(sum(one.cost.cpu_seconds for one in judged))


def _seen(experiment: Experiment, model: Model) -> dict[str, Cell]:
    return {t: module._seen(experiment, model.first, t, "train:20") for t in experiment.pool}
