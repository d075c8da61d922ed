"""tau_jp of vectors on probes: the rows and columns of the interference matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.home import Home
from cluster.materials import BATCH, Materials
from cluster.messages import Measured, MeasureWork, Pair, Shard, VectorRef
from tacl.interference import tau_jp
from tacl.linearize import LinearizedEncoder
from tacl.params import Params
from tacl.tangents import cached_tangents


@dataclass(frozen=True)
class Named:
    """Whose vector it is. Version 0: not published yet."""

    task: str
    digest: str
    version: int = 0


def measure(work: MeasureWork, home: Home) -> Measured:
    """Every pair of the work, in its order; a shard is prepared and a vector read once."""
    materials = Materials(home, work.base)
    module = materials.linearized()
    vectors = {ref.digest: ref for ref, _ in work.pairs}
    taus = {digest: materials.vector(ref).to_params() for digest, ref in vectors.items()}
    found: dict[tuple[str, str], Pair] = {}
    for shard in {shard.blob.digest: shard for _, shard in work.pairs}.values():
        on_shard = [ref for ref, other in work.pairs if other.blob.digest == shard.blob.digest]
        named = {_named(ref): taus[ref.digest] for ref in on_shard}
        for pair in measured_pairs(materials, module, named, shard):
            found[pair.vector_digest, pair.shard_digest] = pair
    return Measured(pairs=tuple(_asked(found, ref, shard) for ref, shard in work.pairs))


def _asked(found: Mapping[tuple[str, str], Pair], ref: VectorRef, shard: Shard) -> Pair:
    """Under the names that were asked for: two tasks may share their samples, or their vector."""
    names = {"task": ref.task, "version": ref.version, "on": shard.task}
    return found[ref.digest, shard.blob.digest].model_copy(update=names)


def measured_pairs(
    materials: Materials,
    module: LinearizedEncoder,
    vectors: Mapping[Named, Params],
    shard: Shard,
) -> Sequence[Pair]:
    """One dual pass over the shard's probe for each vector."""
    probe = materials.probe_items(shard.blob)
    taus = {name.digest: tau for name, tau in vectors.items()}
    cached = cached_tangents(module, materials.backbone, probe, taus, BATCH)
    return [_pair(name, shard, cached.tangents[name.digest]) for name in vectors]


def _pair(name: Named, shard: Shard, tangent_ND) -> Pair:
    size = tau_jp(tangent_ND)
    return Pair(
        task=name.task,
        version=name.version,
        vector_digest=name.digest,
        on=shard.task,
        shard_digest=shard.blob.digest,
        tau_jp=size.mean,
        standard_error=size.standard_error,
        rows=size.rows,
    )


def _named(ref: VectorRef) -> Named:
    return Named(ref.task, ref.digest, ref.version)
