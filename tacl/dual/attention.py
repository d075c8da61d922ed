"""Attention: scaled dot product, and the multi-head function behind nn.MultiheadAttention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tacl.dual.activation import softmax_tangent
from tacl.dual.linear import plus_products
from tacl.dual.tensor import dual, primal, register, tangent, total


@register("scaled_dot_product_attention")
def attention(
    func: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """With S = q k^T s, P = softmax S:  S' = (q'k^T + q k'^T) s,  o' = P'v + P v'.

    Shapes: query [..., L, E], key [..., S, E], value [..., S, V].
    """
    if dropout_p > 0:
        raise NotImplementedError("attention dropout: put the model into eval mode first")
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    s = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    bias, t_bias = _bias(attn_mask, is_causal, query, key)
    operands = (query, key, value) if bias is None else (query, key, value, bias)
    # Not torch.broadcast_shapes: it imports sympy.
    batch = torch.Size(np.broadcast_shapes(*(tuple(x.shape[:-2]) for x in operands)))
    (q, tq), (k, tk), (v, tv) = (_matrices(x, batch) for x in (query, key, value))
    scaled_q, scaled_k = q * s, k * s

    scores = scaled_q @ k.mT
    p = _weights(scores.view(*batch, *scores.shape[1:]), bias).view(scores.shape)
    t_scores = plus_products(None, ((tq, scaled_k.mT), (scaled_q, None if tk is None else tk.mT)))
    if t_bias is not None:
        t_bias = t_bias.expand(*batch, *scores.shape[1:]).reshape(scores.shape)
    t_scores = total(t_scores, t_bias)
    t_p = None if t_scores is None else softmax_tangent(t_scores, p, -1)
    derivative = plus_products(None, ((t_p, v), (p, tv)))
    shape = (*batch, q.shape[1], v.shape[2])
    return dual((p @ v).view(shape), None if derivative is None else derivative.view(shape))


def _matrices(x: Any, batch: torch.Size) -> tuple[Tensor, Tensor | None]:
    """Primal and tangent as a batch of matrices, copied only if they are scattered in memory."""

    def listed(x: Tensor) -> Tensor:
        return x.expand(*batch, *x.shape[-2:]).reshape(batch.numel(), *x.shape[-2:])

    tx = tangent(x)
    return listed(primal(x)), None if tx is None else listed(tx)


def _bias(mask: Any, is_causal: bool, q: Tensor, k: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The mask and its tangent as addends of the scores: -inf where attention is forbidden."""
    if is_causal:
        if mask is not None:
            raise ValueError("attention: is_causal together with a mask; give one of them")
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    if mask is None:
        return None, None
    if mask.dtype == torch.bool:
        mask = _forbidding(~mask, q.dtype)
    t_mask = tangent(mask)
    return primal(mask).to(q.dtype), None if t_mask is None else t_mask.to(q.dtype)


def _weights(scores: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(scores + bias); a row in which everything is forbidden attends to nothing."""
    if bias is None:
        return scores.softmax(-1)
    nothing = (bias == -math.inf).all(-1, keepdim=True)
    return scores.add_(bias).softmax(-1).masked_fill_(nothing, 0)


def _forbidding(forbidden: Tensor, dtype: torch.dtype) -> Tensor:
    """-inf where forbidden, else 0."""
    zeros = torch.zeros(forbidden.shape, dtype=dtype, device=forbidden.device)
    return zeros.masked_fill_(forbidden, -math.inf)


@register("multi_head_attention_forward")
def multi_head_attention(
    func: Any,
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    is_causal: bool = False,
    **rest: Any,
) -> Any:
    """Projections, attention per head, output projection; inputs are [L, B, E].

    Written with torch functions on duals, so that the other rules apply. Rare variants use the
    fallback.
    """
    rare = (
        need_weights or add_zero_attn or query.dim() != 3,
        bias_k is not None or static_k is not None or static_v is not None,
    )
    if any(rare):
        return NotImplemented
    if training and dropout_p > 0:
        raise NotImplementedError("attention dropout: put the model into eval mode first")
    # Batch first again: matrix products are fast on contiguous rows.
    if query is key and key is value and not use_separate_proj_weight:
        packed = F.linear(query.transpose(0, 1), in_proj_weight, in_proj_bias)
        q, k, v = packed.chunk(3, dim=-1)
    else:
        separate = (q_proj_weight, k_proj_weight, v_proj_weight)
        weights = separate if use_separate_proj_weight else in_proj_weight.chunk(3)
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        inputs = (query, key, value)
        q, k, v = (
            F.linear(x.transpose(0, 1), w, b)
            for x, w, b in zip(inputs, weights, biases, strict=True)
        )
    q, k, v = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in (q, k, v))
    mask = _merged_mask(attn_mask, key_padding_mask, q.shape, q.dtype)
    heads_BHLE = F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal and mask is None)
    joined = heads_BHLE.transpose(1, 2).flatten(2)
    return F.linear(joined, out_proj_weight, out_proj_bias).transpose(0, 1), None


def _merged_mask(
    attn_mask: Any, padding_BS: Tensor | None, shape: torch.Size, dtype: torch.dtype
) -> Any:
    """nn.MultiheadAttention's masks (True forbids) as one additive mask [.., .., L, S]."""

    def additive(mask: Any) -> Any:
        if mask is None or mask.dtype != torch.bool:
            return mask
        return _forbidding(mask, dtype)

    mask, padding = additive(attn_mask), additive(padding_BS)
    if mask is not None and mask.dim() == 3:  # [B * H, L, S]
        mask = mask.unflatten(0, (shape[0], shape[1]))
    if padding is None:
        return mask
    padding = padding[:, None, None, :]
    return padding if mask is None else mask + padding
