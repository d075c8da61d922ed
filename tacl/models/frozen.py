"""theta0 as a constant, and the outputs of the pre-trained encoder at other weights.

Two models are built on theta0. The linearized one is f(x; theta0) + J(x) tau; the ordinary one is
f(x; theta0 + tau). `Regime` says in which of them a vector was trained. theta0 is never a
parameter: an engine that wraps such a module sees an ordinary module with few parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tacl.backbone.core import matching
from tacl.backbone.padding import Batch, cast, passes
from tacl.dual import DualTensor, primal, tangent
from tacl.dual.encode import encode
from tacl.dual.tensor import RECORDING
from tacl.vectors import Params, Regime


def trainable_blocks(encoder: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Names of the parameters that some pattern matches, in the module's order.

    Raises ValueError when nothing matches.
    """
    chosen = matching(encoder, patterns)
    if not chosen:
        names = [name for name, _ in encoder.named_parameters()]
        raise ValueError(f"no parameter matches {list(patterns)}; there are {names[:8]} ...")
    return chosen


def require_eval(encoder: nn.Module) -> None:
    """Raises ValueError, naming the first module that is in train mode."""
    training = next((name for name, module in encoder.named_modules() if module.training), None)
    if training is not None:
        raise ValueError(f"the encoder is in train mode ({training or 'all'}): call encoder.eval()")


