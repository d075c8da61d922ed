"""PEFT adapters as vectors: what PEFT itself merges into the weights, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from tacl.backbone import Backbone, load_backbone
from tacl.errors import BadCheckpoint
from tacl.interchange.adapter import CONFIG, WEIGHTS, folder_of_adapter, vector_of_adapter
from tacl.vectors.blocks import LowRank
from tests.support import bases


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return load_backbone(f"hf:{bases.bert(tmp_path_factory.mktemp('bert'))}?size=32")


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return load_backbone(f"hf:{bases.gpt2(tmp_path_factory.mktemp('gpt2'))}?size=32")


KEY = "base_model.model.encoder.layer.0.attention.self.query.lora_A.weight"


def adapted(base: str, folder: Path, model: str = "AutoModel", **settings: Any) -> Any:
    """A trained adapter in the folder, as PEFT saves it; the model that PEFT merges it into."""
    import transformers

    library = getattr(transformers, model).from_pretrained(base.removeprefix("hf:"))
    settings = {"r": 4, "lora_alpha": 6, "target_modules": ["query", "dense"], **settings}
    wrapped = peft.get_peft_model(library, peft.LoraConfig(**settings))
    torch.manual_seed(1)
    for parameter in wrapped.parameters():
        if parameter.requires_grad:
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    wrapped.save_pretrained(str(folder))
    return wrapped.merge_and_unload()


def is_merged(backbone: Backbone, folder: Path, merged: Any, part: str = "") -> dict[str, Any]:
    """theta0 + tau is PEFT's merged model, whatever tensor; the vector's blocks."""
    found = vector_of_adapter("x", backbone, folder)
    tau, weights = found.vector.to_params(), merged.state_dict()
    for name, theta0 in backbone.encoder.state_dict().items():
        if not theta0.is_floating_point():
            continue
        theta = theta0 + tau.get(name, torch.zeros(()))
        torch.testing.assert_close(
            theta, weights[part + name.removeprefix("model.")], rtol=1e-4, atol=1e-5
        )
    assert tau
    return dict(found.vector.blocks)


def base_of(backbone: Backbone) -> str:
    return backbone.spec.name


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rank-stabilised": {"use_rslora": True},
    "ranks by pattern": {"rank_pattern": {"layer.0.attention.self.query": 2, "^encoder.*key": 3}},
    "alphas by pattern": {"alpha_pattern": {r"attention.*dense": 20}, "use_rslora": True},
    "choices": {"rank_pattern": {r".*layer\.\d+\.attention\.(?:self|output)\.(query|dense)": 2}},
    "biases of all": {"bias": "all"},
    "biases of its layers": {"bias": "lora_only"},
    "biases of B": {"lora_bias": True},
    "biases of all and of B": {"bias": "all", "lora_bias": True},
    "whole layers": {"modules_to_save": ["LayerNorm"]},
    "lengths": {"use_dora": True},
    "one layer": {"layers_to_transform": [1], "layers_pattern": "layer"},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_vector_is_what_peft_merges(bert: Backbone, way: str, tmp_path: Path) -> None:
    merged = adapted(base_of(bert), tmp_path, **WAYS[way])
    assert folder_of_adapter(tmp_path) == tmp_path
    blocks = is_merged(bert, tmp_path, merged)
    weights = {name: block for name, block in blocks.items() if name.endswith("query.weight")}
    assert weights
    for block in weights.values():
        assert isinstance(block, LowRank) == (way != "lengths")
        if isinstance(block, LowRank):
            assert block.left_OR.shape[1] <= 4


def test_its_files_stand_for_their_folder(tmp_path: Path) -> None:
    assert folder_of_adapter(tmp_path) is None
    weights = tmp_path / WEIGHTS[0]
    with pytest.raises(BadCheckpoint, match=f"{CONFIG} beside it; give the folder"):
        folder_of_adapter(weights)
    (tmp_path / CONFIG).write_text("{}")
    found = {folder_of_adapter(path) for path in (tmp_path, weights, tmp_path / CONFIG)}
    assert found == {tmp_path}
    assert folder_of_adapter(tmp_path / "model.safetensors") is None


def test_below_a_task_s_model(bert: Backbone, tmp_path: Path) -> None:
    """As adapters are mostly trained: the classifier is left aside, and named."""
    merged = adapted(
        base_of(bert),
        tmp_path,
        "AutoModelForSequenceClassification",
        task_type="SEQ_CLS",
        target_modules=["query", "value"],
    )
    is_merged(bert, tmp_path, merged, part="bert.")
    found = vector_of_adapter("x", bert, tmp_path)
    assert found.aside == ("classifier.bias", "classifier.weight")
    assert any(base_of(bert) in note for note in found.notes)


def test_weights_that_are_transposed(gpt2: Backbone, tmp_path: Path) -> None:
    merged = adapted(base_of(gpt2), tmp_path, target_modules=["c_attn"], fan_in_fan_out=True)
    blocks = is_merged(gpt2, tmp_path, merged)
    assert all(isinstance(block, LowRank) for block in blocks.values())
    edit(tmp_path, fan_in_fan_out=False)
    with pytest.raises(BadCheckpoint, match="fan_in_fan_out"):
        vector_of_adapter("x", gpt2, tmp_path)


def test_convolutions(tmp_path: Path) -> None:
    import timm

    torch.manual_seed(0)
    library = timm.create_model("test_efficientnet", num_classes=0)
    weights = tmp_path / "theta0.safetensors"
    save_file(library.state_dict(), weights)
    backbone = load_backbone(f"timm:test_efficientnet@{weights}?size=32")
    config = peft.LoraConfig(r=2, target_modules=["conv_stem", "conv_head"])
    wrapped = peft.get_peft_model(library, config)
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            parameter.data.add_(torch.randn_like(parameter))
    wrapped.save_pretrained(str(tmp_path))
    merged = wrapped.merge_and_unload()
    blocks = is_merged(backbone, tmp_path, merged)
    assert {name: block.kind for name, block in blocks.items()} == {
        "conv_stem.weight": "low_rank",
        "conv_head.weight": "low_rank",
    }


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_configuration_that_is_nested_beyond_all_measure(bert: Backbone, tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text("[" * 100_000)
    with pytest.raises(BadCheckpoint, match="no adapter's configuration"):
        vector_of_adapter("x", bert, tmp_path)


def test_a_bias_where_the_base_has_none(tmp_path: Path) -> None:
    import timm

    library = timm.create_model("test_efficientnet", num_classes=0)
    weights = tmp_path / "theta0.safetensors"
    save_file(library.state_dict(), weights)
    backbone = load_backbone(f"timm:test_efficientnet@{weights}?size=32")
    wrapped = peft.get_peft_model(library, peft.LoraConfig(r=2, target_modules=["conv_stem"]))
    wrapped.save_pretrained(str(tmp_path))
    path = tmp_path / WEIGHTS[0]
    of_b = "base_model.model.conv_stem.lora_B"
    tensors = load_file(path)
    save_file({**tensors, f"{of_b}.bias": torch.ones(len(tensors[f"{of_b}.weight"]))}, path)
    with pytest.raises(BadCheckpoint, match="bias .* for conv_stem, and the base has none"):
        vector_of_adapter("x", backbone, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [(lambda t: t[:1].contiguous(), r"shape \[1\]"), (lambda t: t / 0, "infinities")],
)
def test_lengths_are_of_the_base_and_finite(
    bert: Backbone, change: Callable[[torch.Tensor], torch.Tensor], message: str, tmp_path: Path
) -> None:
    adapted(base_of(bert), tmp_path, use_dora=True)
    path = tmp_path / WEIGHTS[0]
    save_file({k: change(v) if "magnitude" in k else v for k, v in load_file(path).items()}, path)
    with pytest.raises(BadCheckpoint, match=message):
        vector_of_adapter("x", bert, tmp_path)


def test_lengths_of_rows_without_any_are_refused(bert: Backbone, tmp_path: Path) -> None:
    """W0 + BA is 0, and DoRA divides by its length."""
    adapted(base_of(bert), tmp_path, use_dora=True, r=16, lora_alpha=16)
    path = tmp_path / WEIGHTS[0]
    layer = KEY.removesuffix("lora_A.weight")
    theta0_OI = bert.encoder.state_dict()["model.encoder.layer.0.attention.self.query.weight"]
    zero = {f"{layer}lora_A.weight": torch.eye(16), f"{layer}lora_B.weight": -theta0_OI}
    save_file({**load_file(path), **zero}, path)
    with pytest.raises(BadCheckpoint, match="query.weight holds infinities or NaN"):
        vector_of_adapter("x", bert, tmp_path)


Tensors = dict[str, torch.Tensor]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another type": ({"peft_type": "IA3"}, "type IA3"),
    "principal values": ({"init_lora_weights": "pissa_niter_4"}, "changes the base's weights"),
    "quantised": ({"init_lora_weights": "loftq"}, "changes the base's weights"),
    "layers twice": ({"layer_replication": [[0, 2]]}, "layer_replication"),
    "tokens": ({"trainable_token_indices": [1, 2]}, "trainable_token_indices"),
    "parameters": ({"target_parameters": ["x"]}, "target_parameters"),
    "activated": ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
    "what nobody knows": ({"use_something_new": True}, "use_something_new"),
    "another rank": ({"r": 8}, "rank 4, and its configuration says 8"),
    "no alpha": ({"lora_alpha": None}, "no lora_alpha"),
    "alpha without end": ({"lora_alpha": 10**400}, "no lora_alpha"),
    "odd pattern": ({"rank_pattern": {"(": 3}}, "pattern"),
    "a pattern without end": ({"alpha_pattern": {"([a-z.0-9]+)+x": 3}}, "for ever"),
    "one with spaces": ({"alpha_pattern": {"(?x:([a-z.0-9]+) +x)": 3}}, "for ever"),
    "many repetitions": ({"alpha_pattern": {".*" * 20 + "x": 3}}, "for ever"),
    "many alternatives": ({"alpha_pattern": {"(.|.)" * 30 + "x": 3}}, "for ever"),
    "much that may be left out": ({"rank_pattern": {".?" * 40 + "x": 3}}, "for ever"),
    "many patterns": ({"alpha_pattern": {f"layer.{n}": 3 for n in range(10_000)}}, "for ever"),
    "long patterns": ({"alpha_pattern": {f"{n:0900}": 3 for n in range(1000)}}, "for ever"),
    "a deep pattern": ({"alpha_pattern": {"(" * 999: 3}}, "cannot be read"),
    "a large number": ({"alpha_pattern": {"x{99999999999999999999}": 3}}, "cannot be read"),
    "patterns that are no table": ({"alpha_pattern": ["query"]}, "pattern"),
    "lengths it has not": ({"use_dora": True}, "lora_magnitude_vector"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_configurations_that_are_refused(bert: Backbone, case: str, tmp_path: Path) -> None:
    changes, message = REFUSED[case]
    adapted(base_of(bert), tmp_path)
    edit(tmp_path, **changes)
    with pytest.raises(BadCheckpoint, match=message):
        vector_of_adapter("x", bert, tmp_path)


Change = Callable[[Tensors], Tensors]
BROKEN: dict[str, tuple[Change, str]] = {
    "a half": (lambda t: {k: v for k, v in t.items() if k != KEY}, "no lora_A.weight"),
    "another shape": (lambda t: {**t, KEY: t[KEY][:, :5].contiguous()}, r"and the base's weight"),
    "no matrix": (lambda t: {**t, KEY: t[KEY][0].contiguous()}, "no matrix"),
    "nothing of a matrix": (lambda t: {**t, KEY: t[KEY][:0].contiguous()}, "no matrix"),
    "another layer": (
        lambda t: {k.replace("layer.1.", "layer.7."): v for k, v in t.items()},
        "unknown to the base .*layer.7",
    ),
    "another model": (
        lambda t: {k.replace("encoder.", "decoder."): v for k, v in t.items()},
        "nothing of the base model",
    ),
    "an embedding": (
        lambda t: {
            **t,
            "base_model.model.embeddings.word_embeddings.lora_embedding_A": t[KEY].clone(),
        },
        "lora_embedding_A is no part",
    ),
    "not finite": (lambda t: {**t, KEY: t[KEY] / 0}, "infinities"),
    "codes": (lambda t: {**t, KEY: (100 * t[KEY]).to(torch.int8)}, "lora_A.* holds int8"),
    "a product that is not finite": (
        lambda t: {k: torch.full_like(v, 1e30) for k, v in t.items()},
        "infinities",
    ),
    "in full and by matrices": (
        lambda t: {**t, KEY.replace("lora_A", "base_layer"): torch.ones(16, 16)},
        r"in full and LoRA matrices of \['encoder.layer.0.attention.self.query'\]",
    ),
    "other names": (lambda t: {k.removeprefix("base_"): v for k, v in t.items()}, "begin with"),
    "nothing": (lambda t: {}, "changes no layer"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_weights_that_are_refused(bert: Backbone, case: str, tmp_path: Path) -> None:
    change, message = BROKEN[case]
    adapted(base_of(bert), tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    save_file(change(load_file(path)), path)
    with pytest.raises(BadCheckpoint, match=message):
        vector_of_adapter("x", bert, tmp_path)
    path.unlink()
    with pytest.raises(BadCheckpoint, match="has no weights"):
        vector_of_adapter("x", bert, tmp_path)
