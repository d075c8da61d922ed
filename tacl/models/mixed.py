"""Rows of different users, each with a recipe of its own, in one pass through the encoder.

f_lin(x_u) = f(x_u; theta0) + J(x_u) sum_t Lambda_{u,t} tau_t for the rows of all users at once,
exact also for block-wise coefficients; `tacl.dual.mixed` describes the method and its cost.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch
from PIL import Image
from torch import Tensor, nn

from tacl.backbone import Backbone, Batch
from tacl.dual import DualTensor, primal, tangent
from tacl.dual.encode import encode
from tacl.dual.mixed import Mix, PerUserWeight
from tacl.models.frozen import refuse_autocast, require_eval, trainable_blocks
from tacl.models.linearized import LinearizedEncoder
from tacl.vectors.params import Params

Coefficient = float | Mapping[str, float]  # one number, or one per block (a missing block: 0)
Recipe = Mapping[str, Coefficient]  # name of a vector -> its coefficient
Vectors = Mapping[str, Params]


class MultiRecipeEncoder:
    """The encoder, and the vectors that recipes may name.

    Args:
        encoder: `encoder(batch) -> features_BD`, in eval mode; never changed.
        trainable: patterns of the blocks that vectors change.
        vectors: name -> blocks, in the encoder's precision; may change between calls.
    """

    def __init__(self, encoder: nn.Module, trainable: Sequence[str], vectors: Vectors) -> None:
        require_eval(encoder)
        self._encoder, self._vectors = encoder, vectors
        chosen = set(trainable_blocks(encoder, trainable))
        self._theta0 = {n: p.detach() for n, p in encoder.named_parameters() if n in chosen}

    def __call__(self, batch: Batch, users: Sequence[tuple[Recipe, int]]) -> Tensor:
        """f_lin of every row, [B, D]."""
        plain_BD, tangent_BD = self.parts(batch, users)
        return plain_BD + tangent_BD

    @torch.no_grad()
    def parts(self, batch: Batch, users: Sequence[tuple[Recipe, int]]) -> tuple[Tensor, Tensor]:
        """(f(x; theta0), J(x) tau) of every row, both [B, D]. `users`: recipe and number of rows,
        in the rows' order.

        Raises KeyError for an unknown vector, NotImplementedError for an encoder that uses its
        weights in a way without a rule, ValueError inside `torch.autocast`.
        """
        refuse_autocast(next(iter(self._theta0.values())).device)
        if len(users) == 1:
            tau = self._alone(users[0][0])
            weights = {n: DualTensor(self._theta0[n], value) for n, value in tau.items()}
            return self._features(batch, weights)
        names = sorted({name for recipe, _ in users for name in recipe})
        vectors = {name: self._vectors[name] for name in names}
        rows_U, mix = [rows for _, rows in users], _mixing([recipe for recipe, _ in users])

        def weight(block: str, theta0: Tensor) -> Tensor:
            """The block of all users; theta0 itself if no vector changes the block."""
            moving = tuple(name for name, tau in vectors.items() if block in tau)
            parts_T = [vectors[name][block] for name in moving]
            return PerUserWeight(theta0, parts_T, mix(moving, block), rows_U) if moving else theta0

        return self._features(batch, {n: weight(n, theta0) for n, theta0 in self._theta0.items()})

    def _alone(self, recipe: Recipe) -> Params:
        if list(recipe.values()) == [1.0]:
            return self._vectors[next(iter(recipe))]
        return summed(recipe, self._vectors)

    def _features(self, batch: Batch, weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        features = encode(self._encoder, weights, batch)
        features_BD, tangent_BD = primal(features), tangent(features)
        return features_BD, torch.zeros_like(features_BD) if tangent_BD is None else tangent_BD


def _mixing(recipes: Sequence[Recipe]) -> Callable[[tuple[str, ...], str], Mix]:
    """A function that gives every user's coefficients of some vectors in a block. Coefficients of
    whole vectors are computed once for all blocks: for many users and vectors that takes a tenth of
    a pass or more."""
    are_whole = not any(isinstance(c, Mapping) for recipe in recipes for c in recipe.values())

    @cache
    def mix(names: tuple[str, ...], block: str) -> Mix:
        return [[_of_block(recipe.get(name, 0.0), block) for name in names] for recipe in recipes]

    return lambda names, block: mix(names, "" if are_whole else block)


def summed(recipe: Recipe, vectors: Vectors) -> Params:
    """sum_t Lambda_t tau_t, in the order of the vectors' names."""
    total: Params = {}
    for name in sorted(recipe):
        for block, value in vectors[name].items():
            coefficient = _of_block(recipe[name], block)
            if block in total:
                total[block].add_(value, alpha=coefficient)
            else:
                total[block] = coefficient * value
    return total


@torch.no_grad()
def alone(module: LinearizedEncoder, batch: Batch, recipe: Recipe, vectors: Vectors) -> Tensor:
    """f_lin of every row under one recipe, by the dual forward of its sum, [B, D]: the reference
    that mixed passes are compared with."""
    module.load_tau(summed(recipe, vectors))
    return module.linearized(batch)


def mixes(backbone: Backbone) -> bool:
    """Whether rows of several users may share a pass through this encoder: compares one with each
    user's own pass, on three small inputs with three recipes of random vectors."""
    random = torch.Generator().manual_seed(0)
    encoder, moved = backbone.encoder, backbone.trainable
    module = LinearizedEncoder(encoder, moved)
    vectors = {
        name: {n: 0.1 * _noise_like(module.theta0(n), random) for n in module.blocks}
        for name in "ab"
    }
    batch = backbone.collate([backbone.prepare(raw) for raw in three_inputs(backbone.modality)])
    users = [({"a": 1.0}, 1), ({"a": -0.5, "b": 0.7}, 1), ({"b": 1.0}, 1)]
    try:
        apart = torch.stack([alone(module, batch, r, vectors)[b] for b, (r, _) in enumerate(users)])
        together_BD = MultiRecipeEncoder(encoder, moved, vectors)(batch, users)
    except NotImplementedError:
        return False
    scale = apart.abs().max()
    return bool(((together_BD - apart).abs() <= 1e-3 * scale).all())


def _noise_like(theta0: Tensor, random: torch.Generator) -> Tensor:
    noise = torch.randn(theta0.shape, generator=random).to(theta0)
    return noise * theta0.std() if theta0.numel() > 1 else noise


def three_inputs(modality: str) -> list[bytes | str]:
    if modality == "text":
        return ["one", "two words", "three words here"]
    found: list[bytes | str] = []
    for shade in range(3):
        file = io.BytesIO()
        Image.effect_noise((40, 40), 30 + 60 * shade).save(file, format="PNG")
        found.append(file.getvalue())
    return found


def _of_block(coefficient: Coefficient, block: str) -> float:
    return coefficient if isinstance(coefficient, int | float) else coefficient.get(block, 0.0)
