"""The linearized encoder: what it computes, what it trains, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from tacl.models.frozen import trainable_blocks
from tacl.models.linearized import LinearizedEncoder
from tacl.models.ordinary import OrdinaryEncoder
from tacl.vectors.params import Params, combine


class Encoder(nn.Module):
    """Names with dots, statistics, an integer buffer, a tied weight and an in-place activation."""

    offsets: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(8, 6)
        self.body = nn.Sequential(
            nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.LayerNorm(6)
        )
        self.out = nn.Linear(6, 8, bias=False)
        self.out.weight = self.tokens.weight  # tied
        self.register_buffer("offsets", torch.tensor([0, 1, 2]))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        states_BLD = self.tokens(batch["ids"] + self.offsets)
        return self.out(self.body((states_BLD * batch["weights"]).sum(1)))


@pytest.fixture
def encoder() -> Encoder:
    torch.manual_seed(0)
    encoder = Encoder()
    for name, buffer in encoder.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return encoder.eval()


BATCH = {
    "ids": torch.tensor([[0, 1, 2], [5, 3, 1], [2, 2, 2], [4, 0, 3]]),
    "weights": torch.linspace(-1, 2, 12).view(4, 3, 1),
}


def random_tau(module: LinearizedEncoder, seed: int) -> Params:
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(module.theta0(n).shape, generator=generator) for n in module.blocks}


def test_features_and_tangent_are_those_of_jvp(encoder: Encoder) -> None:
    module = LinearizedEncoder(encoder)
    tau = random_tau(module, 0)
    module.load_tau(tau)
    theta0 = {name: p.detach() for name, p in encoder.named_parameters()}
    expected = jvp(lambda p: functional_call(encoder, p, (BATCH,)), (theta0,), (tau,))
    features_BD, tangent_BD = module(BATCH)
    torch.testing.assert_close(features_BD, expected[0])
    torch.testing.assert_close(tangent_BD, expected[1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module.linearized(BATCH), features_BD + tangent_BD)


def test_tangent_is_linear_in_tau(encoder: Encoder) -> None:
    module = LinearizedEncoder(encoder)
    a, b = random_tau(module, 1), random_tau(module, 2)
    tangents = []
    for tau in (a, b, combine([(2.0, a), (-3.0, b)])):
        module.load_tau(tau)
        tangents.append(module(BATCH)[1])
    expected = 2 * tangents[0] - 3 * tangents[1]
    torch.testing.assert_close(tangents[2], expected, rtol=1e-4, atol=1e-4)


def test_tau_starts_at_zero_and_is_all_that_is_trained(encoder: Encoder) -> None:
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    module = LinearizedEncoder(encoder)
    assert not module(BATCH)[1].any()
    assert torch.equal(module.linearized(BATCH), encoder(BATCH))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        loss = (module.linearized(BATCH) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert all(p.grad is None for p in encoder.parameters())
    assert all(value.any() for value in module.tau_dict().values())


def test_only_tau_is_saved_and_theta0_is_not_copied(encoder: Encoder) -> None:
    module = LinearizedEncoder(encoder, ["body.*"])
    assert set(module.state_dict()) == {f"tau.{n.replace('.', '/')}" for n in module.blocks}
    assert sum(1 for _ in module.parameters()) == len(module.blocks) == 6
    for name, value in [*encoder.named_parameters(), *encoder.named_buffers()]:
        assert module.theta0(name).data_ptr() == value.data_ptr()


def test_blocks_are_chosen_by_pattern_in_the_order_of_the_module(encoder: Encoder) -> None:
    assert trainable_blocks(encoder, ["body.3.*", "body.0.weight"]) == [
        "body.0.weight",
        "body.3.weight",
        "body.3.bias",
    ]
    module = LinearizedEncoder(encoder, ["body.*"])
    assert list(module.tau_dict()) == module.blocks
    assert [p.shape for p in module.parameters()] == [module.theta0(n).shape for n in module.blocks]
    with pytest.raises(ValueError, match=r"no parameter matches \['layers.*'\].*tokens.weight"):
        LinearizedEncoder(encoder, ["layers.*"])


def test_frozen_blocks_have_no_tangent(encoder: Encoder) -> None:
    module = LinearizedEncoder(encoder, ["body.0.*"])
    tau = random_tau(module, 3)
    module.load_tau(tau)
    everything = LinearizedEncoder(encoder)
    everything.load_tau(tau)
    torch.testing.assert_close(module(BATCH), everything(BATCH))


def test_blocks_that_do_not_reach_the_features(encoder: Encoder) -> None:
    encoder.unused = nn.Linear(2, 2).eval()
    module = LinearizedEncoder(encoder, ["unused.*"])
    module.load_tau(random_tau(module, 4))
    features_BD, tangent_BD = module(BATCH)
    assert features_BD.shape == tangent_BD.shape
    assert not tangent_BD.any()


def test_bfloat16_casts_theta0_and_keeps_tau_in_float32(encoder: Encoder) -> None:
    module = LinearizedEncoder(encoder, dtype=torch.bfloat16)
    assert module.theta0("body.0.weight").dtype == torch.bfloat16
    assert module.theta0("body.1.running_mean").dtype == torch.bfloat16
    assert module.theta0("offsets").dtype == torch.int64
    assert {p.dtype for p in module.parameters()} == {torch.float32}
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    module.load_tau(random_tau(module, 5))
    outputs = module(BATCH)
    assert [x.dtype for x in outputs] == [torch.float32] * 2
    outputs[1].sum().backward()
    assert {p.grad.dtype for p in module.parameters() if p.grad is not None} == {torch.float32}


def test_float64_encoder_is_linearized_in_float64(encoder: Encoder) -> None:
    module = LinearizedEncoder(encoder.double())
    features_BD, tangent_BD = module(BATCH)  # the float32 input is cast, token ids are not
    assert features_BD.dtype == tangent_BD.dtype == torch.float64
    assert {p.dtype for p in module.parameters()} == {torch.float64}


def test_hooks_run_and_the_encoder_keeps_its_own_weights(encoder: Encoder) -> None:
    seen: list[Any] = []
    handle = encoder.body.register_forward_hook(lambda module, args, output: seen.append(output))
    module = LinearizedEncoder(encoder)
    own = dict(encoder.named_parameters())
    module(BATCH)
    assert len(seen) == 1
    assert all(p is own[name] for name, p in encoder.named_parameters())
    handle.remove()


def test_train_mode(encoder: Encoder) -> None:
    module = LinearizedEncoder(encoder)
    module.train()  # engines do this: it concerns tau alone
    module(BATCH)
    encoder.body[1].train()
    with pytest.raises(ValueError, match=r"train mode \(body.1\): call encoder.eval"):
        module(BATCH)
    with pytest.raises(ValueError, match="train mode"):
        LinearizedEncoder(encoder)


def test_load_tau_sets_all_blocks_or_refuses(encoder: Encoder) -> None:
    module = LinearizedEncoder(encoder, ["body.*"])
    tau = random_tau(module, 6)
    module.load_tau(tau)
    copy = module.tau_dict()
    copy["body.0.bias"].zero_()
    torch.testing.assert_close(module.tau_dict(), tau)
    with pytest.raises(ValueError, match=r"does not train: \['tokens.weight'\]"):
        module.load_tau({"tokens.weight": torch.zeros(8, 6)})
    with pytest.raises(ValueError, match=r"body.0.bias is \[1\], here \[6\]"):
        module.load_tau({**tau, "body.3.bias": torch.ones(6), "body.0.bias": torch.ones(1)})
    torch.testing.assert_close(module.tau_dict(), tau)
    module.load_tau({"body.0.bias": torch.ones(6)})
    assert {n for n, value in module.tau_dict().items() if value.any()} == {"body.0.bias"}


class Keeps(nn.Module):
    """Keeps what it makes of its weight, as attention biases of some encoders."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(2))
        self.cache: dict[str, Tensor] = {}

    def train(self, mode: bool = True) -> Keeps:
        self.cache.clear()
        return super().train(mode)

    def forward(self, batch_BD: Tensor) -> Tensor:
        if "bias" not in self.cache:
            self.cache["bias"] = self.bias[torch.tensor([1, 0])]
        return batch_BD + self.cache["bias"]