def refuse_autocast(device: torch.device) -> None:
    """Raises ValueError inside `torch.autocast`, which would cast theta0 and lose tau's digits."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        raise ValueError(
            f"torch.autocast is on for {kind}: a pass has the precision of its module; call "
            "it outside, and make the module with dtype=torch.bfloat16 for passes in bfloat16"
        )


def _require_nothing_kept(encoder: nn.Module) -> None:
    """Raises ValueError if a module keeps a value computed from its weights for later passes, which
    may have other weights."""
    for name, module in encoder.named_modules():
        hooks = module._forward_pre_hooks.values()
        # Recomputed in each pass, as by weight_norm.
        anew = {getattr(hook, "name", None) for hook in hooks}
        if isinstance(module, nn.RNNBase):
            anew.add("_flat_weights")  # recomputed when a weight is replaced
        for key, value in vars(module).items():
            if key in ("_parameters", "_buffers", "_modules") or key in anew:
                continue
            if any(_is_made(one) for one in tree_leaves(value)):
                raise ValueError(
                    f"the encoder keeps {name}.{key}, which it made of its weights, from pass to "
                    "pass; let it make it anew in each"
                )


def _is_made(value: object) -> bool:
    return isinstance(value, DualTensor) or (isinstance(value, Tensor) and value.requires_grad)


class FrozenEncoder(nn.Module):
    """theta0, and one pass of the unchanged encoder with some blocks at other values.

    Args:
        encoder: `encoder(batch) -> features_BD`, in eval mode; it is neither changed nor trained.
        trainable: name patterns (fnmatch) of the blocks that may have other values.
        dtype: of the pass; its results are in `precision`.

    Raises:
        ValueError: a module of the encoder is in train mode, or no block matches. In a pass also:
            `torch.autocast` is on, or the encoder writes one of its buffers, so that f would
            differ from pass to pass. The first pass uses copies of buffers: theta0 is unchanged.
    """

    regime: Regime
    precision: torch.dtype

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
        double = any(parameters[n].dtype == torch.float64 for n in self.blocks)
        self.precision = torch.float64 if double and dtype is None else torch.float32
        self._buffers_of_encoder = [name for name, _ in encoder.named_buffers()]
        self._is_tried = False

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """`to(device)` moves the encoder too, which shares memory with theta0."""
        super()._apply(fn, recurse)
        encoder = self._encoder[0].to(self.theta0(self.blocks[0]).device)
        for name, value in (*encoder.named_parameters(), *encoder.named_buffers()):
            if value.dtype == self.theta0(name).dtype:
                self.register_buffer(_slot(name), value.detach(), persistent=False)
        return self

    def theta0(self, name: str) -> Tensor:
        """The pre-trained parameter or buffer of this name."""
        return self.get_buffer(_slot(name))

    def tau_by_block(self) -> Params:
        """tau, which is added to theta0, by block name, with its autograd graph."""
        raise NotImplementedError

    def tau_dict(self) -> Params:
        """A copy of tau, which is added to theta0, by block name."""
        return {name: value.detach().clone() for name, value in self.tau_by_block().items()}

    def at(self, blocks: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
        """(features, tangent), both [B, D]: (f(x; theta0), J(x) tau) if the regime is linearized
        and `blocks` are tau, else (f(x; theta), zeros), of theta. `blocks` has every block."""
        if self.regime == "ordinary":
            return self._run(blocks, batch)
        weights = {
            name: DualTensor(self.theta0(name), value.to(self.theta0(name).dtype))
            for name, value in blocks.items()
        }
        return self._run(weights, batch)

    def _run(self, weights: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
        """(features, tangent), [B, D], in several passes where that saves padding.

        Raises ValueError: see the class.
        """
        require_eval(self._encoder[0])
        refuse_autocast(self.theta0(self.blocks[0]).device)
        everything = {name: self.theta0(name) for name in self._frozen} | dict(weights)
        if not self._is_tried:
            self._encoder[0].train()
            self._encoder[0].eval()  # which makes modules forget what they kept of other passes
            with torch.inference_mode(False):  # so that the copies count writes (_version)
                everything |= {n: everything[n].clone() for n in self._buffers_of_encoder}
        before = {name: everything[name]._version for name in self._buffers_of_encoder}
        rows: list[int] = []
        features, tangents = [], []
        for some, part in passes(cast(batch, self.theta0(self.blocks[0]).dtype)):
            recording = RECORDING.set(torch.is_grad_enabled())
            try:
                found = encode(self._encoder[0], everything, part, strict=True)
            finally:
                RECORDING.reset(recording)
            features_BD, direction = primal(found), tangent(found)
            rows += some
            features.append(features_BD)
            tangents.append(torch.zeros_like(features_BD) if direction is None else direction)
        written = [name for name, version in before.items() if everything[name]._version != version]
        if written:
            raise ValueError(
                f"the encoder writes its buffer {written[0]} when it runs, so that theta0 would "
                "not stay as it is; let it keep nothing from pass to pass"
            )
        if not self._is_tried:
            _require_nothing_kept(self._encoder[0])
            # What is kept shows only if weights are duals or need a gradient: until then, retry.
            self._is_tried = any(map(_is_made, everything.values()))
        return self._in_order(rows, features), self._in_order(rows, tangents)

    def _in_order(self, rows: list[int], parts: list[Tensor]) -> Tensor:
        if len(parts) == 1:
            return parts[0].to(self.precision)
        order = torch.tensor(rows).argsort().to(parts[0].device, non_blocking=True)
        return torch.cat(parts)[order].to(self.precision)


class MovedEncoder(FrozenEncoder):
    """A frozen encoder with tau as its only parameters, in `precision`, starting at zero."""

    def __init__(
        self,
        encoder: nn.Module,
        trainable: Sequence[str] = ("*",),
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(encoder, trainable, dtype)
        made = ((n, torch.zeros_like(self.theta0(n), dtype=self.precision)) for n in self.blocks)
        # Contiguous whatever theta0's layout, as checkpoints need it.
        zeros = [(name, zero.contiguous()) for name, zero in made]
        # Pairs keep the module's order; a dict would be sorted.
        self.tau = nn.ParameterDict([(_key(name), nn.Parameter(zero)) for name, zero in zeros])

    def tau_by_block(self) -> Params:
        """The parameters themselves, by block name."""
        return {name: self.tau[_key(name)] for name in self.blocks}

    @torch.no_grad()
    def load_tau(self, tau: Params) -> None:
        """Sets tau; blocks that `tau` does not name become zero.

        Raises ValueError, before anything is set, when `tau` has a block that is not trained here
        or one of another shape.
        """
        unknown = sorted(set(tau) - set(self.blocks))
        if unknown:
            raise ValueError(f"tau names blocks that this encoder does not train: {unknown[:5]}")
        for name, value in tau.items():
            expected = self.theta0(name).shape
            if value.shape != expected:
                raise ValueError(f"tau's {name} is {list(value.shape)}, here {list(expected)}")
        for name, slot in self.tau_by_block().items():
            slot.copy_(tau[name]) if name in tau else slot.zero_()


def _slot(name: str) -> str:
    return "theta0/" + _key(name)


def _key(name: str) -> str:
    """The name without dots, which torch does not allow in names of parameters."""
    return name.replace(".", "/")
