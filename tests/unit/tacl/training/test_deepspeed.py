"""The DeepSpeed engine against the plain one: the same losses, the same vector, to rounding.

A process can have one DeepSpeed engine at a time, and every run here has its own process: forked of
this file run as a script, told what to do by a JSON argument, answering with one line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import traceback
import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tacl.backbone import Backbone, BaseSpec, Item
from tacl.data.batches import Labelled
from tacl.errors import BadConfig
from tacl.heads.head import prototype_head
from tacl.models.frozen import FrozenEncoder
from tacl.models.linearized import LinearizedEncoder
from tacl.training.config import TrainConfig
from tacl.training.deepspeed import MOMENTS, DeepSpeedEngine
from tacl.training.loop import Engine, PlainEngine, StepRecord, Store, train
from tests.support.places import ROOT

CONFIG = TrainConfig(
    steps=6,
    learning_rate=1e-2,
    strength=0.5,
    seed=3,
    trainable=("*",),
    batch=8,
    penalty_batch=4,
    accumulation=2,
    clip=0.5,
)
MIXED = {"penalty": "mixed"}  # rows of a step from both stores, on either rank
HALF = 3  # where a run is interrupted


@dataclass(frozen=True)
class Numbers:
    """Items are vectors of numbers already."""

    modality: str = "image"

    def prepare(self, raw: bytes | str) -> Item:
        raise NotImplementedError

    def collate(self, items: Any, device: torch.device) -> torch.Tensor:
        return torch.stack(list(items)).to(device)

    def description(self) -> dict[str, Any]:
        return {}


@dataclass
class Scene:
    """A tiny encoder, a task and two other stores; the same in every process."""

    backbone: Backbone
    data: Labelled
    stores: list[Store]

    @staticmethod
    def make() -> Scene:
        torch.manual_seed(0)
        layers = (torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.Linear(16, 5))
        encoder = torch.nn.Sequential(*layers).eval()
        unread = torch.nn.Parameter(torch.ones(2))  # as encoders of libraries have
        encoder.register_parameter("unread", unread)
        backbone = Backbone(BaseSpec("timm", "numbers"), encoder, Numbers(), ("*",), 16.0)
        x_ND, other_ND = torch.randn(40, 6), torch.randn(30, 6)
        labels_N = (x_ND[:, 0] + x_ND[:, 1] > 0).long()
        norm = encoder(other_ND).norm(dim=-1).mean().item()
        stores = [Store(f"other{half}", list(other_ND[half::2]), norm) for half in (0, 1)]
        return Scene(backbone, Labelled(list(x_ND), labels_N), stores)

    def module(self, config: TrainConfig) -> LinearizedEncoder:
        dtype = torch.bfloat16 if config.precision == "bfloat16" else None
        return LinearizedEncoder(self.backbone.encoder, config.trainable, dtype)

    def run(
        self, engine: Engine, config: TrainConfig, start: int = 0, save: Path | None = None
    ) -> list[StepRecord]:
        """Trains from step `start`; writes a checkpoint before step HALF where asked to."""
        records: list[StepRecord] = []
        features_ND = self.backbone.encoder(torch.stack(self.data.items))
        head = prototype_head(features_ND, self.data.labels, ("under", "over"))

        def known(step: int) -> list[Store]:
            if step == HALF and save is not None:
                engine.save(save)
            return self.stores

        places = (engine, self.backbone, head, self.data, known, config)
        train(*places, start_step=start, on_step=records.append)
        return records


def flat(module: FrozenEncoder) -> list[float]:
    tau = module.tau_dict()
    return torch.cat([tau[name].flatten() for name in sorted(tau)]).tolist()


def child(order: dict[str, Any]) -> dict[str, Any]:
    """What the process of an engine does."""
    if "rank" in order:
        os.environ.update(RANK=str(order["rank"]), LOCAL_RANK="0", WORLD_SIZE="2")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(order["port"]))
        torch.distributed.init_process_group("gloo")
    scene, config = Scene.make(), replace(CONFIG, **order.get("config", {}))
    engine = DeepSpeedEngine(scene.module(config), config, order["stage"])
    if order.get("alone"):
        engine._engine.buffered_allreduce_fallback = None  # which copies every gradient
    if "load" in order:
        engine.load(Path(order["load"]))
        records = scene.run(engine, config, start=HALF)
    else:
        records = scene.run(engine, config, save=Path(order["save"]) if "save" in order else None)
    with pytest.raises(RuntimeError, match="a second one leaks"):
        DeepSpeedEngine(scene.module(config), config, order["stage"])
    found = told(engine, records)
    if "again" in order:
        left = weakref.ref(engine.module), weakref.ref(next(engine.module.parameters()))
        engine.close()
        del engine
        gc.collect()
        assert [one() for one in left] == [None, None]
        engine = DeepSpeedEngine(scene.module(config), config, order["again"])
        found |= {"again": told(engine, scene.run(engine, config))}
    return found


def told(engine: DeepSpeedEngine, records: list[StepRecord]) -> dict[str, Any]:
    return {
        "losses": [record.loss for record in records],
        "norms": [record.gradient_norm for record in records],
        "tau": flat(engine.module),
        "bytes": sum(
            state[moment].nbytes for state in engine.optimizer.state.values() for moment in MOMENTS
        ),
        "ranks": engine.world_size,
    }


def in_process(out: Path, order: dict[str, Any]) -> int:
    """Its id. One line of JSON comes out of it: DeepSpeed writes nothing beside it.

    DeepSpeed keeps a process group for life, and a thread of gloo that lets go of a tensor while
    the interpreter is taken down aborts the process, now and then (PyTorch pull request 179291):
    so nothing is taken down."""
    if pid := os.fork():
        return pid
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT, 0o600), 1)
    code = 1
    try:
        print(json.dumps(child(order)), flush=True)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def two(**order: Any) -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [{"rank": rank, "port": port, **order} for rank in range(2)]


def plain(config: TrainConfig) -> dict[str, Any]:
    scene = Scene.make()
    engine = PlainEngine(scene.module(config), config)
    records = scene.run(engine, config)
    losses, norms = [r.loss for r in records], [r.gradient_norm for r in records]
    return {"losses": losses, "norms": norms, "tau": flat(engine.module)}


def same(left: dict[str, Any], right: dict[str, Any], steps: slice = slice(None)) -> None:
    """To rounding."""
    for key in ("losses", "norms"):
        assert left[key] == pytest.approx(right[key][steps], rel=2e-5, abs=1e-6)
    assert left["tau"] == pytest.approx(right["tau"], rel=1e-4, abs=1e-6)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All engines of this file, two processes at a time, of one that has imported torch."""
    folder = tmp_path_factory.mktemp("checkpoints")
    first, second = two(stage=2, save=f"{folder}/2", config=MIXED)
    one, other = two(stage=0, config=MIXED)
    rounds: list[dict[str, dict[str, Any]]] = [
        {
            "stage0": {"stage": 0, "save": f"{folder}/0", "alone": True},
            "bfloat16": {"stage": 2, "config": {"precision": "bfloat16"}},
        },
        {"rank0": first, "rank1": second},
        {"whole0": one, "whole1": other},
        {
            "resumed": {"stage": 0, "load": f"{folder}/0"},
            "narrowed": {"stage": 1, "load": f"{folder}/2", "config": MIXED},
        },
        {"after0": {"stage": 0, "again": 0}, "after2": {"stage": 2, "again": 0}},
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, json.dumps([str(folder), rounds])]
    subprocess.run(command, env=environment, check=True, timeout=200)
    names = [name for some in rounds for name in some]
    return {name: json.loads((folder / f"{name}.out").read_text()) for name in names}


