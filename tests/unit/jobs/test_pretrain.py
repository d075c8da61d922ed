"""Pre-training of the embedded encoder, at a few steps."""

from __future__ import annotations

import hashlib
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from jobs import pretrain as module
from jobs.pretrain import PretrainConfig, batches, pretrain
from tacl.embedded import model
from tacl.errors import BadConfig

TINY = PretrainConfig(steps=24, rows=96, batch=32, threads=1, held_out=20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folders = [tmp_path_factory.mktemp("pretrain") for _ in range(2)]
    return folders, [pretrain(TINY, folder) for folder in folders]


def test_the_same_seed_gives_the_same_weights(runs):
    (first, second), (record, again) = runs
    weights = [(folder / "encoder.safetensors").read_bytes() for folder in (first, second)]
    assert weights[0] == weights[1]
    assert record.sha256 == again.sha256 == hashlib.sha256(weights[0]).hexdigest()


def test_it_learns_and_writes_its_record(runs):
    (first, _), (record, _) = runs
    assert record.last_loss < 0.95 * record.losses[0]
    assert json.loads((first / "encoder.record.json").read_text()) == asdict(record)
    assert record.seed == 0
    assert record.steps == TINY.steps


def test_the_written_weights_load_into_the_embedded_model(runs):
    (first, _), _ = runs
    loaded, _ = model.load(Path(first) / "encoder.safetensors")
    shipped, _ = model.load()
    weights = [m.visual.state_dict()["conv1.weight"] for m in (loaded, shipped)]
    assert not torch.equal(*weights)


def test_batches_pass_over_all_rows_before_any_comes_again():
    rows = torch.cat(list(batches(96, TINY)))
    assert sorted(rows[:96].tolist()) == list(range(96))
    assert rows.tolist() == torch.cat(list(batches(96, TINY))).tolist()


def test_a_folder_that_may_not_be_written_is_refused_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("jobs.pretrain.render", lambda *_: pytest.fail("pictures are drawn"))
    with pytest.raises(BadConfig, match="may not write into; name another"):
        pretrain(TINY, tmp_path)


def test_pictures_are_drawn_by_as_many_processes_as_there_are_cpus_which_no_ctrl_c_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = list[tuple[object, ...]]()

    class Pool(ThreadPoolExecutor):
        def __init__(self, *given: object) -> None:
            made.append(given)
            super().__init__(1)

    monkeypatch.setattr(module, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(module, "cpus", lambda: 2)
    monkeypatch.setattr(module, "PART", 1)
    module.render(3, 0, lambda done, total: None)
    ((processes, _, initializer, given),) = made
    assert processes == 2
    assert (initializer, given) == (signal.signal, (signal.SIGINT, signal.SIG_IGN))
