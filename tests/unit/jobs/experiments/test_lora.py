"""LoRA as a baseline: what PEFT computes, chosen by validation rows, and no more than its rank."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.linalg import matrix_rank

from jobs.experiments import lora as module
from jobs.experiments.context import Experiment
from jobs.experiments.lora import RANK, SCALE, LowRankEncoder, lora
from tacl.backbone import load_backbone
from tests.support import bases

TARGETS = ("*query.weight", "*value.weight")


def test_it_is_what_peft_computes(tmp_path: Path) -> None:
    import peft
    import transformers

    folder = bases.bert(tmp_path)
    backbone = load_backbone(f"hf:{folder}?size=32")
    own = LowRankEncoder(backbone.encoder, TARGETS, seed=3)
    config = peft.LoraConfig(
        r=RANK, lora_alpha=round(SCALE * RANK), target_modules=["query", "value"]
    )
    wrapped = peft.get_peft_model(transformers.AutoModel.from_pretrained(folder), config)
    batch = backbone.collate([backbone.prepare(text) for text in ("a b c", "b")])
    assert torch.equal(own(batch)[0], own.at(_theta0(own), batch)[0])  # B starts at zero
    tensors = dict(wrapped.named_parameters())
    with torch.no_grad():
        for name, down, up in zip(own.blocks, own._down, own._up, strict=True):
            up.normal_(generator=torch.Generator().manual_seed(len(name)))
            prefix = "base_model.model." + name.removeprefix("model.").removesuffix(".weight")
            tensors[f"{prefix}.lora_A.default.weight"].copy_(down)
            tensors[f"{prefix}.lora_B.default.weight"].copy_(up)
    merged = wrapped.merge_and_unload().state_dict()
    for name, tau in own.tau_dict().items():
        theta = own.theta0(name) + tau
        torch.testing.assert_close(theta, merged[name.removeprefix("model.")])
    trained = {name for name, parameter in own.named_parameters() if parameter.requires_grad}
    assert all(name.startswith(("_down", "_up")) for name in trained)


def _theta0(encoder: LowRankEncoder) -> dict[str, torch.Tensor]:
    return {name: encoder.theta0(name) for name in encoder.blocks}


def test_a_task_s_vector_has_the_rank_and_the_rate_that_validation_rows_like(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {1e-9: 0.5, 1e-2: 0.75, 1e-3: 0.25}
    told = iter(scores.values())
    monkeypatch.setattr(module, "STEPS", 4)
    monkeypatch.setattr(module, "RATES", tuple(scores))
    monkeypatch.setattr(module, "_score", lambda experiment, task, tau: next(told))
    vector = lora(experiment, "one")
    assert (vector.regime, vector.cell.facts["rate"]) == ("ordinary", 1e-2)
    tau = vector.tau()
    assert {value.ndim > 1 for value in tau.values()} == {True}
    assert all(int(matrix_rank(value.flatten(1))) <= RANK for value in tau.values())
    assert all(value.abs().max() > 0 for value in tau.values())
