"""The start of a refresh's steps: its least squares problem, solved by layer in closed form.

For a linear layer, or a convolution without groups, with inputs a (and a 1 appended for the bias),

    minimise over X   E_own |(X - first) a|^2 + strength * E_others |X a|^2 + damping |X - tau|^2

is solved, with A = E_own[a a'] and O = E_others[a a'], by

    X (A + strength O + damping) = first A + damping tau.

RegMean (arXiv 2212.09849) merges weights by the same least squares. This assumes that the effect of
a layer's outputs on the features is the same on all rows, and treats layers one by one; neither is
exact, and the steps that follow take all layers together. Blocks that are not of such a layer, or
of a very wide one, stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from tacl.backbone import Backbone, Item
from tacl.curvature.calls import LayerRecorder, joined
from tacl.dual.encode import encode
from tacl.vectors.params import Params

DAMPING = 0.01  # share of the diagonal's mean: few rows do not span the inputs of a layer
TINY = 1e-12  # so that a layer whose inputs are all zero stays unchanged
AT_ONCE = 16  # rows of a pass
WIDEST = 8192  # inputs of a layer: the moment of a wider one would take more than 256 MB


def closed_form(
    backbone: Backbone,
    tau: Params,
    first: Params,
    own: Sequence[Item],
    others: Sequence[Item],
    strength: float,
) -> Params:
    """X of each block of `tau` that is a weight or a bias of such a layer, on tau's device. A block
    that `first` lacks, as an adapter may, counts as zero."""
    first = {name: first.get(name, torch.zeros_like(block)) for name, block in tau.items()}
    of_own, of_others = (_moments(backbone, tau, items) for items in (own, others))
    found: Params = {}
    for (weight, bias), own_II in of_own.items():
        if (weight, bias) not in of_others:  # layers may depend on the inputs
            continue
        tau_OI, first_OI = (joined(one, weight, bias).to(own_II) for one in (tau, first))
        moment_II = own_II + strength * of_others[weight, bias]
        damping = DAMPING * moment_II.diagonal().mean().clamp_min(TINY)
        moment_II.diagonal().add_(damping)
        wanted_OI = first_OI @ own_II + damping * tau_OI
        x_OI = torch.linalg.solve(moment_II, wanted_OI, left=False).to(tau[weight])
        if bias is not None:
            found[bias] = x_OI[:, -1].clone()
            x_OI = x_OI[:, :-1]
        found[weight] = x_OI.reshape(tau[weight].shape)
    return found


Layer = tuple[str, str | None]  # the names of its weight and its bias


def _moments(backbone: Backbone, blocks: Params, items: Sequence[Item]) -> dict[Layer, Tensor]:
    """E[a a'] of every layer at theta0, [I, I]; all positions of a row together count as one."""
    parameters = dict(backbone.encoder.named_parameters())
    theta = {name: parameters[name].detach() for name in blocks}
    sums: dict[Layer, Tensor] = {}
    for batch in _alike(items):
        with torch.no_grad(), LayerRecorder(theta) as watched:
            encode(backbone.encoder, theta, backbone.collate(batch))
        for call in watched.calls:
            if call.patches_PI.shape[1] > WIDEST:
                continue
            a_PI = call.inputs().to(blocks[call.weight].dtype)
            found_II = a_PI.T @ a_PI * (len(batch) / len(a_PI) / len(items))
            layer = call.weight, call.bias
            sums[layer] = sums[layer] + found_II if layer in sums else found_II
    return sums


def _alike(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yields up to AT_ONCE rows of equal length: padding would count as an input."""
    for _, same in groupby(sorted(items, key=len), key=len):
        rows = list(same)
        yield from (rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE))
