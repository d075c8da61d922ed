"""Pooled outputs of an encoder's inner blocks: middle layers keep what the last one discards.

Fitted heads read them at theta0 beside f (results/heads-choice.md shows the gain). Hooks record
them in the pass that computes f, so they cost no pass of their own. Source: linear classifier
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

BLOCKS = 2  # how many of them heads read


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
    """Whether its blocks return [B, H, V, W]. Vision transformers for pictures of any size declare
    this of their patches alone, which they flatten: that does not count."""
    modules = list(encoder.modules())
    any_size = (one for one in modules if getattr(one, "dynamic_img_size", False))
    flattened = [getattr(one, "patch_embed", None) for one in any_size]
    said = (one for one in modules if getattr(one, "output_fmt", None) == "NHWC")
    return any(all(one is not patches for patches in flattened) for one in said)


@contextmanager
def watched(
    encoder: nn.Module, blocks: Sequence[str], batch: Batch, last: bool
) -> Iterator[Callable[[Tensor], Tensor]]:
    """Records the blocks' outputs in one pass over the batch. Yields a function that makes f_BD of
    that pass into plain_BE: f, then each block's pooled output, scaled to the norm of f. `last`:
    see `channels_last`."""
    found: dict[str, Tensor] = {}
    rows = len(batch if isinstance(batch, Tensor) else next(iter(batch.values())))

    def hook(block: str) -> Callable[..., None]:
        def keep(module: nn.Module, given: Any, output: Any) -> None:
            # Pooled at once: later layers may overwrite the output in place.
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
    """[B, W]: mean of [B, L, W] or [L, B, W] over tokens other than padding, or of [B, W, H, V]
    (with channels last [B, H, V, W]) over positions."""
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
