"""The suites: the published values where there are any, and what each promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.experiments.suites import SUITES, clip8, suite
from tacl.errors import BadConfig
from tacl.training import precision
from tacl.training.config import schedule
from tests.support.places import ROOT

RESULTS = ROOT / "results"
# OpenReview 1VwWi6zbxs: hyper-parameters of the vision runs.
PUBLISHED = {
    "learning_rate": 1e-5,
    "weight_decay": 0.1,
    "clip": 1.0,
    "batch": 128,
    "penalty_batch": 128 // 8,
    "accumulation": 1,
    "strengths": (1e-3, 1e-2, 1e-1),
    "norm": "l2",
    "relative": False,
}
EPOCHS = {
    "cars": 35,
    "dtd": 76,
    "eurosat": 12,
    "gtsrb": 11,
    "mnist": 5,
    "resisc45": 15,
    "sun397": 14,
    "svhn": 4,
}
# openai/CLIP, data/prompts.md; SVHN as the published code of task vectors has it.
PROMPTS = {
    "cars": "a photo of a {}.|a photo of the {}.|a photo of my {}.|i love my {}!|"
    "a photo of my dirty {}.|a photo of my clean {}.|a photo of my new {}.|a photo of my old {}.",
    "dtd": "a photo of a {} texture.|a photo of a {} pattern.|a photo of a {} thing.|"
    "a photo of a {} object.|a photo of the {} texture.|a photo of the {} pattern.|"
    "a photo of the {} thing.|a photo of the {} object.",
    "eurosat": "a centered satellite photo of {}.|a centered satellite photo of a {}.|"
    "a centered satellite photo of the {}.",
    "gtsrb": 'a zoomed in photo of a "{}" traffic sign.|a centered photo of a "{}" traffic sign.|'
    'a close up photo of a "{}" traffic sign.',
    "mnist": 'a photo of the number: "{}".',
    "resisc45": "satellite imagery of {}.|aerial imagery of {}.|satellite photo of {}.|"
    "aerial photo of {}.|satellite view of {}.|aerial view of {}.|satellite imagery of a {}.|"
    "aerial imagery of a {}.|satellite photo of a {}.|aerial photo of a {}.|"
    "satellite view of a {}.|aerial view of a {}.|satellite imagery of the {}.|"
    "aerial imagery of the {}.|satellite photo of the {}.|aerial photo of the {}.|"
    "satellite view of the {}.|aerial view of the {}.",
    "sun397": "a photo of a {}.|a photo of the {}.",
    "svhn": 'a photo of the number: "{}".',
}
# Training rows as the papers on task vectors use them: a tenth less for validation.
ROWS = {
    "cars": 7330,
    "dtd": 3384,
    "eurosat": 21600,
    "gtsrb": 23976,
    "mnist": 55000,
    "resisc45": 17010,
    "sun397": 17865,
    "svhn": 68257,
}


@pytest.mark.parametrize("architecture", ["ViT-B-32", "ViT-B-16", "ViT-L-14"])
def test_clip8_is_the_published_setting(architecture: str) -> None:
    found = clip8(architecture)
    dumped = json.loads(json.dumps(found.as_dict()))
    large = {"accumulation": 4} if architecture == "ViT-L-14" else {}  # 4 x 32 rows
    for name, value in (PUBLISHED | large).items():
        assert dumped[name] == (list(value) if isinstance(value, tuple) else value), name
    assert dumped["base"] == f"open_clip:{architecture}@openai"
    assert {task["name"]: task["epochs"] for task in dumped["tasks"]} == EPOCHS
    assert {task["name"]: task["templates"] for task in dumped["tasks"]} == {
        task: prompts.split("|") for task, prompts in PROMPTS.items()
    }
    assert [one["name"] for one in dumped["generic"]] == ["imagenet"]
    assert all(task["hub"] for task in dumped["tasks"])
    assert found.source("svhn").hub == "ufldl-stanford/svhn:cropped_digits"  # it has two


@pytest.mark.parametrize("task", EPOCHS)
def test_clip8_trains_for_about_2000_steps_with_500_of_warm_up_at_most(task: str) -> None:
    config = clip8().config(task, ROWS[task], seed=0, trainable=())
    assert 1850 <= config.steps <= 2200
    assert config.trainable == ("*",)
    rates = [
        schedule(config.learning_rate, step, config.steps, config.warmup_fraction)
        for step in range(config.steps)
    ]
    warm_up = rates.index(max(rates))
    assert warm_up <= min(500, config.steps // 10 + 1)
    assert rates[-1] < 1e-4 * max(rates)


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*-*.json")), ids=lambda file: file.stem)
def test_tables_that_are_kept_can_grow(file: Path) -> None:
    kept = json.loads(file.read_text())["settings"]["suite"]
    now = suite(kept["name"], kept["base"], kept["precision"])
    assert json.loads(json.dumps(now.as_dict())) == kept


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_whole(name: str) -> None:
    found = SUITES[name]()
    names = [s.name for s in (*found.tasks, *found.generic, *found.targets)]
    assert len(set(names)) == len(names), "a task is in two roles"
    assert found.generic
    assert found.as_dict() == SUITES[name]().as_dict()
    config = found.config(found.names[0], 4000, seed=3, trainable=("a.*",), penalty="none")
    assert (config.seed, config.penalty) == (3, "none")


def test_small_suites_lie_in_the_shared_data(shared: Path) -> None:
    for name, folder in (("text8", "text"), ("text14", "text"), ("vision8", "vision")):
        found = SUITES[name]()
        for source in (*found.tasks, *found.generic, *found.targets):
            assert (shared / "data" / folder / source.name).is_dir(), source.name
    assert len(SUITES["text8"]().tasks) == 8
    assert len(SUITES["text14"]().tasks) == 14


def test_texts_are_passed_in_what_is_faster_here_unless_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for time, faster in ((0.4, "bfloat16"), (3.0, "float32")):
        monkeypatch.setattr(precision, "bfloat16_time", lambda device, time=time: time)
        assert [suite(name).precision for name in ("text8", "text14")] == [faster] * 2
        assert [suite(name).precision for name in ("vision8", "clip8")] == ["float32"] * 2
        for told in ("float32", "bfloat16"):
            assert suite("text8", precision=told).precision == told


def test_another_base_and_an_unknown_suite() -> None:
    assert suite("text8", "hf:../models/x").base == "hf:../models/x"
    with pytest.raises(BadConfig, match="there are text8, text14"):
        suite("text9")
