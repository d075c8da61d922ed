"""tau_jp of vectors on probes: the rows and columns of the interference matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cluster.domain.outcomes import GivesWay
from cluster.domain.tasks import Pair, Shard, VectorRef
from cluster.domain.work import Measured, MeasureWork
from cluster.learner.artifacts import Materials, given_device
from cluster.learner.progress import ProgressCallback
from cluster.storage.checkpoints import Checkpoints, checkpoints
from cluster.storage.home import Home
from tacl.errors import RunFailed
from tacl.evaluation.interference import logit_change, tau_jp
from tacl.vectors import TaskVector, params

PAIRS = "pairs.json"
MOST = 30.0  # lengths of the features that a vector may move them by; a trained one: about one
Probe = tuple[str, str]  # digests of the samples and of the head
Found = dict[tuple[str, Probe], Pair]  # by the vector's digest and the probe


def measure(work: MeasureWork, home: Home, tell: ProgressCallback) -> Measured:
    """Every pair of the work, in its order; each shard is prepared and each vector read once. Gives
    way between two shards; the next attempt continues with those that are left."""
    materials = Materials(home, work.base, given_device(work.gpus))
    refs = {ref.digest: ref for ref, _ in work.pairs}
    vectors = {digest: materials.vector(ref) for digest, ref in refs.items()}
    store = checkpoints(home, work.run_id)
    found = _kept(store)
    wanted = dict.fromkeys((ref.digest, _probe(shard)) for ref, shard in work.pairs)
    for shard in {_probe(shard): shard for _, shard in work.pairs}.values():
        on_shard = [ref for ref, other in work.pairs if _probe(other) == _probe(shard)]
        if all((ref.digest, _probe(shard)) in found for ref in on_shard):
            continue
        asked = {ref.digest: vectors[ref.digest] for ref in on_shard}
        for pair in measured_pairs(materials, asked.values(), shard):
            found[pair.vector_digest, _probe(shard)] = pair
        if tell(len(found), len(wanted), None) and len(found) < len(wanted):
            store.write(len(found), partial(_keep, found))
            raise GivesWay
    return Measured(pairs=tuple(_asked(found, ref, shard) for ref, shard in work.pairs))


def _keep(found: Found, folder: Path) -> None:
    (folder / PAIRS).write_text(Measured(pairs=tuple(found.values())).model_dump_json())


def _kept(store: Checkpoints) -> Found:
    """The pairs that this run measured before it gave way."""
    with store.newest() as kept:
        if kept is None:
            return {}
        found = Measured.model_validate_json((kept.folder / PAIRS).read_text())
    return {(pair.vector_digest, (pair.shard_digest, pair.head)): pair for pair in found.pairs}


def _probe(shard: Shard) -> Probe:
    return shard.blob.digest, shard.head


def _asked(found: Found, ref: VectorRef, shard: Shard) -> Pair:
    """The pair under the requested names: two tasks may share their samples, or their vector."""
    names = {"task": ref.task, "version": ref.version, "on": shard.task}
    return found[ref.digest, _probe(shard)].model_copy(update=names)


def measured_pairs(
    materials: Materials, vectors: Iterable[TaskVector], shard: Shard
) -> Iterator[Pair]:
    """Yields the pair of each vector with the shard, by one dual pass over the shard's probe; only
    one vector at a time is dense. Versions are 0, as if unpublished; `logits` needs a head of the
    shard's task."""
    items = materials.probe_items(shard.blob)
    head = materials.head(shard.head) if shard.head else None
    for vector in vectors:
        cached = materials.tangents(items, {vector.digest: vector.to_params()})
        tangent_ND = cached.tangents[vector.digest]
        size = tau_jp(tangent_ND)
        change = logit_change(cached.features_ND, tangent_ND, head) if head else None
        yield Pair(
            task=vector.task,
            version=0,
            vector_digest=vector.digest,
            on=shard.task,
            shard_digest=shard.blob.digest,
            tau_jp=size.mean,
            standard_error=size.standard_error,
            rows=size.rows,
            head=shard.head,
            logits=change and change.mean,
            logits_error=change and change.standard_error,
        )


def stored_vector(
    materials: Materials, vector: TaskVector, shards: Sequence[Shard]
) -> dict[str, Any]:
    """Fields of a run's result about the vector that it made: digest, blob, norm, and pairs with
    the shards. The vector is stored last: if the run is killed before it reports the blob, no purge
    finds the file. Raises RunFailed if the vector moves features by more than MOST."""
    pairs: list[Pair] = []
    for shard in shards:
        pairs += measured_pairs(materials, [vector], shard)
        require_bounded(pairs[-1], materials.feature_norm(shard.blob))
    return {
        "vector_digest": vector.digest,
        "norm": params.norm(vector.to_params()),
        "pairs": tuple(pairs),
        "vector_blob": materials.put(vector.save),
    }


def require_bounded(pair: Pair, feature_norm: float) -> None:
    """A sum that holds a vector of any size would answer nothing, and so would every head that is
    fitted under it. Raises RunFailed."""
    if not pair.tau_jp <= MOST * feature_norm:  # nor is a NaN
        # All who see the task read this, and the other one may be private.
        whose = pair.on if pair.on == pair.task else "another task"
        raise RunFailed(
            f"the vector moves the features of inputs of {whose} by {pair.tau_jp:.3g}, and they "
            f"are {feature_norm:.3g} long: no sum with it would be of use. A training diverged: "
            "submit the task with a smaller --learning-rate; of an import, give a checkpoint "
            "that changes the base less"
        )
