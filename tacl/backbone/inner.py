"""What inner blocks of an encoder give, pooled: middle layers know what the last one has let go of.

Heads that are fitted read it at theta0 beside f (results/heads-choice.md says what it gives). It is
seen in the pass that computes f, by hooks, and costs no pass of its own. Source: linear classifier
probes, arXiv 1610.01644; what the layers of BERT know, arXiv 1905.05950.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from tacl.backbone.inputs import Batch
from tacl.dual import primal

BLOCKS = 2  # that heads read


def inner_blocks(encoder: nn.Module) -> tuple[str, ...]:
    """The last blocks of the first and of the second third of the encoder's longest row of blocks;
    none where it has fewer than three."""
    rows = [
        [f"{name}.{child}".removeprefix(".") for child, _ in row.named_children()]
        for name, row in encoder.named_modules()
        if isinstance(row, nn.ModuleList | nn.Sequential)
    ]
    longest = max(rows, key=len, default=[])
    if len(longest) < 3:
        return ()
    ends = (round(part * len(longest) / (BLOCKS + 1)) for part in range(1, BLOCKS + 1))
    return tuple(longest[end - 1] for end in ends)


def channels_last(encoder: nn.Module) -> bool:
    """Whether its blocks give [B, H, V, W]; vision transformers for pictures of any size say so of
    their patches alone, which they flatten."""
    modules = list(encoder.modules())
    any_size = (one for one in modules if getattr(one, "dynamic_img_size", False))
    flattened = [getattr(one, "patch_embed", None) for one in any_size]
    said = (one for one in modules if getattr(one, "output_fmt", None) == "NHWC")
    return any(all(one is not patches for patches in flattened) for one in said)


@contextmanager
def watched(
    encoder: nn.Module, blocks: Sequence[str], batch: Batch, last: bool
) -> Iterator[Callable[[Tensor], Tensor]]:
    """For one pass over the batch. What it gives makes f_BD of that pass plain_BE: f, and then the
    blocks' pooled outputs side by side, each as long as f. `last`: see `channels_last`."""
    found: dict[str, Tensor] = {}
    rows = len(batch if isinstance(batch, Tensor) else next(iter(batch.values())))

    def hook(block: str) -> Callable[..., None]:
        def keep(module: nn.Module, given: Any, output: Any) -> None:
            # Now: what comes next may write in its place.
            first = output[0] if isinstance(output, tuple | list) else output
            found[block] = _pooled(primal(first), rows, batch, last)

        return keep

    def plain(features_BD: Tensor) -> Tensor:
        if not blocks:
            return features_BD
        pooled = [found[block].to(features_BD) for block in blocks]
        inner_BK = torch.cat([normalize(one, dim=-1) for one in pooled], -1)
        length_B1 = features_BD.norm(dim=-1, keepdim=True)
        return torch.cat([features_BD, length_B1 * inner_BK], -1)

    hooks = [encoder.get_submodule(block).register_forward_hook(hook(block)) for block in blocks]
    try:
        yield plain
    finally:
        for one in hooks:
            one.remove()


def _pooled(output: Tensor, rows: int, batch: Batch, channels_last: bool) -> Tensor:
    """[B, W]: mean over tokens that are no padding, of [B, L, W] or [L, B, W], or over places, of
    [B, W, H, V] or with channels last of [B, H, V, W]."""
    if output.dim() == 3 and output.shape[0] != rows:
        output = output.transpose(0, 1)
    if output.dim() == 3 and isinstance(batch, dict) and "attention_mask" in batch:
        mask_BL1 = batch["attention_mask"].unsqueeze(-1).to(output.dtype)
        return (output * mask_BL1).sum(1) / mask_BL1.sum(1)
    if output.dim() == 3:
        return output.mean(1)
    if output.dim() == 4 and channels_last:
        return output.mean((1, 2))
    return output.flatten(2).mean(-1) if output.dim() > 3 else output
