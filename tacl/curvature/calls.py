"""Recording inputs and outputs of an encoder's layers: every use of a block as a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tacl.dual.attention import multi_head_attention
from tacl.vectors.params import Params


@dataclass
class LayerCall:
    """One use of a weight: its inputs [P, I] and its output, whose O axis is `channels`."""

    weight: str
    bias: str | None
    patches_PI: Tensor
    output: Tensor
    channels: int

    def inputs(self) -> Tensor:
        """a at every position, [P, I], with a 1 appended for the bias, if there is one."""
        return F.pad(self.patches_PI, (0, 1), value=1.0) if self.bias else self.patches_PI

    def rows(self, g: Tensor) -> Tensor:
        """The gradient g of the output as a row for every position, [P, O]."""
        return g.movedim(self.channels, -1).flatten(0, -2)


class LayerRecorder(TorchFunctionMode):
    """Records every use of these blocks as the weight of F.linear, or of F.conv2d without groups.

    Weights are recognised by identity, so that it does not matter which module uses them.
    """

    def __init__(self, theta: Params) -> None:
        super().__init__()
        self.names = {id(value): name for name, value in theta.items()}
        self.calls: list[LayerCall] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self:  # to record its projections, which are linear layers too
                found = multi_head_attention(func, *args, **kwargs)
            if found is not NotImplemented:
                return found
        output, known = func(*args, **kwargs), len(self.calls)
        if func is F.linear:
            self._linear(output, *args, **kwargs)
        elif func is F.conv2d:
            self._convolution(output, *args, **kwargs)
        # A copy, as an activation may write in place: what is recorded stays the layer's output.
        return output.clone() if len(self.calls) > known and output.requires_grad else output

    def _linear(self, output: Tensor, input: Tensor, weight: Tensor, bias: Any = None) -> None:
        self._note(weight, bias, input.detach().flatten(0, -2), output, -1)

    def _convolution(
        self,
        output: Tensor,
        input: Tensor,
        weight: Tensor,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> None:
        if groups != 1 or isinstance(padding, str):
            return  # such a block has a diagonal instead
        size: Any = weight.shape[2:]
        patches = F.unfold(input.detach(), size, dilation, padding, stride)
        self._note(weight, bias, patches.transpose(1, 2).flatten(0, 1), output, 1)

    def _note(
        self, weight: Tensor, bias: Any, patches_PI: Tensor, output: Tensor, channels: int
    ) -> None:
        if id(weight) in self.names:
            name, own_bias = self.names[id(weight)], self.names.get(id(bias))
            self.calls.append(LayerCall(name, own_bias, patches_PI, output, channels))


def joined(tau: Mapping[str, Tensor], weight: str, bias: str | None) -> Tensor:
    """tau of a layer, [O, I], with the bias as its last column, to match `LayerCall.inputs`."""
    weight_OI = tau[weight].flatten(1)
    return weight_OI if bias is None else torch.cat([weight_OI, tau[bias].unsqueeze(1)], 1)
