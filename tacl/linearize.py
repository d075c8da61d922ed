"""f_lin(x; tau) = f(x; theta0) + J(x) tau, by one dual pass through the unchanged encoder.

Source: arXiv 2305.12827, equation 4; the cost is counted in "As cheap as it can be" of
ARCHITECTURE.md. theta0 are buffers, tau the only parameters: an engine that wraps this module
sees an ordinary module.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacl.dual import DualTensor, primal, tangent
from tacl.params import Params

Batch = Tensor | dict[str, Tensor]


def trainable_blocks(encoder: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Names of the parameters that some pattern matches, in the module's order.

    Raises ValueError when nothing matches.
    """
    names = [name for name, _ in encoder.named_parameters()]
    chosen = [n for n in names if any(fnmatchcase(n, pattern) for pattern in patterns)]
    if not chosen:
        raise ValueError(f"no parameter matches {list(patterns)}; there are {names[:8]} ...")
    return chosen


def require_eval(encoder: nn.Module) -> None:
    """Raises ValueError, naming the first module that is in train mode."""
    training = next((name for name, module in encoder.named_modules() if module.training), None)
    if training is not None:
        raise ValueError(f"the encoder is in train mode ({training or 'all'}): call encoder.eval()")


class LinearizedEncoder(nn.Module):
    """The encoder's tangent model around theta0.

    Args:
        encoder: `encoder(batch) -> features_BD`, in eval mode; it is neither changed nor trained.
        trainable: name patterns (fnmatch) of the blocks that tau moves.
        dtype: arithmetic of the pass; tau stays float32 and is cast on the way in.

    Raises:
        ValueError: a module of the encoder is in train mode, or no block matches.
    """

    def __init__(
        self,
        encoder: nn.Module,
        trainable: Sequence[str] = ("*",),
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_eval(encoder)
        self._encoder = (encoder,)  # in a tuple: its parameters are not parameters of this module
        self.blocks = trainable_blocks(encoder, trainable)
        parameters = dict(encoder.named_parameters())
        self._frozen: list[str] = []
        for name, value in [*parameters.items(), *encoder.named_buffers()]:
            value = value.detach()
            if dtype is not None and value.is_floating_point():
                value = value.to(dtype)
            self.register_buffer(_slot(name), value, persistent=False)
            if name not in self.blocks:
                self._frozen.append(name)
        self.tau = nn.ParameterDict(  # pairs keep the module's order, a dict would be sorted
            [(_key(n), nn.Parameter(torch.zeros_like(parameters[n]).float())) for n in self.blocks]
        )
        if dtype is None and any(parameters[n].dtype == torch.float64 for n in self.blocks):
            self.tau.double()

    def theta0(self, name: str) -> Tensor:
        """One pre-trained parameter or buffer."""
        return self.get_buffer(_slot(name))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(f(x; theta0), J(x) tau), both [B, D] in tau's precision.

        Raises ValueError when the encoder was put into train mode meanwhile.
        """
        require_eval(self._encoder[0])
        weights: dict[str, Tensor] = {name: self.theta0(name) for name in self._frozen}
        for name in self.blocks:
            theta0 = self.theta0(name)
            tau = self.tau[_key(name)].to(theta0.dtype)
            weights[name] = DualTensor(theta0, tau)
        features = functional_call(self._encoder[0], weights, (_cast(batch, self),), strict=True)
        direction = tangent(features)
        features_BD = primal(features)
        tangent_BD = torch.zeros_like(features_BD) if direction is None else direction
        precision = self.tau[_key(self.blocks[0])].dtype
        return features_BD.to(precision), tangent_BD.to(precision)

    def linearized(self, batch: Batch) -> Tensor:
        """f(x; theta0) + J(x) tau, [B, D]."""
        features_BD, tangent_BD = self(batch)
        return features_BD + tangent_BD

    def tau_dict(self) -> Params:
        """A copy of tau by block name."""
        return {name: self.tau[_key(name)].detach().clone() for name in self.blocks}

    @torch.no_grad()
    def load_tau(self, tau: Params) -> None:
        """Set tau; blocks that `tau` does not name become zero.

        Raises ValueError, before anything is set, when `tau` names a block that is not trained
        here or has another shape.
        """
        unknown = sorted(set(tau) - set(self.blocks))
        if unknown:
            raise ValueError(f"tau names blocks that this encoder does not train: {unknown[:5]}")
        for name, value in tau.items():
            expected = self.theta0(name).shape
            if value.shape != expected:
                raise ValueError(f"tau's {name} is {list(value.shape)}, here {list(expected)}")
        for name in self.blocks:
            slot = self.tau[_key(name)]
            slot.copy_(tau[name]) if name in tau else slot.zero_()


def _cast(batch: Batch, module: LinearizedEncoder) -> Batch:
    """Floating inputs in the precision of theta0."""
    precision = module.theta0(module.blocks[0]).dtype

    def cast(x: Tensor) -> Tensor:
        return x.to(precision) if x.is_floating_point() else x

    if isinstance(batch, dict):
        return {key: cast(value) for key, value in batch.items()}
    return cast(batch)


def _slot(name: str) -> str:
    return "theta0/" + _key(name)


def _key(name: str) -> str:
    """Parameter names without dots, which torch reserves."""
    return name.replace(".", "/")
