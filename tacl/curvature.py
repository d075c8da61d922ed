"""Statistics instead of samples: the penalty E |J(x) tau|^2 from what a task says of its inputs.

Source: TAK, arXiv 2602.17385. With G = E[J'J] the penalty is tau' G tau. G is taken block-diagonal
over layers, and for a linear layer, or a convolution without groups, as the product of

    A = E[a a']   of the layer's inputs a (over rows and positions; with a 1 for the bias),
    B = E[g g']   of what random v ~ N(0, I) on the features sends back to its outputs
                  (over rows, summed over positions),

so that the penalty of the layer is tr(B dW A dW'). Every other block (norms, depthwise
convolutions, what no module of its own uses) has the diagonal of G, exact up to the noise of v.
All tasks merge into one pair of factors per layer, so that a step costs the same however many
there are. Not seen are products between layers and between positions.

What statistics still say of the samples: A of the first trained layer is the second moment of
embeddings, from which frequent words or mean pictures may be guessed; of few rows the rows
themselves. They are less than samples, not nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import pad, unfold

from tacl.backbone import Backbone, Item
from tacl.data import sample_rows
from tacl.errors import BaseMismatch, CorruptBlob, EmptySplit
from tacl.params import Params
from tacl.theta0 import require_eval, trainable_blocks

ROWS = 128
FORMAT = 1
METADATA_KEY = "tacl"

Directions = Callable[[int, int], Tensor]  # (row, D) -> [M, D]: v of the passes over a row


@dataclass(frozen=True, eq=False)
class Layer:
    """Factors of the blocks `weight` and, where there is one, `bias`: the last row of A is its."""

    weight: str
    bias: str | None
    a_II: Tensor
    b_OO: Tensor

    def penalty(self, tau: Mapping[str, Tensor]) -> Tensor:
        """tr(B dW A dW'), differentiable in tau; its gradient 2 B dW A comes with the value."""
        weight_OI = tau[self.weight].flatten(1)
        if self.bias is not None:
            weight_OI = torch.cat([weight_OI, tau[self.bias].unsqueeze(1)], 1)
        fixed_OI = weight_OI.detach()
        half_OI = self.b_OO @ fixed_OI @ self.a_II
        return (half_OI * fixed_OI).sum() + 2 * (half_OI * (weight_OI - fixed_OI)).sum()


@dataclass(frozen=True, eq=False)
class Statistics:
    """Of one task, or of several merged. `feature_norm`: mean |f(x; theta0)| over the rows."""

    base: str
    rows: int
    feature_norm: float
    layers: tuple[Layer, ...]
    diagonal: Params

    def penalty(self, tau: Mapping[str, Tensor]) -> Tensor:
        """About E |J(x) tau|^2 / |f|^2, as `relative_tau_jp` with the squared norm: a scalar."""
        terms = [layer.penalty(tau) for layer in self.layers]
        terms += [(value * tau[name].square()).sum() for name, value in self.diagonal.items()]
        return torch.stack(terms).sum() / self.feature_norm**2

    def to(self, device: torch.device | str) -> Statistics:
        layers = tuple(
            Layer(one.weight, one.bias, one.a_II.to(device), one.b_OO.to(device))
            for one in self.layers
        )
        diagonal = {name: value.to(device) for name, value in self.diagonal.items()}
        return Statistics(self.base, self.rows, self.feature_norm, layers, diagonal)

    def save(self, path: Path) -> None:
        """One safetensors file; equal statistics give equal bytes."""
        tensors = {f"diagonal:{name}": value for name, value in self.diagonal.items()}
        for one in self.layers:
            tensors |= {f"a:{one.weight}": one.a_II, f"b:{one.weight}": one.b_OO}
        head = {
            "format": FORMAT,
            "base": self.base,
            "rows": self.rows,
            "feature_norm": self.feature_norm,
            "bias": {one.weight: one.bias for one in self.layers},
        }
        tensors = {name: value.cpu().contiguous() for name, value in tensors.items()}
        save_file(tensors, path, metadata={METADATA_KEY: json.dumps(head, sort_keys=True)})

    @staticmethod
    def load(path: Path) -> Statistics:
        """CorruptBlob: it is truncated, foreign, or holds what no statistics can be."""
        try:
            with safe_open(path, framework="pt") as file:
                head = json.loads((file.metadata() or {})[METADATA_KEY])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            found = _assembled(head, tensors)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise CorruptBlob(f"{path} holds no whole statistics: {error!r}") from error
        return found


def _assembled(head: Mapping, tensors: Mapping[str, Tensor]) -> Statistics:
    if head["format"] != FORMAT:
        raise ValueError(f"format {head['format']}; this version reads format {FORMAT}")
    if not all(value.isfinite().all() for value in tensors.values()):
        raise ValueError("a value is not finite")
    layers = tuple(
        Layer(weight, bias, tensors[f"a:{weight}"], tensors[f"b:{weight}"])
        for weight, bias in head["bias"].items()
    )
    diagonal = {
        name.removeprefix("diagonal:"): value
        for name, value in tensors.items()
        if name.startswith("diagonal:")
    }
    return Statistics(head["base"], head["rows"], head["feature_norm"], layers, diagonal)


def merged(statistics: Sequence[Statistics]) -> Statistics:
    """One pair of factors for all tasks, each counting the same: means of A and of B / |f|^2.

    Raises BaseMismatch, and EmptySplit where there is none.
    """
    if not statistics:
        raise EmptySplit("a curvature penalty needs the statistics of one other task at least")
    first = statistics[0]
    foreign = next((one.base for one in statistics if one.base != first.base), None)
    if foreign is not None:
        raise BaseMismatch(f"statistics of the bases {first.base[:12]} and {foreign[:12]}")

    def mean(values: Iterable[Tensor], powers: int) -> Tensor:
        total = torch.zeros(())
        for one, value in zip(statistics, values, strict=True):
            total = total + value / (one.feature_norm**powers * len(statistics))
        return total

    layers = [
        Layer(
            first.layers[i].weight,
            first.layers[i].bias,
            mean((one.layers[i].a_II for one in statistics), 0),
            mean((one.layers[i].b_OO for one in statistics), 2),
        )
        for i in range(len(first.layers))
    ]
    diagonal = {n: mean((one.diagonal[n] for one in statistics), 2) for n in first.diagonal}
    return Statistics(first.base, sum(s.rows for s in statistics), 1.0, tuple(layers), diagonal)


# -- collecting


def measure(
    backbone: Backbone,
    items: Sequence[Item],
    trainable: Sequence[str] | None = None,
    *,
    rows: int = ROWS,
    seed: int = 0,
    directions: Directions | None = None,
) -> Statistics:
    """Statistics of unlabelled inputs of one task: a forward and a backward pass for each row.

    Row by row, for the diagonal needs the square of each row's gradient. `directions` gives the v
    of a row; by default one, standard normal by `seed`.
    """
    require_eval(backbone.encoder)
    if not items:
        raise EmptySplit("statistics of no rows; give at least one input")
    blocks = trainable_blocks(backbone.encoder, trainable or backbone.trainable)
    chosen = [items[row] for row in sample_rows(range(len(items)), rows, seed)]
    directions = directions or (lambda row, size: _normal(seed, row, size))
    sums = _Sums(backbone, blocks)
    for row, item in enumerate(chosen):
        sums.add(item, lambda size, row=row: directions(row, size))
    return sums.statistics(len(chosen))


def _normal(seed: int, row: int, size: int) -> Tensor:
    return torch.randn(1, size, generator=torch.Generator().manual_seed(seed * 1_000_003 + row))


@dataclass
class _Sums:
    """Running sums over rows; which layers have factors is seen at the first row."""

    backbone: Backbone
    blocks: list[str]
    a: Params = field(default_factory=dict)
    b: Params = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    biases: dict[str, str | None] = field(default_factory=dict)
    diagonal: Params = field(default_factory=dict)
    feature_norm: float = 0.0

    def __post_init__(self) -> None:
        parameters = dict(self.backbone.encoder.named_parameters())
        self.theta = {n: parameters[n].detach().clone().requires_grad_() for n in self.blocks}

    def add(self, item: Item, directions: Callable[[int], Tensor]) -> None:
        encoder, theta = self.backbone.encoder, self.theta
        with _watched(encoder, set(self.blocks)) as calls:
            features_1D = functional_call(encoder, theta, (self.backbone.collate([item]),))
        if not self.biases:
            self.biases = {call.weight: call.bias for call in calls}
        self.feature_norm += float(features_1D.detach().norm())
        for call in calls:
            a_PI = call.inputs()
            _accumulate(self.a, call.weight, a_PI.T @ a_PI)
            self.positions[call.weight] = self.positions.get(call.weight, 0) + len(a_PI)
        joint = set(self.biases) | {bias for bias in self.biases.values() if bias}
        rest = {name: value for name, value in theta.items() if name not in joint}
        outputs = [call.output for call in calls]
        vs_MD = directions(features_1D.shape[-1]).to(features_1D)
        for v_D in vs_MD:
            # M directions with sum_m E[v v'] = I: one normal one, or all unit ones.
            found = torch.autograd.grad(
                features_1D[0] @ v_D,
                [*outputs, *rest.values()],
                retain_graph=True,
                allow_unused=True,
            )
            for call, g in zip(calls, found, strict=False):
                if g is not None:
                    g_PO = call.rows(g)
                    _accumulate(self.b, call.weight, g_PO.T @ g_PO)
            for name, g in zip(rest, found[len(calls) :], strict=True):
                squared = torch.zeros_like(rest[name]) if g is None else g.square()
                _accumulate(self.diagonal, name, squared.detach())

    def statistics(self, rows: int) -> Statistics:
        layers = tuple(
            Layer(weight, bias, self.a[weight] / self.positions[weight], self.b[weight] / rows)
            for weight, bias in self.biases.items()
            if weight in self.b
        )
        diagonal = {name: value / rows for name, value in self.diagonal.items()}
        norm = self.feature_norm / rows
        return Statistics(self.backbone.digest, rows, norm, layers, diagonal)


def _accumulate(sums: Params, name: str, value: Tensor) -> None:
    sums[name] = sums[name] + value if name in sums else value


@dataclass
class _Call:
    """One call of a linear layer or of a convolution without groups."""

    module: nn.Module
    weight: str
    bias: str | None
    input: Tensor
    output: Tensor

    def inputs(self) -> Tensor:
        """a at every position, [P, I], with a 1 at the end for the bias."""
        if isinstance(self.module, nn.Conv2d):
            a_PI = _patches(self.module, self.input, self.output.shape[2:])
        else:
            a_PI = self.input.reshape(-1, self.input.shape[-1])
        return pad(a_PI, (0, 1), value=1.0) if self.bias is not None else a_PI

    def rows(self, g: Tensor) -> Tensor:
        """What comes back to every position, [P, O]."""
        if isinstance(self.module, nn.Conv2d):
            return g.flatten(2).transpose(1, 2).flatten(0, 1)
        return g.reshape(-1, g.shape[-1])


def _patches(conv: nn.Conv2d, x: Tensor, output: Sequence[int]) -> Tensor:
    """[P, I k k], at every position of the output."""
    mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
    x = pad(x, conv._reversed_padding_repeated_twice, mode=mode)
    margins = []
    for axis in (1, 0):  # columns first, as `pad` wants them
        reach = conv.dilation[axis] * (conv.kernel_size[axis] - 1) + 1
        missing = (output[axis] - 1) * conv.stride[axis] + reach - x.shape[2 + axis]
        # Some convolutions pad their input themselves, the larger half behind (TensorFlow's rule).
        margins += [max(0, missing) // 2, max(0, missing) - max(0, missing) // 2]
    patches = unfold(pad(x, margins), conv.kernel_size, dilation=conv.dilation, stride=conv.stride)
    return patches.transpose(1, 2).flatten(0, 1)


@contextmanager
def _watched(encoder: nn.Module, blocks: set[str]) -> Iterator[list[_Call]]:
    """The calls of layers whose weight is among `blocks`, in their order."""
    calls: list[_Call] = []

    def watch(name: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        prefix = f"{name}." if name else ""
        weight, bias = f"{prefix}weight", f"{prefix}bias"
        present = bias if bias in blocks else None

        def seen(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            calls.append(_Call(module, weight, present, inputs[0].detach(), output))

        return module.register_forward_hook(seen)

    handles = [
        watch(name, module)
        for name, module in encoder.named_modules()
        if f"{name}.weight".lstrip(".") in blocks and _factorises(module)
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _factorises(module: nn.Module) -> bool:
    convolution = isinstance(module, nn.Conv2d) and module.groups == 1
    return convolution or isinstance(module, nn.Linear)
