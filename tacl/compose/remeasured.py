"""tau_jp of a composition whose coefficients were learned.

The tauJp penalty makes sum_b J_b tau_b vanish on other tasks' inputs. Unequal coefficients of
blocks undo that cancellation, so that what was measured when a vector was published says nothing
of it any more: it is measured again, on the same probes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacl.backbone import Item
from tacl.compose.scaled import ScaledEncoder
from tacl.errors import BadRecipe
from tacl.interference import Matrix, tau_jp
from tacl.linearize import LinearizedEncoder
from tacl.tangents import Collates, cached_tangents


def remeasured(
    learned: ScaledEncoder,
    module: LinearizedEncoder,
    backbone: Collates,
    probes: Mapping[str, Sequence[Item]],
) -> Matrix:
    """pairs[(s, t)]: Lambda_s tau_s on the probe of t, for every vector and probe.

    `module` only carries the tangents. Raises BadRecipe for ordinary vectors, which have none.
    """
    if learned.regime != "linearized":
        raise BadRecipe("tau_jp is of linearized vectors; an ordinary composition has no tangent")
    names = [vector.task for vector in learned.vectors]
    taus = {name: learned.scaled_vector(t) for t, name in enumerate(names)}
    pairs = {}
    for task, items in probes.items():
        cached = cached_tangents(module, backbone, items, taus)
        pairs |= {(name, task): tau_jp(cached.tangents[name]) for name in names}
    return Matrix(pairs)