def test_an_encoder_that_keeps_what_it_makes_of_its_weights_is_refused() -> None:
    encoder = Keeps().eval()
    encoder(torch.ones(3, 2))  # a plain pass, whose tensors a tangent would be missing of
    module = LinearizedEncoder(encoder)
    with pytest.raises(ValueError, match=r"keeps \.cache"):
        module(torch.ones(3, 2))


def test_what_torch_makes_anew_in_each_pass_is_kept_by_nobody() -> None:
    rows_BLD = torch.ones(2, 3, 4)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(4, 5, batch_first=True)

        def forward(self, batch_BLD: Tensor) -> Tensor:
            return self.cell(batch_BLD)[0][:, -1]

    module = OrdinaryEncoder(Last().eval(), ["*"])
    found = [module(rows_BLD)[0] for _ in range(2)]
    assert torch.equal(*found)
    found[0].sum().backward()


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x + x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] + gradients[0]


class Within(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(2, 2), how

    def forward(self, batch_BD: Tensor) -> Tensor:
        moved_BD = self.layer(batch_BD)
        if self.how == "function":
            return moved_BD + Doubles.apply(moved_BD)
        with torch.set_grad_enabled(self.how != "no_grad"):
            return moved_BD + moved_BD


@pytest.mark.parametrize("how", ["function", "no_grad"])
def test_where_the_gradient_of_tau_would_be_lost_a_pass_is_refused(how: str) -> None:
    """Its tangent would be right."""
    module = LinearizedEncoder(Within(how).eval())
    with pytest.raises(NotImplementedError, match="gradient of tau would be lost"):
        module(torch.ones(3, 2))
    with torch.no_grad():  # nobody asks for one
        assert module(torch.ones(3, 2))[1].abs().sum() == 0
    LinearizedEncoder(Within("plain").eval())(torch.ones(3, 2))


def test_tau_is_contiguous_however_the_weights_lie() -> None:
    """As of an encoder in channels_last; else a checkpoint could not be written."""
    encoder = nn.Sequential(nn.Conv2d(2, 3, 3)).eval().to(memory_format=torch.channels_last)
    assert not next(encoder.parameters()).is_contiguous()
    module = LinearizedEncoder(encoder)
    assert all(parameter.is_contiguous() for parameter in module.parameters())


class Recurrent(nn.Module):
    """A bidirectional LSTM of two layers: its kernel on a CPU has no forward derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, rows_BLI: Tensor) -> Tensor:
        return self.cells(rows_BLI)[0].mean(1)


def test_an_lstm_is_linearized_and_trained_on_a_cpu() -> None:
    torch.manual_seed(0)
    encoder, rows_BLI = Recurrent().eval(), torch.randn(3, 6, 4)
    module = LinearizedEncoder(encoder)
    module.load_tau(random_tau(module, 1))
    features_BD, tangent_BD = module(rows_BLI)
    tangent_BD.square().sum().backward()
    exact = Recurrent().eval().double()
    exact.load_state_dict(encoder.state_dict())
    expected = LinearizedEncoder(exact)
    expected.load_tau({name: tau.double() for name, tau in module.tau_dict().items()})
    found_BD, along_BD = expected(rows_BLI.double())
    along_BD.square().sum().backward()
    pairs = [(features_BD, found_BD), (tangent_BD, along_BD)]
    both = zip(module.parameters(), expected.parameters(), strict=True)
    pairs += [(one.grad, two.grad) for one, two in both]
    for got, wanted in pairs:
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)
    assert torch._C._get_mkldnn_enabled()
