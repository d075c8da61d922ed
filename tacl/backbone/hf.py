"""Text encoders of the transformers library: BERT-like encoders and GPT-2-like decoders."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from tacl.backbone import hub
from tacl.backbone.core import Backbone, present_blocks
from tacl.backbone.inputs import Texts
from tacl.backbone.padding import ends
from tacl.spec import BaseSpec, is_path

MAX_TOKENS = 128
PADDED = 1e-3  # the relative change of features by padding that rounding can explain
LOGIT_SCALE = 20.0
TEMPLATES = ("This is about {}.",)
# As sentence-transformers names them.
POOLINGS = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
TRAINABLE = (  # the transformer layers of each family; embeddings stay as they are
    "model.encoder.*",  # BERT, RoBERTa, ELECTRA, MPNet
    "model.transformer.*",  # DistilBERT
    "model.layers.*",  # ModernBERT, Llama, Qwen
    "model.h.*",  # GPT-2, BLOOM
    "model.final_norm.*",
    "model.norm.*",
    "model.ln_f.*",
)


class SentenceEncoder(nn.Module):
    """Pooled token features [B, D] of a transformers model."""

    def __init__(self, model: nn.Module, pooling: str) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        mask_BL = batch["attention_mask"]
        tokens_BLD = self.model(
            input_ids=batch["input_ids"], attention_mask=mask_BL, return_dict=True
        ).last_hidden_state
        if self.pooling == "cls":
            return tokens_BLD[:, 0]
        if self.pooling == "last":
            rows = torch.arange(mask_BL.shape[0], device=mask_BL.device)
            return tokens_BLD[rows, ends(mask_BL) - 1]
        weights_BL1 = (mask_BL / mask_BL.sum(1, keepdim=True)).unsqueeze(-1)
        return (tokens_BLD * weights_BL1.to(tokens_BLD.dtype)).sum(1)


def load(spec: BaseSpec) -> Backbone:
    """Raises BaseNotFound when there is nothing to load, BadBase when it cannot be used."""
    model, tokenizer, pooling = whole_model(spec)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # features are pooled here; an unused block must not be part of theta0
    if model.config.model_type == "bloom":
        _use_differentiable_gelu(model)
    encoder = SentenceEncoder(model, pooling)
    inputs = Texts(tokenizer, spec.size or MAX_TOKENS)
    _require_positions(spec, model, inputs.size)
    trainable = present_blocks(spec, encoder, TRAINABLE)

    tower = partial(_encoded, encoder, inputs)
    variant = f"pooling={pooling}"
    base = Backbone(spec, encoder, inputs, trainable, LOGIT_SCALE, TEMPLATES, tower, variant)
    _require_no_effect_of_padding(base)
    return base


def _use_differentiable_gelu(model: Any) -> None:
    """The same function, up to rounding; BLOOM's own has no gradient of a derivative."""
    for block in model.h:
        block.mlp.gelu_impl = nn.GELU(approximate="tanh")


def _require_no_effect_of_padding(base: Backbone) -> None:
    """Encodes a short text alone, and beside a longer one. Raises BadBase if its features differ,
    as they do where convolutions read padding: f would depend on the other rows of a batch."""
    try:
        short, long = (base.prepare(" ".join(["word"] * words)) for words in (1, 24))
        alone, beside = (base.plain(base.collate(some))[0] for some in ([short], [short, long]))
    except Exception as error:  # models that cannot run on texts fail in many ways
        raise base.spec.unusable(f"it encodes no text: {hub.first_line(error)}") from error
    change = ((beside - alone).norm() / alone.norm().clamp_min(1e-12)).item()
    if not change <= PADDED:
        raise base.spec.unusable(
            f"padding changes its features, here by {change:.1%}, so that they would depend on the "
            "other texts of a batch; give a model whose attention mask hides padding"
        )


def _encoded(encoder: nn.Module, inputs: Texts, texts: Sequence[str]) -> Tensor:
    device = next(encoder.parameters()).device
    return encoder(inputs.collate([inputs.prepare(text) for text in texts], device))


def whole_model(spec: BaseSpec) -> tuple[Any, Any, str]:
    """The library's model, its tokenizer and how tokens are pooled; raises what `load` does."""
    with _access(spec) as where:
        return _read(spec, where)


def _access(spec: BaseSpec) -> AbstractContextManager[str]:
    directory = spec.folder
    if os.path.isdir(directory):
        if not (directory / "config.json").is_file():
            raise spec.missing(f"the directory {directory} has no config.json")
        return nullcontext(f"the directory {directory}")
    if is_path(spec.name):
        raise spec.missing(f"there is no directory {directory.absolute()}")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", spec.name):
        raise spec.missing(f"{spec.name!r} is neither a directory nor a hub id")
    return hub.within_reach()


def _read(spec: BaseSpec, where: str) -> tuple[Any, Any, str]:
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    source = str(spec.folder)
    logging.disable_progress_bar()
    options = {"revision": spec.weights} if spec.weights else {}
    try:
        model, report = AutoModel.from_pretrained(
            source,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        pooling = _pooling(source, spec.weights, model)
    except OSError as error:
        raise spec.missing(
            f"no directory {source}, or incomplete; looked in {where}: "
            f"{hub.first_line(error)}; give a directory with config.json, model.safetensors and "
            "tokenizer files"
        ) from error
    except (SafetensorError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise spec.unusable(f"found in {where} and not usable: {hub.first_line(error)}") from error
    _require_text_encoder(spec, model)
    _require_weights(spec, where, model, report)
    return model, tokenizer, pooling


def _require_text_encoder(spec: BaseSpec, model: Any) -> None:
    if model.config.is_encoder_decoder or model.main_input_name != "input_ids":
        raise spec.unusable(
            f"{type(model).__name__} is no plain text encoder or decoder; "
            "image encoders are loaded with open_clip: or timm:"
        )


def _require_weights(spec: BaseSpec, where: str, model: Any, report: Any) -> None:
    missing = sorted(k for k in report["missing_keys"] if not k.startswith("pooler."))
    if len(missing) < len(report["missing_keys"]):
        model.pooler = None  # it was never trained
    if missing:
        raise spec.unusable(
            f"the weights in {where} lack {len(missing)} parameters of "
            f"{type(model).__name__}, such as {missing[:3]}; give the weights of this architecture"
        )


def _require_positions(spec: BaseSpec, model: Any, size: int) -> None:
    known = getattr(model.config, "max_position_embeddings", None)
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    if known is not None and padding is not None:  # as in RoBERTa, which counts from after it
        known -= padding + 1
    if known is not None and size > known:
        raise spec.unusable(f"size={size} tokens, but the model has {known} positions")


def _pooling(source: str, revision: str | None, model: Any) -> str:
    """The pooling in sentence-transformers' config; else "last" for decoders, "mean" for others."""
    from transformers.utils.hub import cached_file

    path = cached_file(
        source,
        "1_Pooling/config.json",
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        causal = any("CausalLM" in n or "LMHead" in n for n in model.config.architectures or ())
        return "last" if causal or model.config.model_type == "gpt2" else "mean"
    settings = json.loads(Path(path).read_text())
    chosen = [m for m, key in POOLINGS.items() if settings.get(f"pooling_mode_{key}")]
    if len(chosen) != 1:
        raise ValueError(
            f"{path} asks for a pooling other than one of {sorted(POOLINGS)}: {settings}"
        )
    return chosen[0]
