"""Classifiers on the frozen base as rows of the addition table, against loops of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from jobs.experiments import classifiers
from jobs.experiments.classifiers import FROZEN, RIDGES
from jobs.experiments.context import Experiment
from jobs.experiments.methods import LONGER
from jobs.experiments.models import Model
from jobs.experiments.runner import reproduce
from jobs.experiments.tables.addition import REFITTED
from tacl.heads.probe import NEIGHBOURS
from tests.support import small_suite


def known(experiment: Experiment, part: str) -> dict[str, tuple[Tensor, Tensor]]:
    return {
        t: (experiment.features(t, part), experiment.rows(t).labels_N(part))
        for t in experiment.pool
    }


def test_rows_of_the_table_are_made_once_and_name_what_they_saw(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifiers, "WIDTH", 200)  # for time
    request = small_suite.request(place, "out", "addition", ["zero-shot", *FROZEN], seeds=(0, 1))
    done = reproduce(request)
    before = [path.read_bytes() for path in done.files]
    again = reproduce(request)
    assert again.made == []
    assert [path.read_bytes() for path in again.files] == before
    assert done.table.variants() == ["zero-shot", *FROZEN]
    for one in done.table.entries[2:]:
        assert (one.saw_training, one.saw_merging) == ("labels of all tasks", "validation labels")
        assert one.coefficients == "none"
        assert one.tasks.keys() == {"one", "two", "three"}
        assert all((numbers["individual"] or 0) > 0.25 for numbers in one.tasks.values())
        assert one.training.cpu_seconds > 0


def test_a_classifier_under_a_model_costs_what_the_model_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one training for all tasks has no single-task models to be divided by."""
    monkeypatch.setitem(LONGER, "steps", 9)  # for time
    methods = ["mtl-softmax", "mtl-softmax+logistic", "taujp", "taujp+logistic"]
    request = small_suite.request(tmp_path, "out", "addition", methods)
    entries = {one.variant: one for one in reproduce(request).table.entries}
    joint, over, summed, fitted = (entries[method] for method in methods)
    assert (over.numbers["individual"], over.numbers["normalised"]) == (None, None)
    assert over.coefficients == joint.coefficients == "none"
    assert over.training == joint.training
    assert (fitted.numbers["individual"] or 0) > 0.25
    assert fitted.training == summed.training
    experiment = small_suite.bench_of(request)
    model = REFITTED["taujp+logistic"].model(experiment)
    parts = [(task, part) for task in experiment.pool for part in ("train", "validation")]
    dual = sum(model.passes(*one)[1].cost.cpu_seconds for one in parts)
    assert fitted.merging.cpu_seconds > summed.merging.cpu_seconds + dual


def test_nearest_rows_vote_as_in_a_loop(experiment: Experiment) -> None:
    """One vote at a time, over the rows of all tasks, for the count that validation rows like."""
    train = known(experiment, "train")
    keys = [
        (normalize(feature_D, dim=0), (task, int(label)))
        for task, (features_ND, labels_N) in train.items()
        for feature_D, label in zip(features_ND, labels_N, strict=True)
    ]

    def votes(feature_D: Tensor, count: int) -> dict[tuple[str, int], float]:
        unit_D = normalize(feature_D, dim=0)
        near = sorted(((float(key_D @ unit_D), of) for key_D, of in keys), reverse=True)[:count]
        found: dict[tuple[str, int], float] = {}
        for cosine, of in near:
            found[of] = found.get(of, 0.0) + float(torch.tensor(cosine / 0.1).exp())
        return found

    def right(part: str, count: int) -> dict[str, float]:
        shares = {}
        for task, (features_ND, labels_N) in known(experiment, part).items():
            polls = [votes(feature_D, count) for feature_D in features_ND]
            hits = [
                max(poll, key=lambda of: poll[of]) == (task, int(label))
                for poll, label in zip(polls, labels_N, strict=True)
            ]
            shares[task] = sum(hits) / len(hits)
        return shares

    scores = {count: sum(right("validation", count).values()) for count in NEIGHBOURS}
    best = max(scores, key=lambda count: scores[count])
    found, whole = FROZEN["frozen-knn"].accuracies(Model(experiment))
    assert whole.facts == {"neighbours": best}
    assert found.class_incremental == pytest.approx(right("test", best))


def test_a_ridge_is_chosen_on_validation_rows_and_solved_over_all_classes(
    experiment: Experiment,
) -> None:
    """Discriminants from an explicit covariance, task known by its own columns."""
    train, within_DD, means = known(experiment, "train"), torch.zeros(()), []
    for features_ND, labels_N in train.values():
        mean_CD = torch.stack([features_ND[labels_N == c].mean(0) for c in range(4)]).double()
        apart_ND = features_ND.double() - mean_CD[labels_N]
        within_DD = within_DD + apart_ND.T @ apart_ND / len(labels_N) / len(train)
        means.append(mean_CD)
    mean_CD = torch.cat(means)

    def logits(features_ND: Tensor, ridge: float) -> Tensor:
        added_D = torch.full((len(within_DD),), ridge * float(within_DD.diagonal().mean()))
        inverse_DD = torch.linalg.inv(within_DD + torch.diag(added_D.double()))
        weight_CD = mean_CD @ inverse_DD
        return features_ND.double() @ weight_CD.T - 0.5 * (weight_CD * mean_CD).sum(-1)

    def right(part: str, ridge: float, is_known: bool) -> dict[str, float]:
        shares = {}
        for place, (task, (features_ND, labels_N)) in enumerate(known(experiment, part).items()):
            scores_NC = logits(features_ND, ridge)
            own_NC = scores_NC[:, 4 * place : 4 * place + 4]
            predicted_N = own_NC.argmax(-1) + 4 * place if is_known else scores_NC.argmax(-1)
            shares[task] = (predicted_N == labels_N + 4 * place).double().mean().item()
        return shares

    scores = {ridge: sum(right("validation", ridge, False).values()) for ridge in RIDGES}
    best = max(scores, key=lambda ridge: scores[ridge])
    found, whole = FROZEN["frozen-lda"].accuracies(Model(experiment))
    assert whole.facts == {"ridge": best}
    assert found.class_incremental == pytest.approx(right("test", best, False))
    assert found.merged == pytest.approx(right("test", best, True))


@pytest.mark.parametrize("name", FROZEN)
def test_a_classifier_alone_sees_the_rows_of_its_task_only(
    experiment: Experiment, name: str
) -> None:
    cell = FROZEN[name].judged(Model(experiment), ["one"])
    decides = json.loads((experiment.cells.folder / "classifier" / f"{cell.key}.json").read_text())[
        "decides"
    ]
    parts = ("train", "validation", "test")
    assert decides["rows"] == [[experiment.content("one", part) for part in parts]]
    assert cell.tensors()["one"].shape == (20, 4)
