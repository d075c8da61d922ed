"""Whole, unchanged models of open_clip, transformers and timm against torch.func.jvp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import open_clip
import pytest
import timm
import torch
import transformers
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacl.dual import fallbacks
from tacl.models.linearized import LinearizedEncoder
from tests.support import bases
from tests.support.forward_mode import close

PICTURES = torch.linspace(-1, 1, 2 * 3 * 32 * 32, dtype=torch.float64).sin().view(2, 3, 32, 32)
TOKENS = {
    "input_ids": torch.tensor([[3, 41, 7, 7, 20, 5], [9, 2, 60, 0, 0, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]),
}


@pytest.fixture(autouse=True)
def _attention_with_a_derivative() -> Iterator[None]:
    """The fused path of nn.MultiheadAttention has none, which the oracle would need."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


class Pooled(nn.Module):
    """A transformers model as an encoder: the mean of its states over the real tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        states_BLD = self.model(**batch).last_hidden_state
        mask_BL1 = batch["attention_mask"].unsqueeze(-1).to(states_BLD.dtype)
        return (states_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)


def clip(**vision: Any) -> nn.Module:
    text = {"context_length": 8, "vocab_size": 16, "width": 16, "heads": 1, "layers": 1}
    quick_gelu = vision.pop("quick_gelu", False)
    vision = {"image_size": 32, "width": 16, "head_width": 8, "layers": 2, **vision}
    model = open_clip.CLIP(16, vision, text, quick_gelu=quick_gelu)  # pyright: ignore[reportArgumentType]
    return model.visual


def bert(**more: Any) -> nn.Module:
    config = transformers.BertConfig(vocab_size=64, **bases.BERT, **more)
    return Pooled(transformers.BertModel(config, add_pooling_layer=False))


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0, **bases.GPT2
    )
    return Pooled(transformers.GPT2Model(config))


def distilbert() -> nn.Module:
    config = transformers.DistilBertConfig(
        vocab_size=64, dim=16, n_layers=2, n_heads=2, hidden_dim=32
    )
    return Pooled(transformers.DistilBertModel(config))


def convolutional(name: str) -> nn.Module:
    return timm.create_model(name, num_classes=0)


IMAGE_MODELS: dict[str, Callable[[], nn.Module]] = {
    "open_clip ViT": lambda: clip(patch_size=8),
    "open_clip ViT, quick gelu": lambda: clip(patch_size=8, quick_gelu=True),
    "open_clip ResNet": lambda: clip(patch_size=None, layers=[1, 1, 1, 1]),
    "timm tf_efficientnet_lite0": lambda: convolutional("tf_efficientnet_lite0"),
    "timm resnet18": lambda: convolutional("resnet18"),
}
TEXT_MODELS: dict[str, Callable[[], nn.Module]] = {
    "BERT": bert,
    "BERT, eager attention": lambda: bert(attn_implementation="eager"),
    "DistilBERT": distilbert,
    "GPT-2": gpt2,
}


def made(build: Callable[[], nn.Module]) -> nn.Module:
    """The model with random weights, norms and statistics, in eval mode and float64."""
    torch.manual_seed(0)
    model = build().eval().double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # zero in a new model, which would hide a missing term
                parameter.uniform_(-0.2, 0.2)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.uniform_(-0.2, 0.2)
    return model


def check_model(encoder: nn.Module, batch: Any, trainable: tuple[str, ...] = ("*",)) -> None:
    """Features, J tau and J^T g of the linearized encoder; nothing is left to the fallback."""
    module = LinearizedEncoder(encoder, trainable)
    theta0 = {name: module.theta0(name) for name in module.blocks}
    tau = {name: torch.randn_like(value) * 0.1 for name, value in theta0.items()}
    module.load_tau(tau)
    fallbacks.clear()
    features_BD, tangent_BD = module(batch)
    assert not fallbacks

    def encode(params: dict[str, Tensor]) -> Tensor:
        return functional_call(encoder, params, (batch,))

    with sdpa_kernel(SDPBackend.MATH):
        expected_BD, expected_tangent_BD = jvp(encode, (theta0,), (tau,))  # pyright: ignore[reportAssignmentType]
    close(features_BD, expected_BD, 1e-10)
    close(tangent_BD, expected_tangent_BD, 1e-10)
    assert expected_tangent_BD.abs().max() > 1e-3

    g_BD = torch.randn_like(tangent_BD)
    tangent_BD.backward(g_BD)
    weights = {name: value.clone().requires_grad_() for name, value in theta0.items()}
    with sdpa_kernel(SDPBackend.MATH):
        loss = (encode(weights) * g_BD).sum()
    gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    for parameter, expected in zip(module.parameters(), gradients, strict=True):
        assert (parameter.grad is None) == (expected is None)
        if expected is not None:
            assert parameter.grad is not None
            close(parameter.grad, expected, 1e-9)


@pytest.mark.parametrize("build", IMAGE_MODELS.values(), ids=IMAGE_MODELS.keys())
def test_image_encoder_agrees_with_jvp(build: Callable[[], nn.Module]) -> None:
    check_model(made(build), PICTURES)


@pytest.mark.parametrize("build", TEXT_MODELS.values(), ids=TEXT_MODELS.keys())
def test_text_encoder_with_padding_agrees_with_jvp(build: Callable[[], nn.Module]) -> None:
    check_model(made(build), TOKENS)


def test_only_the_upper_blocks_of_a_text_encoder() -> None:
    check_model(made(bert), TOKENS, ("model.encoder.layer.1.*",))


@pytest.mark.parametrize("build", [bert, IMAGE_MODELS["timm resnet18"]])
def test_model_in_train_mode_is_refused(build: Callable[[], nn.Module]) -> None:
    encoder = made(build)
    encoder.train()
    with pytest.raises(ValueError, match="train mode"):
        LinearizedEncoder(encoder)
    module = LinearizedEncoder(encoder.eval())
    next(m for m in encoder.modules() if isinstance(m, nn.Dropout | nn.BatchNorm2d)).train()
    with pytest.raises(ValueError, match="train mode"):
        module(TOKENS if build is bert else PICTURES)


def test_bfloat16_is_near_float32() -> None:
    encoder = made(bert).float()
    exact, rounded = LinearizedEncoder(encoder), LinearizedEncoder(encoder, dtype=torch.bfloat16)
    tau = {name: torch.randn_like(exact.theta0(name)) * 0.1 for name in exact.blocks}
    results = []
    for module in (exact, rounded):
        module.load_tau(tau)
        features_BD, tangent_BD = module(TOKENS)
        tangent_BD.sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in module.tau.values() if p.grad is not None])
        results.append((features_BD, tangent_BD, gradient))
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype == torch.float32
        assert (a - b).norm() < 0.05 * a.norm()