def test_one_rank_gives_the_numbers_of_the_plain_engine(runs: Any) -> None:
    reference = plain(CONFIG)
    assert max(reference["norms"]) > CONFIG.clip  # so that clipping is part of what is compared
    same(runs["stage0"], reference)


@pytest.mark.parametrize("ranks", ["rank", "whole"])  # of stage 2, and of 0
def test_two_ranks_give_the_numbers_of_one(runs: Any, ranks: str) -> None:
    one, first, second = plain(replace(CONFIG, **MIXED)), runs[f"{ranks}0"], runs[f"{ranks}1"]
    assert first["ranks"] == second["ranks"] == 2
    assert first["tau"] == second["tau"]
    mean = [(a + b) / 2 for a, b in zip(first["losses"], second["losses"], strict=True)]
    same({**first, "losses": mean}, one)


def test_zero_halves_the_optimizer_on_two_ranks(runs: Any) -> None:
    whole = runs["stage0"]["bytes"]
    assert whole == 2 * 4 * len(runs["stage0"]["tau"])  # two float32 moments
    for rank in ("rank0", "rank1"):
        assert runs[rank]["bytes"] == pytest.approx(whole / 2, rel=0.02)  # and some padding


def test_a_resumed_run_gives_the_same_numbers(runs: Any) -> None:
    whole, resumed = runs["stage0"], runs["resumed"]
    assert resumed["losses"] == whole["losses"][HALF:]
    assert resumed["tau"] == whole["tau"]


@pytest.mark.parametrize("before", ["after0", "after2"])
def test_an_engine_after_another_gives_the_same_numbers_bit_for_bit(runs: Any, before: str) -> None:
    """In a process that asserts that nothing of the first is left (`child`)."""
    assert runs[before]["again"] == {**runs["stage0"], "ranks": 1}


def test_a_checkpoint_of_two_ranks_resumes_on_one_with_another_stage(runs: Any) -> None:
    same(runs["narrowed"], plain(replace(CONFIG, **MIXED)), slice(HALF, None))


def test_bfloat16_trains_as_with_the_plain_engine(runs: Any) -> None:
    reference = plain(replace(CONFIG, precision="bfloat16"))
    assert runs["bfloat16"]["losses"] == pytest.approx(reference["losses"], rel=1e-3)
    assert runs["bfloat16"]["losses"] != pytest.approx(plain(CONFIG)["losses"], rel=1e-5)


@pytest.mark.parametrize(("stage", "why"), [(3, "size 0 between layers"), (4, "0, 1 and 2")])
def test_other_stages_are_refused(stage: int, why: str) -> None:
    with pytest.raises(BadConfig, match=why):
        DeepSpeedEngine(Scene.make().module(CONFIG), CONFIG, stage)


if __name__ == "__main__":
    folder, rounds = json.loads(sys.argv[1])
    for some in rounds:
        pids = [in_process(Path(folder, f"{name}.out"), order) for name, order in some.items()]
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)
